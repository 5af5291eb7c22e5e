// Codes of few bits instead of numbers: encode, decode, decode_add.
//
// The prover takes codes for a function of their numbers of which it knows nothing but where it loses: a step that
// moves codes keeps what they stand for, only decode and decode_add take them for numbers, and only all those that one
// step has made together, since their scales lie before them. Each encoding counts as a rounding of all contributions.
#include "core/assert.hpp"
#include "core/text.hpp"
#include "schedule/contract.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::schedule {

std::string to_string(const CodeForm& form) {
    TUTTI_ASSERT(static_cast<std::size_t>(form.format) < std::size(format_names));
    TUTTI_ASSERT(form.block > 0);
    return fmt::format("{}/{}", format_names[static_cast<std::size_t>(form.format)], form.block);
}

std::optional<CodeForm> code_form_named(std::string_view name) {
    const std::size_t slash = name.find('/');
    const auto format = std::ranges::find(format_names, name.substr(0, slash));
    if (slash == std::string_view::npos || format == std::end(format_names)) return std::nullopt;
    const auto block = number_in<std::uint64_t>(name.substr(slash + 1));
    if (!block || *block == 0 || *block > elements_max) return std::nullopt;
    return CodeForm{static_cast<quantize::Format>(format - std::begin(format_names)), *block};
}

void Builder::encode(Chunk target, Chunk source, const Encoding& encoding) {
    TUTTI_ASSERT(target.count == source.count);
    TUTTI_ASSERT(!encoding.given || !encoding.magnitudes);
    if (target.count == 0) return;
    std::vector<Chunk> sources{source};
    if (encoding.magnitudes) sources.push_back(*encoding.magnitudes);
    Step& step = begin_local(StepKind::encode, target, sources);
    step.given = encoding.given;
    step.number = encoding.number.value_or(source.offset);
    end();
}

void Builder::decode(Chunk target, Chunk source) {
    TUTTI_ASSERT(target.count == source.count);
    if (target.count == 0) return;
    begin_local(StepKind::decode, target, {&source, 1});
    end();
}

void Builder::decode_add(Chunk target, std::span<const Chunk> sources, bool exact, bool finish) {
    TUTTI_ASSERT(!sources.empty());
    TUTTI_ASSERT(std::ranges::all_of(sources, [&](const Chunk& source) { return source.count == target.count; }));
    if (target.count == 0) return;
    Step& step = begin_local(StepKind::decode_add, target, sources);
    step.exact = exact;
    step.finish = finish;
    end();
}

