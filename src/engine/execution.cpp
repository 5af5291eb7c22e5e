#include "engine/execution.hpp"

#include "schedule/functions.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::engine {

using schedule::Buffer;
using schedule::Chunk;
using schedule::Step;
using schedule::StepKind;

namespace {
/// The first publication of a schedule, `next` or later.
std::uint64_t first_of(const schedule::Schedule& s, std::uint64_t next) {
    return s.turn_group ? (next + 3) / 4 * 4 : next;
}

// Between the scratch buffers of different types: a cache line.
constexpr std::size_t scratch_alignment = 64;
}  // namespace

Execution::Execution(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands, RankContext& context)
    : schedule_(std::move(schedule)),
      operands_(operands),
      context_(context),
      element_bytes_(size_of(operands.dtype)),
      base_(0) {
    take_publications();
    if (context.arena != nullptr) {
        const transport::ArenaLayout& layout = context.arena->layout();
        context.read_last.resize(static_cast<std::size_t>(layout.ranks) * layout.slots);
    }
    begin();
}

void Execution::restart(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands) {
    schedule_ = std::move(schedule);
    operands_ = operands;
    element_bytes_ = size_of(operands.dtype);
    window_ = window_base;
    idle_ = 0;
    met_ = falls_back_ = false;
    mismatch_.reset();
    take_publications();
    begin();
}

/// Of this run, and of what it may fall back to: the same on all ranks of the host.
void Execution::take_publications() {
    agreed_.assign(context_.local_of.size(), false);
    base_ = first_of(*schedule_, context_.first_publication);
    std::uint64_t end = base_;
    for (const schedule::Schedule* s = schedule_.get(); s != nullptr; s = s->otherwise.get())
        end = first_of(*s, end) + s->publications;
    context_.first_publication = end;
}

/// Begins the schedule; its round 0 is publication base_.
void Execution::begin() {
    states_.assign(schedule_->steps.size(), State::open);
    if (messages_.size() < states_.size()) messages_ = std::vector<Message>(states_.size());
    first_open_ = started_ = next_shared_ = 0;
    place_buffers();
    functions_.clear();
    for (const std::string& name : schedule_->functions) functions_.push_back(schedule::find_function(name));
    while (next_shared_ < states_.size() && !schedule::is_shared(schedule_->steps[next_shared_].kind)) ++next_shared_;
    // Skipped publications need no room.
    if (schedule_->publications > 0) {
        auto& released = context_.arena->control(context_.local_rank).released;
        if (released.load(std::memory_order_relaxed) < base_) {
            released.store(base_, std::memory_order_release);  // behind all reads of them
            context_.arena->ring_all_doorbells(context_.local_rank);
        }
    }
    // The kernel copies messages, and ordinary memory in place.
    const bool copied_by_kernel = schedule_->publications == 0 || (schedule_->in_place && !schedule_->maps);
    if (context_.huge_pages != nullptr && context_.memory && copied_by_kernel) tell_huge_pages();
}

/// Input and output where the caller has them, the scratch buffers one after the other.
void Execution::place_buffers() {
    const auto& buffers = schedule_->buffers;
    places_.resize(buffers.size());
    std::size_t needed = 0;
    const auto place_scratch = [&](bool only_count) {
        needed = 0;
        for (std::size_t b = schedule::row(Buffer::scratch); b < buffers.size(); ++b) {
            const DType dtype = buffers[b].dtype.value_or(operands_.dtype);
            if (!only_count) places_[b] = {scratch_.get() + needed, size_of(dtype), dtype};
            needed +=
                (buffers[b].count * size_of(dtype) + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
        }
    };
    place_scratch(true);
    if (needed > scratch_bytes_) {
        scratch_ = std::make_unique_for_overwrite<std::byte[]>(needed);
        scratch_bytes_ = needed;
    }
    place_scratch(false);
    places_[schedule::row(Buffer::input)] = {operands_.input, element_bytes_, operands_.dtype};
    places_[schedule::row(Buffer::output)] = {operands_.output, element_bytes_, operands_.dtype};
}

/// All ranks have seen that some rank's buffers cannot be reached.
void Execution::fall_back() {
    falls_back_ = met_ = false;
    base_ = first_of(*schedule_->otherwise, base_ + schedule_->publications);
    schedule_ = schedule_->otherwise;
    begin();
}

Execution::~Execution() {
    if (met_ && !done()) revoke();
}

// Symmetric memory has its own pages.
void Execution::tell_huge_pages() const {
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        const std::byte* base = buffer == Buffer::input ? operands_.input : operands_.output;
        const std::size_t bytes = schedule_->of(buffer).used_end * element_bytes_;
        if (buffer == Buffer::output && base == operands_.input) continue;
        if (bytes >= HugePages::least_bytes &&
            (context_.symmetric == nullptr || !context_.symmetric->find(base, bytes)))
            context_.huge_pages->used(base, bytes);
    }
}

