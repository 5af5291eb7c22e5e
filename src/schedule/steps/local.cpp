// Steps inside one rank: copy, combine.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

void Builder::copy(Chunk target, Chunk source, std::uint64_t whole) {
    TUTTI_ASSERT(target.count == source.count);
    TUTTI_ASSERT(whole == 0 || whole >= target.count);
    if (target.count == 0 || target == source) return;
    Step& step = begin(StepKind::copy);
    step.target = target;
    step.whole = std::max(whole, target.count);
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    writes(target);
    end();
}

void Builder::combine(Chunk target, std::span<const Chunk> sources, bool finish) {
    TUTTI_ASSERT(!sources.empty());
    TUTTI_ASSERT(std::ranges::all_of(sources, [&](const Chunk& source) { return source.count == target.count; }));
    if (target.count == 0) return;
    Step& step = begin(StepKind::combine);
    step.target = target;
    step.finish = finish;
    for (const Chunk& source : sources) {
        schedule_.operands.push_back({.chunk = source});
        reads(source);
    }
    writes(target);
    end();
}

namespace {

void read_copy(Line& line, Reading& r) {
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    r.builder.copy(target, source, line.flag("whole") ? line.count() : 0);
}
void write_copy(Writer& writer, const At& at) {
    const Step& step = at.step;
    const std::string whole = step.whole > step.target.count ? fmt::format(" whole {}", step.whole) : "";
    writer.add(fmt::format("copy {}{}{}", to_text(at.schedule, step.target), writer.operands(at), whole));
}
bool prove_copy(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.operands().size() == 1);
    proof.save(at, at.step.target, proof.load(at, at.operands()[0].chunk));
    return true;
}
constexpr LineRule copy_lines[] = {{"copy", read_copy}};

void read_combine(Line& line, Reading& r) {
    const Chunk target = line.chunk();
    const auto sources = line.chunks();
    if (sources.empty()) line.fail("there is nothing to combine", "chunks");
    for (const Chunk& source : sources) line.equal(target, source);
    r.builder.combine(target, sources, line.flag("finish"));
}
void write_combine(Writer& writer, const At& at) {
    const std::string_view finish = at.step.finish ? " finish" : "";
    writer.add(fmt::format("combine {}{}{}", to_text(at.schedule, at.step.target), writer.operands(at), finish));
}
bool prove_combine(Proof& proof, const At& at) {
    TUTTI_ASSERT(!at.operands().empty());
    std::vector<Values> inputs;
    for (const Operand& operand : at.operands()) inputs.push_back(proof.load(at, operand.chunk));
    proof.save(at, at.step.target, proof.combined(at, inputs));
    return true;
}
constexpr LineRule combine_lines[] = {{"combine", read_combine}};

std::string assignment(const Schedule& s, const Step& step) {
    return fmt::format("{} = {}", words_of(s, step.target), words_of_operands(s, step));
}

}  // namespace

const Kind copy_kind{.name = "copy",
                     .meaning = "copies from one of the rank's buffers to another",
                     .sentence = assignment,
                     .write = write_copy,
                     .prove = prove_copy,
                     .lines = copy_lines,
                     .types = Types::alike};
const Kind combine_kind{.name = "combine",
                        .meaning = "combines values of the rank's own buffers",
                        .sentence = assignment,
                        .write = write_combine,
                        .prove = prove_combine,
                        .lines = combine_lines,
                        .types = Types::alike};

}  // namespace tutti::schedule
