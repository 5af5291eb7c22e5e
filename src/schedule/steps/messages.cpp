// Steps that are one side of a message: send, receive, receive_combine. A message of no elements is a signal.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

void Builder::send(Rank peer, Chunk source, std::span<const std::int64_t> after) {
    TUTTI_ASSERT(peer >= 0);
    if (source.count > 0) {
        TUTTI_ASSERT(std::ranges::all_of(after, [&](std::int64_t step) { return step <= last_step(); }));
        begin(StepKind::send).peer = peer;
        schedule_.operands.push_back({.chunk = source});
        for (const std::int64_t step : after) dependencies_.waits_for(step);
        reads(source);
        end();
    }
}

void Builder::receive(Rank peer, Chunk target) {
    TUTTI_ASSERT(peer >= 0);
    if (target.count == 0) return;
    Step& step = begin(StepKind::receive);
    step.peer = peer;
    step.target = target;
    writes(target);
    end();
}

// A signal follows everything before it: its sender says that it has come this far.
void Builder::send_signal(Rank peer) {
    TUTTI_ASSERT(peer >= 0);
    begin(StepKind::send).peer = peer;
    schedule_.operands.push_back({});
    dependencies_.waits_for_all();
    end();
}

void Builder::receive_signal(Rank peer) {
    TUTTI_ASSERT(peer >= 0);
    begin(StepKind::receive).peer = peer;
    end();
}

void Builder::receive_combine(Rank peer, Chunk target, Chunk source, bool arrival_first, bool finish) {
    TUTTI_ASSERT(peer >= 0);
    TUTTI_ASSERT(target.count == source.count);
    if (target.count == 0) return;
    Step& step = begin(StepKind::receive_combine);
    step.peer = peer;
    step.target = target;
    step.arrival_first = arrival_first;
    step.finish = finish;
    schedule_.operands.push_back({.chunk = source});
    reads(source);
    writes(target);
    end();
}

namespace {

void read_send(Line& line, Reading& r) {
    const Rank to = r.peer(line);
    const Chunk source = line.chunk();
    std::vector<std::int64_t> after;
    if (line.flag("after")) {
        while (line.more()) after.push_back(static_cast<std::int64_t>(line.count("number of a step")));
    }
    for (const std::int64_t step : after) {
        if (step > r.builder.last_step()) line.fail(fmt::format("step {} comes later", step), "an earlier step");
    }
    r.builder.send(to, source, after);
}
void read_send_signal(Line& line, Reading& r) {
    r.builder.send_signal(r.peer(line));
}
void write_send(Writer& writer, const At& at) {
    if (at.operands()[0].chunk.count == 0) return writer.add(fmt::format("send_signal {}", at.step.peer));
    const auto after = writer.edges(at.index);
    writer.add(fmt::format("send {}{}{}{}", at.step.peer, writer.operands(at), after.empty() ? "" : " after ",
                           fmt::join(after, " ")));
}

// The receive is ready: what it does with the values.
void deliver(Proof& proof, const At& receive, const Values& values) {
    TUTTI_ASSERT(receives(receive.step.kind));
    TUTTI_ASSERT(values.size() == receive.step.target.count);
    const Step& step = receive.step;
    if (step.kind == StepKind::receive) return proof.save(receive, step.target, values);
    const Values own = proof.load(receive, receive.operands()[0].chunk);
    const auto inputs = step.arrival_first ? std::vector{values, own} : std::vector{own, values};
    proof.save(receive, step.target, proof.combined(receive, inputs));
}

// The sender moves the pair.
bool prove_send(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.step.peer >= 0 && at.step.peer < proof.size());
    const Rank peer = at.step.peer;
    auto& [sends, next_send] = proof.state(at.rank).sends[peer];
    TUTTI_ASSERT(next_send < sends.size());
    if (sends[next_send] != at.index) return false;
    if (peer == proof.withheld()) {  // a rank that has not entered yet may still find messages waiting
        ++next_send;
        return true;
    }
    auto& [receives, next_receive] = proof.state(peer).receives[at.rank];
    if (next_receive >= receives.size()) return false;
    const At receive = proof.at(peer, receives[next_receive]);
    if (!proof.ready(peer, receive.index)) return false;
    const Chunk& source = at.operands()[0].chunk;
    if (source.count != receive.step.target.count) {
        proof.fault(at, fmt::format("sends {} elements to rank {}, which expects {}", source.count, peer,
                                    receive.step.target.count));
    } else if (const auto mine = proof.type_of(at, source), theirs = proof.type_of(receive, receive.step.target);
               source.count > 0 && mine != theirs) {
        proof.fault(at, fmt::format("sends {} to rank {}, which expects {}", to_string(mine), peer, to_string(theirs)));
    } else if (source.count > 0) {
        deliver(proof, receive, proof.load(at, source));
    }
    TUTTI_ASSERT(!proof.state(peer).done[receive.index]);
    ++next_send;
    ++next_receive;
    proof.state(peer).done[receive.index] = true;
    return true;
}
bool prove_receive(Proof& /*proof*/, const At& /*at*/) {
    return false;  // its sender does
}
constexpr LineRule send_lines[] = {{"send", read_send}, {"send_signal", read_send_signal}};