std::byte* Execution::address(const Chunk& chunk) const {
    const Place& place = place_of(chunk);
    return place.base + chunk.offset * place.element_bytes;
}

bool Execution::ready(const Step& step) const {
    for (std::uint32_t i = 0; i < step.after_count; ++i) {
        if (states_[schedule_->after[step.first_after + i]] != State::done) return false;
    }
    return true;
}

/// Whether the peer has made the publication, and has not revoked it.
bool Execution::published(int peer, std::uint64_t publication) const {
    // An acquire: all of this rank's reads from here on see the stores before the stamp.
    return stamp_of(peer, publication).load(std::memory_order_acquire) == publication + 1;
}

const std::atomic<std::uint64_t>& Execution::stamp_of(int peer, std::uint64_t publication) const {
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    return context_.arena->control(local).stamps[publication % context_.arena->layout().slots];
}

// Published, and by an operation like ours: this rank compares a peer's operation at the first contact.
bool Execution::usable(int peer, std::uint64_t publication) {
    if (!published(peer, publication)) return false;
    if (agreed_[static_cast<std::size_t>(peer)]) return true;
    const std::uint64_t sequence = operands_.channel ^ context_.channel;
    const int local = context_.local_of[static_cast<std::size_t>(peer)];
    const auto& record = context_.arena->control(local).records[sequence % transport::RankControl::record_count];
    // The peer's publication came after its record. A peer that is far ahead has overwritten the record; it could not
    // have come so far without us if it had not agreed.
    const auto theirs = record.read(sequence, &transport::RankControl::Record::fingerprint);
    if (theirs && *theirs != operands_.fingerprint) {
        mismatch_.emplace(peer, *theirs);
        return false;
    }
    agreed_[static_cast<std::size_t>(peer)] = true;
    return true;
}

bool Execution::progress() {
    bool moved = false;
    // Sends, and receives, of one peer start in order: a step that cannot start yet holds back later ones of its peer.
    held_.clear();
    const std::size_t end = std::min(states_.size(), first_open_ + window_);
    for (std::size_t i = first_open_; i < end; ++i) {
        if (states_[i] == State::done) continue;
        const Step& step = schedule_->steps[i];
        if (states_[i] == State::running) {
            if (!messages_[i].transfer.done) continue;
            states_[i] = State::done;
            moved = true;
            continue;
        }
        if (schedule::is_shared(step.kind)) {
            if (i != next_shared_ || !ready(step) || !run_shared(step)) continue;
            states_[i] = State::done;
            moved = true;
            do ++next_shared_;
            while (next_shared_ < states_.size() &&
                   (states_[next_shared_] == State::done || !schedule::is_shared(schedule_->steps[next_shared_].kind)));
            continue;
        }
        const bool message =
            step.kind == StepKind::send || step.kind == StepKind::receive || step.kind == StepKind::receive_combine;
        const std::pair<int, bool> lane(step.peer, step.kind == StepKind::send);
        if (message && std::ranges::find(held_, lane) != held_.end()) continue;
        if (!ready(step)) {
            if (message) held_.push_back(lane);
            continue;
        }
        moved |= start(i);
    }
    if (falls_back_) {
        fall_back();
        return true;
    }
    while (first_open_ < states_.size() && states_[first_open_] == State::done) ++first_open_;
    if (moved) {
        idle_ = 0;
        window_ = std::max(window_base, started_ > first_open_ ? started_ - first_open_ : 0);
    } else if (end < states_.size() && ++idle_ % 64 == 0) {
        // Nothing moves for long, and there is more behind: perhaps every step in the window waits for peers that wait
        // for a step beyond it (hundreds of sends whose receives come later in the list).
        window_ *= 2;
    }
    return moved;
}

// Runs a local step, or posts a transfer.
bool Execution::start(std::size_t index) {
    const Step& step = schedule_->steps[index];
    if (schedule::is_local(step.kind)) {
        run_local(step);
        states_[index] = State::done;
        return true;
    }
    post(index);
    return true;
}

