// The steps of an execution that go through the staging area, and, where buffers lie in symmetric memory, past it.
#include "engine/execution.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

namespace tutti::engine {

using schedule::Offer;
using schedule::Operand;
using schedule::Step;
using schedule::StepKind;
using transport::InPlace;
using transport::Place;
using Way = transport::CopyChoice::Way;

namespace {
// A result is written to several places in pieces that stay in the first-level cache.
constexpr std::size_t delivery_bytes = 8192;
// Less than this a call would mean that calls cost more than copying.
constexpr std::size_t smallest_far_bytes = 16384;

/// Room for what the kernel copies, of the calling thread. `huge`: in huge pages, if the system has any left; to
/// combine from there takes a twentieth less.
std::byte* far_room(std::size_t bytes, bool huge) {
    struct Free {
        void operator()(std::byte* at) const noexcept { std::free(at); }
    };
    static thread_local std::unique_ptr<std::byte, Free> room;
    static thread_local std::size_t size = 0;
    if (size < bytes) {
        constexpr std::size_t page = HugePages::page_bytes;
        const std::size_t rounded = (bytes + page - 1) / page * page;
        auto* const longer = static_cast<std::byte*>(std::aligned_alloc(page, rounded));
        if (longer == nullptr) throw std::bad_alloc();
        if (huge) ::madvise(longer, rounded, MADV_HUGEPAGE);
        room.reset(longer);
        size = rounded;
    }
    return room.get();
}
}  // namespace

bool Execution::run_shared(const Step& step) {
    transport::Arena& arena = *ground_.arena;
    const std::uint64_t publication = base_ + step.round;
    switch (step.kind) {
        case StepKind::publish: return publish(step);
        case StepKind::read: {
            if (!usable(step.peer, publication)) return false;
            if (step.target.count == 0 || (step.delivered && was_delivered(step, publication))) return true;
            const Source from = source(step.peer, publication, step.slot_offset, step.target.count);
            if (from.revoked) return false;
            if (from.address != 0) return read_on(step, from.address);
            const std::span into(address(step.target), bytes(step.target));
            timed_reading(Way::staging, into.size(), [&] { std::memcpy(into.data(), from.at, into.size()); });
            return true;
        }
        case StepKind::read_combine: return read_combine(step);
        case StepKind::write: return write(step);
        case StepKind::release:
            // Behind all that was read of those publications.
            arena.control(ground_.local_rank).released.store(publication, std::memory_order_release);
            arena.ring_all_doorbells(ground_.local_rank);
            return true;
        case StepKind::settle:
            if (published_in_place_ && !all_released(publication)) return false;
            if (schedule_->either_way > 0) tell_way();
            return true;
        default: return false;
    }
}

/// Whether the values of this publication have been written where this rank offered room for them. Relaxed, here and
/// below: usable() has acquired this stamp, and it stays until this rank releases it, or is 0 from some moment on: the
/// peer has revoked it.
bool Execution::was_delivered(const Step& read, std::uint64_t publication) const {
    const std::uint64_t stamp = stamp_of(read.peer, publication).load(std::memory_order_relaxed);
    return !stages() && place_of(read.target.buffer) != 0 && stamp != 0 &&
           (stamp & transport::published_undelivered) == 0;
}

/// Whether every other rank of this host has released all publications before this one.
bool Execution::all_released(std::uint64_t publication) const {
    for (int r = 0; r < ground_.arena->layout().ranks; ++r) {
        if (r != ground_.local_rank &&  // an acquire: what this rank writes next stays behind the others' reading
            ground_.arena->control(r).released.load(std::memory_order_acquire) < publication) {
            return false;
        }
    }
    return true;
}

bool Execution::publish(const Step& step) {
    transport::Arena& arena = *ground_.arena;
    const std::uint64_t publication = base_ + step.round;
    if (publication > told_.first && publication < told_.end) return true;
    if (!has_room(publication)) return false;
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    std::byte* slot = arena.slot(ground_.local_rank, publication);
    std::uint64_t stamp = publication + 1;
    auto read_last = ground_.read_last[arena.place(ground_.local_rank, publication)];
    if (std::exchange(in_slot_, false)) {  // it is there
        read_last = false;
    } else if (!wanted(step)) {
        // Everybody has got it.
    } else if (in_place(step)) {
        const InPlace head{
            .parts = step.operand_count, .offered = step.offer != Offer::none ? 1U : 0U, .following = step.following};
        if (step.following > 0) told_ = {.first = publication, .end = publication + 1 + step.following};
        std::memcpy(slot, &head, sizeof head);
        InPlace::Part part;
        for (std::uint32_t i = 0; i < step.operand_count; ++i) {
            const schedule::Chunk& chunk = operands[i].chunk;
            // Offsets are the lower bits of a place, and of an address.
            part.place = place_of(chunk.buffer) + chunk.offset * element_bytes_;
            part.bytes = bytes(chunk);
            std::memcpy(slot + sizeof head + i * sizeof part, &part, sizeof part);
            part.first += part.bytes;
        }
        stamp |= transport::published_in_place;
        published_in_place_ = true;
    } else if (step.offer != Offer::room) {
        transport::StagingCopy* const copy = staging_copy(publication);
        read_last = false;
        // More than two ranks usually share cores: what one copy takes says little there, so trials are seldom.
        using Trial = transport::StagingCopy::Trial;
        const Trial trial = arena.layout().ranks != 2                   ? Trial::now_and_then
                            : slot == arena.slot(ground_.local_rank, 0) ? Trial::here
                                                                        : Trial::elsewhere;
        for (std::uint32_t i = 0; i < step.operand_count; ++i) {
            const std::size_t size = bytes(operands[i].chunk);
            timed(own_ns_, [&] { transport::copy_staged(copy, slot, address(operands[i].chunk), size, trial); });
            slot += size;
        }
    }
    if (stages() && step.delivered && wanted(step)) stamp |= transport::published_undelivered;
    // Behind what the slot holds, and behind what was delivered to others before.
    arena.control(ground_.local_rank)
        .stamps[publication % arena.layout().slots]
        .store(stamp, std::memory_order_release);
    arena.ring_all_doorbells(ground_.local_rank);
    return true;
}

/// Whether some reader of this publication has not had its values delivered.
bool Execution::wanted(const Step& publish) const {
    if (!publish.delivered) return true;
    if (publish.peer >= 0) return !had_delivery_[static_cast<std::size_t>(publish.peer)];
    for (std::size_t r = 0; r < ground_.local_of.size(); ++r) {
        const int local = ground_.local_of[r];
        if (local >= 0 && local != ground_.local_rank && !had_delivery_[r]) return true;
    }
    return false;
}

/// How others name a buffer: its place in symmetric memory or its address; 0: they cannot.
std::uint64_t Execution::place_of(schedule::Buffer buffer) const {
    const auto index = static_cast<std::size_t>(buffer);
    return places_[index] ? places_[index].bits() : reinterpret_cast<std::uint64_t>(addresses_[index]);
}

/// Whether others can name all that it publishes.
bool Execution::in_place(const Step& publish) const {
    const auto* first = schedule_->operands.data() + publish.first_operand;
    const std::size_t needed = sizeof(InPlace) + publish.operand_count * sizeof(InPlace::Part);
    return publish.operand_count > 0 && publish.offer != Offer::copy && !stages() &&
           needed <= ground_.arena->layout().slot_bytes &&
           std::all_of(first, first + publish.operand_count,
                       [&](const Operand& operand) { return place_of(operand.chunk.buffer) != 0; });
}

/// Whether later publications are told with this one, and this rank has not taken note of them yet.
bool Execution::begins_run(int peer, std::uint64_t publication) const {
    if (run_with(peer, publication) != nullptr ||
        (stamp_of(peer, publication).load(std::memory_order_relaxed) & transport::published_in_place) == 0)
        return false;
    InPlace head;
    std::memcpy(&head, ground_.arena->slot(ground_.local_of[static_cast<std::size_t>(peer)], publication), sizeof head);
    return head.following > 0;
}

/// The slot that holds the first of them may be another rank's next.
void Execution::remember_run(int peer, std::uint64_t publication) {
    if (!begins_run(peer, publication)) return;
    const std::byte* const slot = ground_.arena->slot(ground_.local_of[static_cast<std::size_t>(peer)], publication);
    InPlace head;
    std::memcpy(&head, slot, sizeof head);
    if (runs_.empty()) runs_.resize(ground_.local_of.size());
    Run& run = runs_[static_cast<std::size_t>(peer)];
    run.first = publication;
    run.end = publication + 1 + head.following;
    run.parts.resize(head.parts);
    std::memcpy(run.parts.data(), slot + sizeof head, head.parts * sizeof(InPlace::Part));
}

/// `count` elements of what `peer` published, in its slot or where it says.
Execution::Source Execution::source(int peer, std::uint64_t publication, std::uint64_t slot_offset,
                                    std::uint64_t count) const {
    const int local = ground_.local_of[static_cast<std::size_t>(peer)];
    const std::size_t offset = slot_offset * element_bytes_;
    InPlace head;
    InPlace::Part part;
    std::uint64_t at_part = 0;
    if (const Run* const run = run_with(peer, publication)) {
        part = *std::prev(std::ranges::upper_bound(run->parts, offset, {}, &InPlace::Part::first));
        at_part = (publication - run->first) * part.bytes;
    } else {
        const transport::Arena& arena = *ground_.arena;
        std::byte* const slot = arena.slot(local, publication);
        const std::uint64_t stamp = stamp_of(peer, publication).load(std::memory_order_relaxed);
        if (stamp == 0) return {.revoked = true};
        if ((stamp & transport::published_in_place) == 0) {
            ground_.read_last[arena.place(local, publication)] = true;
            return {.at = slot + offset};
        }
        std::memcpy(&head, slot, sizeof head);
        for (std::uint64_t i = 0; i < head.parts && (i == 0 || part.first + part.bytes <= offset); ++i)
            std::memcpy(&part, slot + sizeof head + i * sizeof part, sizeof part);
    }
    const Place place(part.place + at_part + (offset - part.first));
    if (!place) return {.offered = head.offered != 0, .address = place.bits()};
    std::byte* at = ground_.symmetric->address(place, local, count * element_bytes_);
    if (at == nullptr) {
        throw InternalError(fmt::format("{}: rank {} names symmetric memory that this rank does not map (segment {})",
                                        schedule_->algorithm, peer, place.segment()));
    }
    return {.at = at, .offered = head.offered != 0};
}

bool Execution::read_combine(const Step& step) {
    const std::uint64_t publication = base_ + step.round;
    const Operand* operands = schedule_->operands.data() + step.first_operand;
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        if (operands[i].peer >= 0 && !usable(operands[i].peer, publication)) return false;
    }
    std::array<const void*, 16> few;
    std::vector<const void*> many;
    std::span<const void*> inputs(few.data(), std::min<std::size_t>(few.size(), step.operand_count));
    if (step.operand_count > few.size()) {
        many.resize(step.operand_count);
        inputs = many;
    }
    delivery_.clear();
    far_.clear();
    for (std::uint32_t i = 0; i < step.operand_count; ++i) {
        const Operand& operand = operands[i];
        if (operand.peer < 0) {
            inputs[i] = step.target.count > 0 ? address(operand.chunk) : nullptr;
            continue;
        }
        if (step.target.count == 0) {
            if (step.deliver) had_delivery_[static_cast<std::size_t>(operand.peer)] = true;
            continue;
        }
        const Source from = source(operand.peer, publication, operand.slot_offset, operand.chunk.count);
        if (from.revoked) return false;
        inputs[i] = from.at;
        if (from.address != 0) {
            far_.push_back(
                {.input = i, .peer = operand.peer, .address = from.address, .offered = step.deliver && from.offered});
        } else if (step.deliver && from.offered) {
            delivery_.push_back(from.at);
        }
        if (step.deliver) had_delivery_[static_cast<std::size_t>(operand.peer)] = from.offered;
    }
    if (step.target.count == 0) return true;
    std::byte* slot = slot_of_result(step);
    in_slot_ = slot != nullptr;
    std::uint64_t combined = step.target.count;
    const std::size_t last = combine_on(step, combined);
    if (!timed_reading(far_.empty() ? Way::staging : Way::kernel, combined * element_bytes_,
                       [&] { return combine(step, combined, inputs, slot); }))
        return false;
    done_through(last, StepKind::read_combine);
    return true;
}

