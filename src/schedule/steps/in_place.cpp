// Steps that only schedules in place have: meet, write, settle. Their reads are in read.cpp.
#include "schedule/steps/kind.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <span>
#include <string>

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

void Builder::write_in_place(Rank peer, Chunk target, Chunk source) {
    if (target.count == 0) return;
    Step& step = begin(StepKind::write);
    step.peer = peer;
    step.target = target;
    schedule_.operands.push_back({.chunk = source});
    reads(source);
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
    proof.state(at.rank).met = true;
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

void read_write(Line& line, Reading& r) {
    const Rank to = r.peer(line);
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    r.builder.write_in_place(to, target, source);
}
void write_write(Writer& writer, const At& at) {
    writer.add(
        fmt::format("write_in_place {} {}{}", at.step.peer, to_text(at.schedule, at.step.target), writer.operands(at)));
}
bool prove_write(Proof& proof, const At& at) {
    proof.save(at, at.step.peer, at.step.target, proof.load(at, at.operands()[0].chunk));
    return true;
}
std::string write_sentence(const Schedule& s, const Step& step) {
    return fmt::format("rank {}'s {} = {}", step.peer, words_of(s, step.target), words_of_operands(s, step));
}
constexpr LineRule write_lines[] = {{"write_in_place", read_write}};

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
const Kind write_kind{.name = "write",
                      .meaning = "copies into another rank's buffers",
                      .sentence = write_sentence,
                      .write = write_write,
                      .prove = prove_write,
                      .lines = write_lines};
const Kind settle_kind{.name = "settle",
                       .meaning = "waits until the others have read everything, so that the buffers are free again",
                       .sentence = settle_sentence,
                       .write = write_settle,
                       .prove = prove_settle,
                       .lines = {}};

}  // namespace tutti::schedule
