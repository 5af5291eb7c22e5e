// The magnitudes that scales are made of: magnitudes, largest.
//
// In a proof a magnitude stands for a stretch of elements, and for the contributions of some ranks to all of them.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::schedule {

void Builder::magnitudes(Chunk target, Chunk source, std::uint64_t block, bool joins) {
    TUTTI_ASSERT(block > 0 && target.count == (source.count + block - 1) / block);
    TUTTI_ASSERT(!joins || target.count == 1);
    if (target.count == 0) return;
    std::vector<Chunk> sources{source};
    if (joins) sources.push_back(target);
    Step& step = begin_local(StepKind::magnitudes, target, sources);
    step.block = block;
    step.joins = joins;
    end();
}

void Builder::largest(Chunk target, std::span<const Chunk> sources) {
    TUTTI_ASSERT(!sources.empty());
    TUTTI_ASSERT(std::ranges::all_of(sources, [&](const Chunk& source) { return source.count == target.count; }));
    if (target.count == 0) return;
    begin_local(StepKind::largest, target, sources);
    end();
}

std::uint64_t Symbol::scale_name() const {
    TUTTI_ASSERT(span > 0);
    std::uint64_t name = 0xcbf29ce484222325;  // FNV-1a
    const auto add = [&](std::uint64_t word) { name = (name ^ word) * 0x100000001b3; };
    add(index);
    add(span);
    for (const std::uint32_t rank : parts) add(rank);
    return std::max(name, given_scale + 1);
}

namespace {

constexpr const char* magnitude_name = "magnitudes";

void read_magnitudes(Line& line, Reading& r) {
    const Chunk target = line.chunk(), source = line.chunk();
    if (!line.flag("block")) line.fail("there is no length of a block", "block N");
    const std::uint64_t block = line.count("elements of a block");
    if (block == 0 || (source.count + block - 1) / block != target.count)
        line.fail(fmt::format("{} elements in blocks of {} for {} magnitudes", source.count, block, target.count),
                  "a chunk of as many elements as there are blocks");
    const bool joins = line.flag("joins");
    if (joins && target.count != 1) line.fail(fmt::format("{} blocks", target.count), "one block, which it joins");
    r.builder.magnitudes(target, source, block, joins);
}
void write_magnitudes(Writer& writer, const At& at) {
    writer.add(fmt::format("magnitudes {} {} block {}{}", to_text(at.schedule, at.step.target),
                           to_text(at.schedule, at.operands()[0].chunk), at.step.block, at.step.joins ? " joins" : ""));
}

bool is_magnitude(const Value& value) {
    return value && value->span > 0 && value->coded_by == magnitude_name;
}

// Of elements that follow each other, with the same contributions.
Value magnitude_of(Proof& proof, const At& at, std::span<const Value> block) {
    TUTTI_ASSERT(!block.empty());
    if (!block.front()) return std::nullopt;
    Symbol found{
        .parts = block.front()->parts, .index = block.front()->index, .coded_by = magnitude_name, .span = block.size()};
    for (std::size_t i = 0; i < block.size(); ++i) {
        if (block[i] && block[i]->parts == found.parts && block[i]->index == found.index + i) continue;
        proof.fault(at, "takes values for one block that do not follow each other");
        break;
    }
    return found;
}

bool prove_magnitudes(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.step.block > 0);
    const Chunk& source = at.operands()[0].chunk;
    const Type from = proof.type_of(at, source);
    if (proof.type_of(at, at.step.target) != Type{DType::float32} || from.codes || !from.dtype ||
        !is_encodable(*from.dtype)) {
        proof.fault(at, "expected magnitudes in float32 of float32, float16 or bfloat16");
        return true;
    }
    const Values values = proof.load(at, source);
    proof.refuse_codes(at, values);
    Values found;
    for (std::uint64_t begin = 0; begin < source.count; begin += at.step.block) {
        const std::uint64_t count = std::min(at.step.block, source.count - begin);
        found.push_back(magnitude_of(proof, at, std::span(values).subspan(begin, count)));
    }
    TUTTI_ASSERT(found.size() == at.step.target.count);
    if (at.step.joins && found[0]) {
        const Values before = proof.load(at, at.step.target);
        if (!is_magnitude(before[0]) || before[0]->parts != found[0]->parts ||
            before[0]->index + before[0]->span != found[0]->index) {
            proof.fault(at, "joins the magnitude of other elements: expected those just before");
        } else {
            found[0]->index = before[0]->index;
            found[0]->span += before[0]->span;
        }
    }
    proof.save(at, at.step.target, found);
    return true;
}

void read_largest(Line& line, Reading& r) {
    const Chunk target = line.chunk();
    const auto sources = line.chunks();
    if (sources.empty()) line.fail("there is nothing to compare", "chunks");
    for (const Chunk& source : sources) line.equal(target, source);
    r.builder.largest(target, sources);
}
void write_largest(Writer& writer, const At& at) {
    writer.add(fmt::format("largest {}{}", to_text(at.schedule, at.step.target), writer.operands(at)));
}
bool prove_largest(Proof& proof, const At& at) {
    TUTTI_ASSERT(!at.operands().empty());
    std::vector<Values> inputs;
    for (const Operand& operand : at.operands()) {
        if (proof.type_of(at, operand.chunk) != Type{DType::float32} ||
            proof.type_of(at, at.step.target) != Type{DType::float32}) {
            proof.fault(at, "expected magnitudes in float32");
            return true;
        }
        inputs.push_back(proof.load(at, operand.chunk));
    }
    Values result = inputs.front();
    for (std::size_t i = 0; i < result.size(); ++i) {
        for (const Values& values : inputs) {
            if (!is_magnitude(values[i]) || !result[i] || values[i]->index != result[i]->index ||
                values[i]->span != result[i]->span) {
                proof.fault(at, "compares magnitudes of different elements, or what is none");
                return true;
            }
            if (&values == &inputs.front()) continue;
            result[i]->parts.insert(result[i]->parts.end(), values[i]->parts.begin(), values[i]->parts.end());
        }
        if (result[i]) std::ranges::sort(result[i]->parts);
    }
    proof.save(at, at.step.target, result);
    return true;
}

std::string magnitudes_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} = the largest of each {} of {}{}", words_of(s, step.target), step.block,
                       words_of(s, operands_of(s, step)[0].chunk), step.joins ? ", or what it is" : "");
}
std::string largest_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} = {}", words_of(s, step.target), words_of_operands(s, step, " or "));
}

constexpr LineRule magnitudes_lines[] = {{"magnitudes", read_magnitudes}};
constexpr LineRule largest_lines[] = {{"largest", read_largest}};

}  // namespace

const Kind magnitudes_kind{.name = "magnitudes",
                           .meaning = "finds the largest magnitude of each block",
                           .sentence = magnitudes_sentence,
                           .write = write_magnitudes,
                           .prove = prove_magnitudes,
                           .lines = magnitudes_lines,
                           .types = Types::own};
const Kind largest_kind{.name = "largest",
                        .meaning = "takes the largest of the magnitudes that several ranks have found",
                        .sentence = largest_sentence,
                        .write = write_largest,
                        .prove = prove_largest,
                        .lines = largest_lines,
                        .types = Types::own};

}  // namespace tutti::schedule
