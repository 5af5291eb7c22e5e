// Values in another type: convert.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tutti::schedule {

void Builder::convert(Chunk target, Chunk source) {
    TUTTI_ASSERT(target.count == source.count);
    if (target.count == 0) return;
    begin(StepKind::convert).target = target;
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    writes(target);
    end();
}

namespace {

void read_convert(Line& line, Reading& r) {
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    r.builder.convert(target, source);
}

void write_convert(Writer& writer, const At& at) {
    writer.add(fmt::format("convert {}{}", to_text(at.schedule, at.step.target), writer.operands(at)));
}

// float32 holds all values of the other types but float64's.
bool rounds(DType to, DType from) {
    return to != DType::float64 && (to != DType::float32 || from == DType::float64);
}

bool prove_convert(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.operands().size() == 1);
    const Chunk& source = at.operands()[0].chunk;
    const Type to = proof.type_of(at, at.step.target), from = proof.type_of(at, source);
    if (!to.dtype || !from.dtype || !is_convertible(*to.dtype, *from.dtype)) {
        proof.fault(at, fmt::format("makes {} of {}: expected floating-point types, one of them float32", to_string(to),
                                    to_string(from)));
        return true;
    }
    Values values = proof.load(at, source);
    proof.refuse_codes(at, values);
    for (Value& value : values) {
        if (!value || !rounds(*to.dtype, *from.dtype)) continue;
        ++value->combinations;
        // To the type of the call every result is rounded; to any other one it loses more.
        if (to != Type{proof.contract().dtype})
            value->roundings.push_back(
                {0, static_cast<std::uint32_t>(value->parts.size()), std::string(to_string(*to.dtype))});
    }
    proof.save(at, at.step.target, values);
    return true;
}

std::string convert_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} = {}", words_of(s, step.target), words_of_operands(s, step));
}

constexpr LineRule convert_lines[] = {{"convert", read_convert}};

}  // namespace

const Kind convert_kind{.name = "convert",
                        .meaning = "copies into a buffer of another type",
                        .sentence = convert_sentence,
                        .write = write_convert,
                        .prove = prove_convert,
                        .lines = convert_lines,
                        .types = Types::own};

}  // namespace tutti::schedule
