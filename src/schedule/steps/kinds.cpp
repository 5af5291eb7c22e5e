// The table of the kinds, and what several of them say alike.
#include "core/assert.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::schedule {
namespace {

// By StepKind.
const Kind* const all[] = {
    &copy_kind,       &combine_kind,      &convert_kind, &encode_kind, &decode_kind,  &decode_add_kind,
    &magnitudes_kind, &largest_kind,      &call_kind,    &send_kind,   &receive_kind, &receive_combine_kind,
    &meet_kind,       &get_kind,          &put_kind,     &signal_kind, &wait_kind,    &publish_kind,
    &read_kind,       &read_combine_kind, &release_kind, &settle_kind,
};
static_assert(std::size(all) == static_cast<std::size_t>(StepKind::settle) + 1);

// input, scratch, scratch.bfloat16
std::string name_of(const Schedule& s, Buffer buffer) {
    TUTTI_ASSERT(row(buffer) < s.buffers.size());
    static constexpr std::string_view names[] = {"input", "output", "scratch"};
    if (row(buffer) < std::size(names)) return std::string(names[row(buffer)]);
    TUTTI_ASSERT(s.of(buffer).codes || s.of(buffer).dtype);
    const BufferInfo& info = s.of(buffer);
    return fmt::format("scratch.{}", info.codes ? to_string(*info.codes) : std::string(to_string(info.dtype.value())));
}

}  // namespace

std::span<const Kind* const> kinds() noexcept {
    return all;
}
const Kind& kind_of(StepKind kind) noexcept {
    TUTTI_ASSERT(static_cast<std::size_t>(kind) < std::size(all));
    return *all[static_cast<std::size_t>(kind)];
}
std::string_view to_string(StepKind kind) noexcept {
    return kind_of(kind).name;
}

std::string_view meaning_of(StepKind kind) noexcept {
    return kind_of(kind).meaning;
}
std::string sentence_of(const Schedule& schedule, const Step& step) {
    return kind_of(step.kind).sentence(schedule, step);
}

std::uint64_t scratch_count(const Schedule& schedule) noexcept {
    std::uint64_t count = 0;
    for (const BufferInfo& buffer : schedule.buffers) count += buffer.count;
    return count;
}

Rank Reading::peer(Line& line) const {
    TUTTI_ASSERT(rank >= 0 && rank < ranks);
    const Rank found = line.rank(ranks);
    if (found == rank) line.fail(fmt::format("rank {} itself", found), "another rank");
    return found;
}

std::string words_of(const Schedule& s, const Chunk& c) {
    return c.count == 0 ? std::string("nothing") : fmt::format("{}[{}, +{}]", name_of(s, c.buffer), c.offset, c.count);
}

std::string words_of_operands(const Schedule& s, const Step& step, std::string_view between) {
    std::string words;
    for (const Operand& o : operands_of(s, step)) {
        if (&o != &operands_of(s, step).front()) words += between;
        words += o.peer < 0   ? words_of(s, o.chunk)
                 : s.in_place ? fmt::format("rank {}'s {}", o.peer, words_of(s, o.chunk))
                              : fmt::format("rank {}'s [{}, +{}]", o.peer, o.slot_offset, o.chunk.count);
    }
    return words;
}

std::string to_text(const Schedule& s, const Chunk& chunk) {
    return fmt::format("{}[{}:{}]", name_of(s, chunk.buffer), chunk.offset, chunk.offset + chunk.count);
}

}  // namespace tutti::schedule
