// Steps of a rank with its own part of the staging area: publish, release.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"
#include "schedule/steps/proof.hpp"
#include "schedule/steps/writer.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace tutti::schedule {

void Builder::publish(std::uint32_t round, std::span<const Chunk> sources) {
    begin(StepKind::publish).round = round;
    for (const Chunk& source : sources) {
        if (source.count == 0) continue;
        schedule_.operands.push_back({.chunk = source});
        reads(source);
    }
    end();
}

void Builder::publish_signal(std::uint32_t round) {
    begin(StepKind::publish).round = round;
    dependencies_.waits_for_all();
    end();
}

void Builder::release(std::uint32_t round) {
    begin(StepKind::release).round = round;
    end();
}

namespace {

void read_publish(Line& line, Reading& r) {
    const std::uint32_t round = line.round();
    r.builder.publish(round, line.chunks());
}
void read_publish_signal(Line& line, Reading& r) {
    r.builder.publish_signal(line.round());
}
void write_publish(Writer& writer, const At& at) {
    const bool waits_for_all = at.step.after_count == at.index;
    if (at.operands().empty() && at.index > 0 && waits_for_all)
        return writer.add(fmt::format("publish_signal {}", at.step.round));
    writer.add(fmt::format("publish {}{}", at.step.round, writer.operands(at)));
}
bool prove_publish(Proof& proof, const At& at) {
    TUTTI_ASSERT(proof.contract().slots > 0);
    const Contract& contract = proof.contract();
    Proof::State& state = proof.state(at.rank);
    const std::uint32_t round = at.step.round;
    if (round >= contract.slots && !proof.released_by_others(at.rank, round - contract.slots + 1)) return false;
    if (round >= contract.slots && state.released < round - contract.slots + 1)
        proof.fault(at, "publishes into a slot that it may still have to read");
    if (round >= at.schedule.publications) proof.fault(at, "publishes a round beyond the schedule's");
    if (at.schedule.in_place) proof.fault(at, "publishes, in place");
    Values values;
    for (const Operand& operand : at.operands()) {
        const Values part = proof.load(at, operand.chunk);
        values.insert(values.end(), part.begin(), part.end());
    }
    if (values.size() > contract.slot_elements && !at.schedule.in_slots)
        proof.fault(at, "publishes more than a slot holds");
    if (at.schedule.in_slots && (round > 0 || state.publications.contains(0)))
        proof.fault(at, "publishes more than once, in slots");
    // The former contents of this slot are gone now.
    std::erase_if(state.publications,
                  [&](const auto& entry) { return entry.first % contract.slots == round % contract.slots; });
    state.publications[round] = std::move(values);
    TUTTI_ASSERT(state.publications.size() <= contract.slots);
    return true;
}
std::string publish_sentence(const Schedule& s, const Step& step) {
    const std::string shown = words_of_operands(s, step, " + ");
    return fmt::format("round {}: {}", step.round, shown.empty() ? "a sign that it is here" : shown);
}
constexpr LineRule publish_lines[] = {{"publish", read_publish}, {"publish_signal", read_publish_signal}};

void read_release(Line& line, Reading& r) {
    r.builder.release(line.round());
}
void write_release(Writer& writer, const At& at) {
    writer.add(fmt::format("release {}", at.step.round));
}
bool prove_release(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.operands().empty());
    std::uint32_t& released = proof.state(at.rank).released;
    if (at.step.round < released) proof.fault(at, "releases backwards");
    released = at.step.round;
    return true;
}
std::string release_sentence(const Schedule& /*s*/, const Step& step) {
    return fmt::format("reads nothing of the rounds before {} any more", step.round);
}
constexpr LineRule release_lines[] = {{"release", read_release}};

}  // namespace

const Kind publish_kind{.name = "publish",
                        .meaning = "shows values to the other ranks of the host, as the round of that number",
                        .sentence = publish_sentence,
                        .write = write_publish,
                        .prove = prove_publish,
                        .lines = publish_lines};
const Kind release_kind{.name = "release",
                        .meaning = "gives back the memory in which other ranks showed earlier rounds",
                        .sentence = release_sentence,
                        .write = write_release,
                        .prove = prove_release,
                        .lines = release_lines};

}  // namespace tutti::schedule
