// Steps of a schedule in place that order two ranks: signal, wait. A rank's signals are numbered from 1 on; number k is
// the release of round k, since `meet` has round 0.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace tutti::schedule {

std::uint32_t Builder::signal() {
    TUTTI_ASSERT(last_signal_ <= last_step());
    const std::uint32_t number = next_round_;
    begin(StepKind::signal).round = number;
    use_rounds(1);
    dependencies_.waits_for_all(std::max<std::int64_t>(last_signal_, 0));  // which has waited for all before
    end();
    last_signal_ = last_step();
    TUTTI_ASSERT(next_round_ == number + 1);
    return number;
}

void Builder::wait(Rank peer, std::uint32_t value) {
    TUTTI_ASSERT(peer >= 0);
    Step& step = begin(StepKind::wait);
    step.peer = peer;
    step.round = value;
    end();
    last_wait_ = last_step();
}

namespace {

void read_signal(Line& /*line*/, Reading& r) {
    r.builder.signal();
}
void write_signal(Writer& writer, const At& at) {
    writer.use_rounds(at.step.round);
    writer.count_round();
    writer.add("signal");
}
bool prove_signal(Proof& proof, const At& at) {
    Proof::State& state = proof.state(at.rank);
    if (!state.met) proof.fault(at, "comes before meet: expected meet as the first step");
    if (at.step.round <= state.released) proof.fault(at, "signals a number that is not higher than the one before");
    state.released = at.step.round;
    return true;
}
std::string signal_sentence(const Schedule& /*s*/, const Step& step) {
    return fmt::format("signal {}: all steps before it are done", step.round);
}
constexpr LineRule signal_lines[] = {{"signal", read_signal}};

void read_wait(Line& line, Reading& r) {
    const Rank peer = r.peer(line);
    r.builder.wait(peer, static_cast<std::uint32_t>(line.number(1U << 20U, "signal")));
}
void write_wait(Writer& writer, const At& at) {
    writer.add(fmt::format("wait {} {}", at.step.peer, at.step.round));
}
bool prove_wait(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.step.peer >= 0 && at.step.peer < proof.size());
    const Rank peer = at.step.peer;
    if (!proof.reaches(at, peer)) return true;
    const auto& theirs = proof.schedule(peer).steps;
    const auto signals = std::ranges::count(theirs, StepKind::signal, &Step::kind);
    const bool comes = std::ranges::any_of(
        theirs, [&](const Step& step) { return step.kind == StepKind::signal && step.round == at.step.round; });
    if (!comes)
        proof.fault(at,
                    fmt::format("waits for signal {} of rank {}, which never comes: rank {} has {} of them, and the "
                                "first is number 1",
                                at.step.round, peer, peer, signals));
    return proof.state(peer).released >= at.step.round;
}
std::string wait_sentence(const Schedule& /*s*/, const Step& step) {
    return fmt::format("waits for signal {} of rank {}", step.round, step.peer);
}
constexpr LineRule wait_lines[] = {{"wait", read_wait}};

}  // namespace

const Kind signal_kind{.name = "signal",
                       .meaning = "says to all ranks of the host that everything before it is done",
                       .sentence = signal_sentence,
                       .write = write_signal,
                       .prove = prove_signal,
                       .lines = signal_lines};
const Kind wait_kind{.name = "wait",
                     .meaning = "waits until another rank has given the signal of that number",
                     .sentence = wait_sentence,
                     .write = write_wait,
                     .prove = prove_wait,
                     .lines = wait_lines};

}  // namespace tutti::schedule
