// Steps of a schedule in place that reach into another rank's buffers, without that rank's help: get, put. They wait
// for nothing, so signal and wait (signal.cpp) have to say when the other rank's elements are there, or free.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <string>

namespace tutti::schedule {

void Builder::get(Rank peer, Chunk target, Chunk source) {
    TUTTI_ASSERT(peer >= 0);
    TUTTI_ASSERT(target.count == source.count);
    if (target.count == 0) return;
    Step& step = begin(StepKind::get);
    step.peer = peer;
    step.target = target;
    schedule_.operands.push_back({.peer = peer, .chunk = source});
    writes(target);
    end();
}

void Builder::put(Rank peer, Chunk target, Chunk source) {
    TUTTI_ASSERT(peer >= 0);
    TUTTI_ASSERT(target.count == source.count);
    if (target.count == 0) return;
    Step& step = begin(StepKind::put);
    step.peer = peer;
    step.target = target;
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    end();
}

namespace {

void read_get(Line& line, Reading& r) {
    const Rank from = r.peer(line);
    const Chunk target = line.chunk(), source = line.chunk_of_peer();
    line.equal(target, source);
    r.builder.get(from, target, source);
}
void write_get(Writer& writer, const At& at) {
    const Step& step = at.step;
    writer.add(fmt::format("get {} {} {}", step.peer, to_text(at.schedule, step.target),
                           to_text(at.schedule, at.operands()[0].chunk)));
}
bool prove_get(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.operands().size() == 1);
    if (proof.reaches(at, at.step.peer)) proof.save(at, at.step.target, *proof.values_of(at, at.operands()[0]));
    return true;
}
std::string get_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} = rank {}'s {}", words_of(s, step.target), step.peer,
                       words_of(s, operands_of(s, step)[0].chunk));
}
constexpr LineRule get_lines[] = {{"get", read_get}};

void read_put(Line& line, Reading& r) {
    const Rank to = r.peer(line);
    const Chunk target = line.chunk_of_peer(), source = line.chunk();
    line.equal(target, source);
    r.builder.put(to, target, source);
}
void write_put(Writer& writer, const At& at) {
    writer.add(fmt::format("put {} {}{}", at.step.peer, to_text(at.schedule, at.step.target), writer.operands(at)));
}
bool prove_put(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.operands().size() == 1);
    if (proof.reaches(at, at.step.peer))
        proof.save(at, at.step.peer, at.step.target, proof.load(at, at.operands()[0].chunk));
    return true;
}
std::string put_sentence(const Schedule& s, const Step& step) {
    return fmt::format("rank {}'s {} = {}", step.peer, words_of(s, step.target), words_of_operands(s, step));
}
constexpr LineRule put_lines[] = {{"put", read_put}};

}  // namespace

const Kind get_kind{.name = "get",
                    .meaning = "copies out of another rank's buffers, without its help",
                    .sentence = get_sentence,
                    .write = write_get,
                    .prove = prove_get,
                    .lines = get_lines};
const Kind put_kind{.name = "put",
                    .meaning = "copies into another rank's buffers, without its help",
                    .sentence = put_sentence,
                    .write = write_put,
                    .prove = prove_put,
                    .lines = put_lines};

}  // namespace tutti::schedule