/// The last of the next steps that combine what follows in the memory of all, as far as it is published: a call of the
/// kernel takes as long as copying some 10 KB. Adds their elements to `count`. It ends before a run of publications
/// that this rank has not taken note of: only the step that is made for its first one does that.
std::size_t Execution::combine_on(const Step& step, std::uint64_t& count) const {
    std::size_t last = next_shared_;
    if (far_.size() + 1 != step.operand_count || std::ranges::any_of(far_, &Far::offered)) return last;
    for (std::size_t i = last + 1; i < states_.size(); ++i) {
        const Step& next = schedule_->steps[i];
        if (next.kind == StepKind::read || next.kind == StepKind::write || next.kind == StepKind::settle) break;
        if (next.kind != StepKind::read_combine) continue;
        const std::uint64_t publication = base_ + next.round;
        const auto follows = [&, far = far_.begin()](const Operand& before, const Operand& after) mutable {
            if (before.peer < 0)
                return after.peer < 0 && after.chunk.buffer == before.chunk.buffer &&
                       after.chunk.offset == before.chunk.offset + count;
            const std::uint64_t address = far++->address + count * element_bytes_;
            return after.peer == before.peer && published(after.peer, publication) &&
                   !begins_run(after.peer, publication) &&
                   source(after.peer, publication, after.slot_offset, after.chunk.count).address == address;
        };
        const Operand* const before = schedule_->operands.data() + step.first_operand;
        if (next.target.count == 0 || next.operand_count != step.operand_count || next.finish != step.finish ||
            next.target.buffer != step.target.buffer || next.target.offset != step.target.offset + count ||
            !ready(next) ||
            !std::equal(before, before + step.operand_count, schedule_->operands.data() + next.first_operand,
                        std::move(follows)))
            break;
        count += next.target.count;
        last = i;
    }
    return last;
}