namespace {

void read_encode(Line& line, Reading& r) {
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    Builder::Encoding encoding;
    if (line.flag("by")) encoding.magnitudes = line.chunk();
    encoding.given = line.flag("given");
    if (line.flag("number")) encoding.number = line.count("number of an element");
    r.builder.encode(target, source, encoding);
}
void read_decode(Line& line, Reading& r) {
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    r.builder.decode(target, source);
}
void read_decode_add(Line& line, Reading& r) {
    const Chunk target = line.chunk();
    const auto sources = line.chunks();
    if (sources.empty()) line.fail("there is nothing to add up", "chunks of codes");
    for (const Chunk& source : sources) line.equal(target, source);
    const bool exact = line.flag("exact");
    r.builder.decode_add(target, sources, exact, line.flag("finish"));
}

void write_encode(Writer& writer, const At& at) {
    const auto operands = at.operands();
    const Chunk& source = operands[0].chunk;
    std::string text = fmt::format("encode {} {}", to_text(at.schedule, at.step.target), to_text(at.schedule, source));
    if (operands.size() > 1) text += fmt::format(" by {}", to_text(at.schedule, operands[1].chunk));
    if (at.step.given) text += " given";
    if (at.step.number != source.offset) text += fmt::format(" number {}", at.step.number);
    writer.add(text);
}
void write_decode(Writer& writer, const At& at) {
    writer.add(fmt::format("decode {}{}", to_text(at.schedule, at.step.target), writer.operands(at)));
}
void write_decode_add(Writer& writer, const At& at) {
    writer.add(fmt::format("decode_add {}{}{}{}", to_text(at.schedule, at.step.target), writer.operands(at),
                           at.step.exact ? " exact" : "", at.step.finish ? " finish" : ""));
}

const std::optional<CodeForm>& form_of(const At& at, const Chunk& chunk) {
    return at.schedule.of(chunk.buffer).codes;
}
bool is_number(const Proof& proof, const At& at, const Chunk& chunk, bool or_int8) {
    const Type type = proof.type_of(at, chunk);
    return !type.codes && type.dtype && (is_encodable(*type.dtype) || (or_int8 && *type.dtype == DType::int8));
}

// The magnitudes of a block are those of all contributions to each of its elements. Returns the scale's name.
std::uint64_t scale_from(Proof& proof, const At& at, const Value& magnitude, std::span<const Value> block) {
    if (!magnitude || magnitude->span == 0) {
        proof.fault(at, "takes what is no magnitude for one");
        return Symbol::own_scale;
    }
    for (const Value& value : block) {
        const bool covered = value && value->index >= magnitude->index &&
                             value->index - magnitude->index < magnitude->span &&
                             std::ranges::all_of(value->parts, [&](std::uint32_t rank) {
                                 return std::ranges::find(magnitude->parts, rank) != magnitude->parts.end();
                             });
        if (covered) continue;
        proof.fault(at, "takes a scale from magnitudes of other elements");
        break;
    }
    return magnitude->scale_name();
}

bool prove_encode(Proof& proof, const At& at) {
    TUTTI_ASSERT(!at.operands().empty() && at.operands().size() <= 2);
    TUTTI_ASSERT(at.operands()[0].chunk.count == at.step.target.count);
    const auto operands = at.operands();
    const Chunk& target = at.step.target;
    const auto& form = form_of(at, target);
    const bool is_scaled = operands.size() > 1;
    if (!form || !is_number(proof, at, operands[0].chunk, at.step.given)) {
        proof.fault(at, "expected float32, float16 or bfloat16 as codes (int8 with a given scale)");
        return true;
    }
    const std::uint64_t blocks = form->run(target.count).blocks();
    if (is_scaled && (at.step.given || operands[1].chunk.count != blocks ||
                      proof.type_of(at, operands[1].chunk) != Type{DType::float32})) {
        proof.fault(at, fmt::format("expected a magnitude in float32 for each of {} blocks, or a given scale", blocks));
        return true;
    }
    Values values = proof.load(at, operands[0].chunk);
    proof.refuse_codes(at, values);
    const Values magnitudes = is_scaled ? proof.load(at, operands[1].chunk) : Values();
    TUTTI_ASSERT(values.size() == target.count);
    const std::string name = to_string(*form);
    for (std::uint64_t begin = 0; begin < target.count; begin += form->block) {
        const std::span block(values.data() + begin, std::min(form->block, target.count - begin));
        const std::uint64_t scale = at.step.given ? Symbol::given_scale
                                    : is_scaled   ? scale_from(proof, at, magnitudes[begin / form->block], block)
                                                  : Symbol::own_scale;
        const std::uint64_t first = block.front() ? block.front()->index : 0;
        for (std::size_t i = 0; i < block.size(); ++i) {
            if (!block[i]) continue;
            Symbol& value = *block[i];
            ++value.combinations;
            value.roundings.push_back({.first = 0,
                                       .last = static_cast<std::uint32_t>(value.parts.size()),
                                       .to = name,
                                       .by = Rounding::By::codes,
                                       .block = first});
            value.coded_by = name;
            value.place = begin + i;
            value.run = target.count;
            value.scale = scale;
        }
    }
    proof.save(at, target, values);
    return true;
}

// The numbers that all codes of one run stand for.
Values decoded(Proof& proof, const At& at, const Chunk& source) {
    const auto& form = form_of(at, source);
    if (!form || !is_number(proof, at, at.step.target, false)) {
        proof.fault(at, "expected codes as float32, float16 or bfloat16");
        return Values(source.count);
    }
    Values values = proof.load(at, source);
    const std::string name = to_string(*form);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
        if (!values[i]) continue;
        if (values[i]->coded_by != name || values[i]->place != i || values[i]->run != source.count) {
            proof.fault(at, "takes other codes, or a part of them: expected all that one step encode has made");
            return values;
        }
        values[i]->coded_by.clear();
        values[i]->place = values[i]->run = 0;
    }
    return values;
}