void read_receive(Line& line, Reading& r) {
    const Rank from = r.peer(line);
    r.builder.receive(from, line.chunk());
}
void read_receive_signal(Line& line, Reading& r) {
    r.builder.receive_signal(r.peer(line));
}
void write_receive(Writer& writer, const At& at) {
    if (at.step.target.count == 0) return writer.add(fmt::format("receive_signal {}", at.step.peer));
    writer.add(fmt::format("receive {} {}", at.step.peer, to_text(at.schedule, at.step.target)));
}
constexpr LineRule receive_lines[] = {{"receive", read_receive}, {"receive_signal", read_receive_signal}};

void read_receive_combine(Line& line, Reading& r) {
    const Rank from = r.peer(line);
    const Chunk target = line.chunk(), source = line.chunk();
    line.equal(target, source);
    const bool arrival_first = line.flag("arrival_first");
    r.builder.receive_combine(from, target, source, arrival_first, line.flag("finish"));
}
void write_receive_combine(Writer& writer, const At& at) {
    const Step& step = at.step;
    writer.add(fmt::format("receive_combine {} {}{}{}{}", step.peer, to_text(at.schedule, step.target),
                           writer.operands(at), step.arrival_first ? " arrival_first" : "",
                           step.finish ? " finish" : ""));
}
constexpr LineRule receive_combine_lines[] = {{"receive_combine", read_receive_combine}};

std::string send_sentence(const Schedule& s, const Step& step) {
    return fmt::format("{} → rank {}", words_of_operands(s, step), step.peer);
}
std::string receive_sentence(const Schedule& s, const Step& step) {
    return fmt::format("rank {} → {}", step.peer, words_of(s, step.target));
}
std::string receive_combine_sentence(const Schedule& s, const Step& step) {
    const std::string own = words_of_operands(s, step);
    return fmt::format("{} = {}", words_of(s, step.target),
                       step.arrival_first ? fmt::format("rank {}'s op {}", step.peer, own)
                                          : fmt::format("{} op rank {}'s", own, step.peer));
}

}  // namespace

const Kind send_kind{.name = "send",
                     .meaning = "sends a message",
                     .sentence = send_sentence,
                     .write = write_send,
                     .prove = prove_send,
                     .lines = send_lines,
                     .types = Types::alike};
const Kind receive_kind{.name = "receive",
                        .meaning = "takes a message",
                        .sentence = receive_sentence,
                        .write = write_receive,
                        .prove = prove_receive,
                        .lines = receive_lines,
                        .types = Types::alike};
const Kind receive_combine_kind{.name = "receive_combine",
                                .meaning = "takes a message and combines its values with the rank's own",
                                .sentence = receive_combine_sentence,
                                .write = write_receive_combine,
                                .prove = prove_receive,
                                .lines = receive_combine_lines,
                                .types = Types::alike};

}  // namespace tutti::schedule