/// The slot into which the next step copies the result of this one by ordinary stores, if there is room in it now:
/// copied piece by piece, the result comes from the first-level cache.
std::byte* Execution::slot_of_result(const Step& step) const {
    const auto next = static_cast<std::size_t>(&step - schedule_->steps.data()) + 1;
    if (!far_.empty() || next == schedule_->steps.size()) return nullptr;
    const Step& publication = schedule_->steps[next];
    if (publication.kind != StepKind::publish || publication.operand_count != 1 ||
        schedule_->operands[publication.first_operand].chunk != step.target || !wanted(publication) ||
        in_place(publication) || !has_room(base_ + publication.round))
        return nullptr;
    const transport::StagingCopy* const copy = staging_copy(base_ + publication.round);
    if (copy != nullptr && copy->streams()) return nullptr;
    return ground_.arena->slot(ground_.local_rank, base_ + publication.round);
}

/// Whether nobody needs any more what was in the slot of this publication.
bool Execution::has_room(std::uint64_t publication) const {
    const std::uint32_t slots = ground_.arena->layout().slots;
    return publication < slots || all_released(publication - slots + 1);
}

/// `count` elements, those of the step first. Writes the result to `slot` too, unless that is null. False: a peer has
/// withdrawn what it published.
bool Execution::combine(const Step& step, std::uint64_t count, std::span<const void* const> inputs, std::byte* slot) {
    const std::uint64_t divisor = step.finish ? operands_.divisor : 1;
    std::byte* target = address(step.target);
    if (delivery_.empty() && far_.empty() && slot == nullptr) {
        kernels::combine(operands_.op, operands_.dtype, target, inputs, count, divisor);
        return true;
    }
    const std::uint64_t publication = base_ + step.round;
    const std::size_t piece_bytes =
        far_.empty() ? delivery_bytes : std::max(smallest_far_bytes, combined_at_once / far_.size());
    const bool huge = ground_.huge_pages != nullptr && ground_.huge_pages->enabled();
    std::byte* room = far_.empty() ? nullptr : far_room(far_.size() * piece_bytes, huge);
    std::vector<const void*> at(inputs.size());
    const std::uint64_t piece = piece_bytes / element_bytes_;
    for (std::uint64_t done = 0; done < count; done += piece) {
        const std::uint64_t now = std::min(piece, count - done);
        const std::size_t offset = done * element_bytes_, bytes = now * element_bytes_;
        for (std::size_t i = 0; i < at.size(); ++i) {
            if (inputs[i] != nullptr) at[i] = static_cast<const std::byte*>(inputs[i]) + offset;
        }
        for (std::size_t f = 0; f < far_.size(); ++f) {
            const std::span into(room + f * piece_bytes, bytes);
            if (!read_from(far_[f].peer, publication, far_[f].address + offset, into)) return false;
            at[far_[f].input] = into.data();
        }
        kernels::combine(operands_.op, operands_.dtype, target + offset, at, now, divisor);
        for (std::byte* place : delivery_) std::memcpy(place + offset, target + offset, bytes);
        if (slot != nullptr) std::memcpy(slot + offset, target + offset, bytes);
        for (const Far& far : far_) {
            if (far.offered && !write_to(far.peer, publication, far.address + offset, {target + offset, bytes}))
                return false;
        }
    }
    return true;
}

bool Execution::write(const Step& step) {
    const std::uint64_t publication = base_ + step.round;
    const schedule::Chunk& chunk = schedule_->operands[step.first_operand].chunk;
    if (stages()) {  // whatever is offered
        had_delivery_[static_cast<std::size_t>(step.peer)] = chunk.count == 0;
        return true;
    }
    if (!usable(step.peer, publication)) return false;
    const auto stamp = stamp_of(step.peer, publication).load(std::memory_order_relaxed);
    if (stamp == 0) return false;
    const bool offered = (stamp & transport::published_in_place) != 0;
    if (offered && chunk.count > 0) {
        const Source to = source(step.peer, publication, step.slot_offset, chunk.count);
        if (to.revoked) return false;
        const std::span from(address(chunk), bytes(chunk));
        if (to.address == 0)
            std::memcpy(to.at, from.data(), from.size());
        else if (!timed(own_ns_, [&] { return write_to(step.peer, publication, to.address, from); }))
            return false;
    }
    had_delivery_[static_cast<std::size_t>(step.peer)] = offered || chunk.count == 0;
    return true;
}

}  // namespace tutti::engine
