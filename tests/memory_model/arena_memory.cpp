#include "arena_memory.hpp"

#include "core/membarrier.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <thread>

namespace tutti::memory_model {

using transport::Arena;
using transport::ArenaLayout;
using transport::MessageSlot;
using transport::RankControl;
using transport::RingControl;

namespace {

// What lies at a place of a rank's control block, whichever of several alike.
std::string field_of_control(std::size_t offset) {
    const auto within = [&](std::size_t begin, std::size_t bytes) { return offset >= begin && offset < begin + bytes; };
#define FIELD(name) \
    if (within(offsetof(RankControl, name), sizeof(RankControl::name))) return #name
    FIELD(stamps);
    FIELD(released);
    FIELD(rings);
    FIELD(sleeping);
    if (within(offsetof(RankControl, records), sizeof(RankControl::records))) {
        const std::size_t in_record = (offset - offsetof(RankControl, records)) % sizeof(RankControl::Record);
        return in_record == 0                                            ? "sequence of a record"
               : in_record == offsetof(RankControl::Record, fingerprint) ? "fingerprint of a record"
                                                                         : "agreement of a record";
    }
    FIELD(nobody_fences);
    FIELD(relying);
    FIELD(writing_to);
    FIELD(reading_from);
    FIELD(withdrawn);
    FIELD(small_begun);
    FIELD(short_in_turns);
    FIELD(in_turn);
    FIELD(short_ahead);
    FIELD(ahead);
    FIELD(area_in_turn);
    FIELD(area_ahead);
#undef FIELD
    return fmt::format("byte {} of a control block", offset);
}

std::string field_of_ring(std::size_t offset, const ArenaLayout& layout) {
    const auto at = [&](std::size_t begin) { return offset == begin; };
    if (at(offsetof(RingControl, written))) return "written";
    if (at(offsetof(RingControl, ended))) return "ended";
    if (at(offsetof(RingControl, taken))) return "taken";
    if (at(offsetof(RingControl, slots_taken))) return "slots_taken";
    if (offset >= sizeof(RingControl))
        return offset < sizeof(RingControl) + layout.ring_bytes ? "bytes of a ring" : "nothing";
    const std::size_t in_slot = (offset - offsetof(RingControl, messages)) % sizeof(MessageSlot);
    return in_slot == 0 ? "stamp of a message" : "a message";
}

}  // namespace

SharedMemory memory_of(const Arena& arena) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&arena.control(0));
    const ArenaLayout layout = arena.layout();
    const auto slots = static_cast<std::size_t>(arena.slot(0, 0) - begin);
    const auto ring_to = [&](int rank) {
        return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&arena.ring_control(0, rank)) - begin);
    };
    const auto rings = layout.ring_bytes > 0 ? ring_to(0) : layout.rank_bytes();
    const auto stride = layout.ranks > 1 && layout.ring_bytes > 0 ? ring_to(1) - rings : 1;
    return {.begin = begin, .bytes = layout.total_bytes(), .name = [=](std::size_t offset) -> std::string {
                offset %= layout.rank_bytes();
                if (offset < sizeof(RankControl)) return field_of_control(offset);
                if (offset < slots) return "nothing";
                if (offset < rings) return "a slot of the staging area";
                return field_of_ring((offset - rings) % stride, layout);
            }};
}

// From then on Arena::choose_fences() does all of it before it returns. Where this process has more than one thread, as
// it has under an emulator, yet another one asks the kernel.
static void register_for_membarriers() {
    std::atomic<bool> registered{false};
    membarrier::when_global([&] { registered = true; });
    while (!registered) std::this_thread::yield();
}

std::shared_ptr<Arena> arena_of(const ArenaLayout& layout, int relying) {
    static std::map<std::array<std::size_t, 5>, std::shared_ptr<Arena>> arenas;
    auto& arena = arenas[{static_cast<std::size_t>(layout.ranks), layout.slots, layout.slot_bytes, layout.ring_bytes,
                          static_cast<std::size_t>(relying)}];
    if (!arena) {
        arena = Arena::create_private(layout);
        if (relying > 0) register_for_membarriers();
        for (int rank = 0; rank < relying; ++rank) Arena::choose_fences(arena, false);
    }
    return arena;
}

}  // namespace tutti::memory_model