void Execution::post(std::size_t index) {
    const Step& step = schedule_->steps[index];
    Message& message = messages_[index];
    message = {.transfer = {}, .of = this, .step = &step};
    transport::Transfer& transfer = message.transfer;
    transfer.peer = context_.world_of.empty() ? step.peer : context_.world_of[static_cast<std::size_t>(step.peer)];
    transfer.channel = operands_.channel;
    transfer.fingerprint = operands_.fingerprint;
    started_ = std::max(started_, index + 1);
    states_[index] = State::running;
    if (step.kind == StepKind::send) {
        const Chunk& chunk = schedule_->operands[step.first_operand].chunk;
        transfer.bytes = bytes(chunk);
        if (transfer.bytes > 0) transfer.source = address(chunk);
        return context_.mailbox->post_send(transfer);
    }
    transfer.bytes = bytes(step.target);
    if (transfer.bytes > 0) transfer.target = address(step.target);
    if (step.kind == StepKind::receive_combine) {
        transfer.element_bytes = place_of(step.target).element_bytes;
        transfer.on_bytes = transport::ByteSink::of(message);
    }
    context_.mailbox->post_receive(transfer);
}

void Execution::Message::operator()(std::size_t offset, std::span<const std::byte> arrived) const {
    const std::byte* own = of->address(of->schedule_->operands[step->first_operand].chunk);
    std::array<const void*, 2> inputs{own + offset, arrived.data()};
    if (step->arrival_first) std::swap(inputs[0], inputs[1]);
    const Place& place = of->place_of(step->target);
    kernels::combine(of->operands_.op, place.dtype, transfer.target + offset, inputs,
                     arrived.size() / place.element_bytes, step->finish ? of->operands_.divisor : 1);
}

bool Execution::has_sent_all(int peer) const noexcept {
    for (std::size_t i = first_open_; i < states_.size(); ++i) {
        const Step& step = schedule_->steps[i];
        if (step.kind == StepKind::send && step.peer == peer && states_[i] != State::done) return false;
    }
    return true;
}

void Execution::add_waits(std::vector<int>& ranks) const {
    const auto add = [&](int peer) {
        if (peer >= 0 && std::ranges::find(ranks, peer) == ranks.end()) ranks.push_back(peer);
    };
    const auto add_unreleased = [&](std::uint64_t publication, std::uint32_t slots) {
        for (std::size_t r = 0; r < context_.local_of.size(); ++r) {
            const int local = context_.local_of[r];
            if (local >= 0 && local != context_.local_rank &&
                context_.arena->control(local).released.load() + slots <= publication) {
                add(static_cast<int>(r));
            }
        }
    };
    const std::size_t end = std::min(states_.size(), first_open_ + window_);
    for (std::size_t i = first_open_; i < end; ++i) {
        const Step& step = schedule_->steps[i];
        if (states_[i] == State::running) add(step.peer);
        if (i != next_shared_) continue;
        const std::uint64_t publication = base_ + step.round;
        if (step.kind == StepKind::publish) {
            add_unreleased(publication, context_.arena->layout().slots);
        } else if (step.kind == StepKind::settle) {
            add_unreleased(publication, 1);
        } else if (step.kind == StepKind::meet) {
            for (std::size_t r = 0; r < context_.local_of.size(); ++r) {
                if (context_.local_of[r] >= 0 && !published(static_cast<int>(r), publication)) add(static_cast<int>(r));
            }
        } else if (step.kind == StepKind::read && !published(step.peer, publication)) {
            add(step.peer);
        } else if (step.kind == StepKind::wait && released_by(step.peer).load() < publication) {
            add(step.peer);
        } else if (step.kind == StepKind::read_combine && !schedule_->in_place) {
            for (std::uint32_t o = 0; o < step.operand_count; ++o) {
                const int peer = schedule_->operands[step.first_operand + o].peer;
                if (peer >= 0 && !published(peer, publication)) add(peer);
            }
        }
    }
    std::ranges::sort(ranks);
}

std::string Execution::where() const {
    std::string where = fmt::format("{}, step {} of {}", schedule_->algorithm,
                                    std::min(first_open_ + 1, states_.size()), states_.size());
    if (next_shared_ < states_.size() && schedule_->steps[next_shared_].kind == StepKind::wait)
        where += fmt::format(" ({})", schedule::sentence_of(*schedule_, schedule_->steps[next_shared_]));
    return where;
}

}  // namespace tutti::engine
