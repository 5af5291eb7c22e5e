// Steps that take other ranks' values from the staging area: read, read_combine. In place read_combine takes them from
// the ranks' buffers.
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
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::schedule {

void Builder::read(Rank peer, std::uint32_t round, std::uint64_t slot_offset, Chunk target) {
    TUTTI_ASSERT(peer >= 0);
    Step& step = begin(StepKind::read);
    step.peer = peer;
    step.round = round;
    step.slot_offset = slot_offset;
    step.target = target;
    writes(target);
    end();
}

// The values of other ranks lie in their memory; only the own ones are read from a buffer of this schedule.
void Builder::combines(std::span<const Operand> operands) {
    TUTTI_ASSERT(!operands.empty());
    for (const Operand& operand : operands) {
        schedule_.operands.push_back(operand);
        if (operand.peer < 0) reads(operand.chunk);
    }
}

void Builder::read_combine(std::uint32_t round, Chunk target, std::span<const Operand> operands, bool finish) {
    TUTTI_ASSERT(std::ranges::all_of(operands, [&](const Operand& one) { return one.chunk.count == target.count; }));
    Step& step = begin(StepKind::read_combine);
    step.round = round;
    step.target = target;
    step.finish = finish;
    combines(operands);
    writes(target);
    end();
}

void Builder::combine_in_place(Rank owner, Chunk target, std::span<const Operand> operands, bool everywhere,
                               bool finish) {
    TUTTI_ASSERT(owner >= -1);
    TUTTI_ASSERT(std::ranges::all_of(operands, [&](const Operand& one) { return one.chunk.count == target.count; }));
    if (target.count == 0) return;
    Step& step = begin(StepKind::read_combine);
    step.peer = owner;
    step.target = target;
    step.everywhere = everywhere;
    step.finish = finish;
    combines(operands);
    if (owner < 0) writes(target);
    end();
}

namespace {

void read_read(Line& line, Reading& r) {
    const Rank from = r.peer(line);
    const std::uint32_t round = line.round();
    const std::uint64_t offset = line.count("element");
    r.builder.read(from, round, offset, line.chunk());
}
void write_read(Writer& writer, const At& at) {
    const Step& step = at.step;
    writer.add(
        fmt::format("read {} {} {} {}", step.peer, step.round, step.slot_offset, to_text(at.schedule, step.target)));
}
bool prove_read(Proof& proof, const At& at) {
    const Step& step = at.step;
    if (at.schedule.in_place) proof.fault(at, "reads a publication, in place: expected get");
    const Values* const published = proof.publication(at, step.peer);
    if (published == nullptr) return false;
    if (step.target.count > 0)
        proof.save(at, step.target, proof.fetch(at, *published, step.slot_offset, step.target.count));
    return true;
}
std::string read_sentence(const Schedule& s, const Step& step) {
    return fmt::format("round {}: {} = rank {}'s [{}, +{}]", step.round, words_of(s, step.target), step.peer,
                       step.slot_offset, step.target.count);
}
constexpr LineRule read_lines[] = {{"read", read_read}};

void read_read_combine(Line& line, Reading& r) {
    const std::uint32_t round = line.round();
    const Chunk target = line.chunk();
    const auto operands = line.operands(target, r.ranks);
    r.builder.read_combine(round, target, operands, line.flag("finish"));
}
void read_combine_in_place(Line& line, Reading& r) {
    const Rank owner = line.flag("-1") ? -1 : line.rank(r.ranks);
    const Chunk target = line.chunk();
    const auto operands = line.operands(target, r.ranks);
    const bool everywhere = line.flag("everywhere");
    r.builder.combine_in_place(owner, target, operands, everywhere, line.flag("finish"));
}
void write_read_combine(Writer& writer, const At& at) {
    const Step& step = at.step;
    const std::string target = to_text(at.schedule, step.target), others = writer.operands(at);
    const std::string_view finish = step.finish ? " finish" : "";
    if (!at.schedule.in_place)
        return writer.add(fmt::format("read_combine {} {}{}{}", step.round, target, others, finish));
    writer.add(fmt::format("combine_in_place {} {}{}{}{}", step.peer, target, others,
                           step.everywhere ? " everywhere" : "", finish));
}
// Others' buffers are combined where all ranks map them.
bool reaches_all(Proof& proof, const At& at) {
    TUTTI_ASSERT(at.schedule.in_place);
    const Step& step = at.step;
    bool reached = step.peer < 0 || proof.reaches(at, step.peer);
    bool alone = step.peer < 0 && !step.everywhere;
    for (const Operand& operand : at.operands()) {
        if (operand.peer < 0) continue;
        alone = false;
        reached = reached && proof.reaches(at, operand.peer);
    }
    for (Rank peer = 0; step.everywhere && reached && peer < proof.size(); ++peer)
        reached = peer == at.rank || proof.reaches(at, peer);
    if (!alone && !at.schedule.maps)
        proof.fault(at, "combines other ranks' buffers: expected meet maps, or get and combine");
    return reached;
}
bool prove_read_combine(Proof& proof, const At& at) {
    TUTTI_ASSERT(!at.operands().empty());
    const Step& step = at.step;
    if (at.schedule.in_place && !reaches_all(proof, at)) return true;
    std::vector<Values> inputs;
    for (const Operand& operand : at.operands()) {
        auto values = proof.values_of(at, operand);
        if (!values) return false;
        inputs.push_back(std::move(*values));
    }
    const Values result = proof.combined(at, inputs);
    if (step.target.count == 0) return true;
    proof.save(at, step.peer < 0 ? at.rank : step.peer, step.target, result);
    for (Rank peer = 0; step.everywhere && peer < proof.size(); ++peer) {
        if (peer != at.rank) proof.save(at, peer, step.target, result);
    }
    return true;
}
std::string read_combine_sentence(const Schedule& s, const Step& step) {
    const std::string round = s.in_place ? std::string() : fmt::format("round {}: ", step.round);
    const std::string owner = step.peer < 0 ? std::string() : fmt::format("rank {}'s ", step.peer);
    return fmt::format("{}{}{} = {}{}", round, owner, words_of(s, step.target), words_of_operands(s, step),
                       step.everywhere ? ", on all ranks" : "");
}
constexpr LineRule read_combine_lines[] = {{"read_combine", read_read_combine},
                                           {"combine_in_place", read_combine_in_place}};

}  // namespace

const Kind read_kind{.name = "read",
                     .meaning = "copies what another rank shows in a round",
                     .sentence = read_sentence,
                     .write = write_read,
                     .prove = prove_read,
                     .lines = read_lines};
const Kind read_combine_kind{.name = "read_combine",
                             .meaning = "combines what other ranks show in a round, or, in place, their buffers",
                             .sentence = read_combine_sentence,
                             .write = write_read_combine,
                             .prove = prove_read_combine,
                             .lines = read_combine_lines};

}  // namespace tutti::schedule
