// The beginning and the end of a schedule in place: meet, settle. Between them stand the steps of one_sided.cpp and
// signal.cpp, and read_combine (read.cpp).
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace tutti::schedule {

void Builder::meet(std::span<const Chunk> open, bool maps) {
    schedule_.in_place = true;
    schedule_.maps = maps;
    begin(StepKind::meet).round = next_round_;
    use_rounds(1);
    for (const Chunk& chunk : open) {
        if (chunk.count == 0) continue;
        uses(chunk);
        schedule_.operands.push_back({.chunk = chunk});
    }
    end();
}

namespace {

void read_meet(Line& line, Reading& r) {
    const bool maps = line.flag("maps");
    r.builder.meet(line.chunks(), maps);
}
void write_meet(Writer& writer, const At& at) {
    writer.use_rounds(at.step.round);
    writer.count_round();
    writer.add(fmt::format("meet{}{}", at.schedule.maps ? " maps" : "", writer.operands(at)));
}
bool prove_meet(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.schedule.in_place);
    Proof::State& state = proof.state(at.rank);
    if (!std::exchange(state.met, true)) {
        if (at.step.round != 0) proof.fault(at, "meets in another round than 0");
        for (std::size_t i = 0; i < at.schedule.steps.size(); ++i) {
            const Step& other = at.schedule.steps[i];
            if (i != at.index && other.kind == StepKind::meet) proof.fault(at.rank, i, "meets more than once");
            if (i < at.index && other.target.count > 0 && row(other.target.buffer) <= row(Buffer::output))
                proof.fault(at.rank, i, "writes the output before meet: expected meet as the first step");
        }
        for (const Operand& operand : at.operands()) {
            const Chunk& open = operand.chunk;
            if (row(open.buffer) > row(Buffer::output))
                proof.fault(at, "opens a scratch buffer: expected chunks of the input and the output");
            else if (open.offset + open.count > state.buffers[row(open.buffer)].size())
                proof.fault(at, "opens what lies outside of a buffer");
        }
    }
    for (Rank peer = 0; peer < proof.size(); ++peer) {
        if (proof.host(peer) == proof.host(at.rank) && !proof.state(peer).met) return false;
    }
    return true;
}
std::string meet_sentence(const Schedule& s, const Step& step) {
    const std::string open = words_of_operands(s, step, " + ");
    return fmt::format("waits for all; others may touch {}", open.empty() ? "nothing" : open);
}
constexpr LineRule meet_lines[] = {{"meet", read_meet}};

// The Builder's finish() adds it, and no text has it.
void write_settle(Writer& /*writer*/, const At& /*at*/) {}
bool prove_settle(Proof& proof, const At& at) {
    return proof.released_by_others(at.rank, at.step.round);
}
std::string settle_sentence(const Schedule& /*s*/, const Step& step) {
    return fmt::format("waits until all ranks of the host have released the rounds before {}", step.round);
}

}  // namespace

const Kind meet_kind{.name = "meet",
                     .meaning = "says where its buffers lie, and waits until all ranks of the host have",
                     .sentence = meet_sentence,
                     .write = write_meet,
                     .prove = prove_meet,
                     .lines = meet_lines};
const Kind settle_kind{.name = "settle",
                       .meaning = "waits until the others have read everything, so that the buffers are free again",
                       .sentence = settle_sentence,
                       .write = write_settle,
                       .prove = prove_settle,
                       .lines = {}};

}  // namespace tutti::schedule