void forget_scales(Values& values) {
    for (Value& value : values) {
        if (value) value->scale = Symbol::own_scale;
    }
}

bool prove_decode(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.operands().size() == 1);
    Values values = decoded(proof, at, at.operands()[0].chunk);
    forget_scales(values);
    const Type to = proof.type_of(at, at.step.target);
    for (Value& value : values) {
        if (!value || to == Type{DType::float32}) continue;
        ++value->combinations;
        if (to.dtype && to != Type{proof.contract().dtype})
            value->roundings.push_back(
                {0, static_cast<std::uint32_t>(value->parts.size()), std::string(to_string(*to.dtype))});
    }
    proof.save(at, at.step.target, values);
    return true;
}

bool prove_decode_add(Proof& proof, const At& at) {
    TUTTI_ASSERT(!at.operands().empty());
    if (proof.type_of(at, at.step.target) != Type{DType::float32}) {
        proof.fault(at, "adds up in another type: expected float32");
        return true;
    }
    std::vector<Values> inputs;
    for (const Operand& operand : at.operands()) inputs.push_back(decoded(proof, at, operand.chunk));
    for (std::size_t i = 0; at.step.exact && i < at.step.target.count; ++i) {
        const bool same = std::ranges::all_of(inputs, [&](const Values& values) {
            return values[i] && values[i]->scale != Symbol::own_scale && values[i]->scale == inputs[0][i]->scale;
        });
        if (same) continue;
        proof.fault(at, "adds up codes themselves that need not have one scale");
        break;
    }
    for (Values& values : inputs) forget_scales(values);
    proof.save(at, at.step.target, proof.combined(at, inputs));
    return true;
}

std::string encode_sentence(const Schedule& s, const Step& step) {
    const auto operands = operands_of(s, step);
    return fmt::format("{} = codes of {}{}", words_of(s, step.target), words_of(s, operands[0].chunk),
                       operands.size() > 1 ? fmt::format(", scales by {}", words_of(s, operands[1].chunk))
                       : step.given        ? ", with the given scale"
                                           : "");
}
std::string decode_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} = {}", words_of(s, step.target),
                       words_of_operands(s, step, step.exact ? " + exactly " : " + "));
}

constexpr LineRule encode_lines[] = {{"encode", read_encode}};
constexpr LineRule decode_lines[] = {{"decode", read_decode}};
constexpr LineRule decode_add_lines[] = {{"decode_add", read_decode_add}};

}  // namespace

const Kind encode_kind{.name = "encode",
                       .meaning = "makes codes of few bits of values, and a scale of each block",
                       .sentence = encode_sentence,
                       .write = write_encode,
                       .prove = prove_encode,
                       .lines = encode_lines,
                       .types = Types::own};
const Kind decode_kind{.name = "decode",
                       .meaning = "makes values of codes again",
                       .sentence = decode_sentence,
                       .write = write_decode,
                       .prove = prove_decode,
                       .lines = decode_lines,
                       .types = Types::own};
const Kind decode_add_kind{.name = "decode_add",
                           .meaning = "adds up what the codes of all ranks stand for",
                           .sentence = decode_sentence,
                           .write = write_decode_add,
                           .prove = prove_decode_add,
                           .lines = decode_add_lines,
                           .types = Types::own};

}  // namespace tutti::schedule
