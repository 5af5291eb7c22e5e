#include "engine/execution.hpp"

#include "core/assert.hpp"
#include "schedule/functions.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::engine {

using schedule::Buffer;
using schedule::Step;
using schedule::StepKind;

Execution::Execution(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands, RankContext& context)
    : schedule_(std::move(schedule)),
      operands_(operands),
      context_(context),
      publications_(context),
      peers_(context, publications_) {
    TUTTI_ASSERT(schedule_ != nullptr);
    publications_.begin(*schedule_, operands_.channel, operands_.fingerprint);
    begin();
}

void Execution::restart(std::shared_ptr<const schedule::Schedule> schedule, const Operands& operands) {
    TUTTI_ASSERT(schedule != nullptr);
    TUTTI_ASSERT(done());
    schedule_ = std::move(schedule);
    operands_ = operands;
    window_ = window_base;
    idle_ = 0;
    publications_.begin(*schedule_, operands_.channel, operands_.fingerprint);
    begin();
}

/// Begins the schedule, whose publications have their numbers.
void Execution::begin() {
    TUTTI_ASSERT(schedule_->publications == 0 || context_.arena != nullptr);
    states_.assign(schedule_->steps.size(), State::open);
    if (messages_.size() < states_.size()) messages_ = std::vector<Message>(states_.size());
    first_open_ = started_ = next_shared_ = 0;
    broken_.reset();
    buffers_.place(*schedule_, operands_);
    peers_.begin(*schedule_, operands_);
    functions_.clear();
    for (const std::string& name : schedule_->functions) functions_.push_back(schedule::find_function(name));
    TUTTI_ASSERT(functions_.size() == schedule_->functions.size());
    while (next_shared_ < states_.size() && !schedule::is_shared(schedule_->steps[next_shared_].kind)) ++next_shared_;
    if (schedule_->publications > 0) publications_.skip_earlier();
    // The kernel copies messages, and ordinary memory in place.
    const bool copied_by_kernel = schedule_->publications == 0 || (schedule_->in_place && !schedule_->maps);
    if (context_.huge_pages != nullptr && context_.memory && copied_by_kernel) tell_huge_pages();
}

/// All ranks have seen that some rank's buffers cannot be reached.
void Execution::fall_back() {
    TUTTI_ASSERT(schedule_->otherwise != nullptr);
    TUTTI_ASSERT(peers_.are_out_of_reach());
    publications_.fall_back_from(*schedule_);
    schedule_ = schedule_->otherwise;
    begin();
}

Execution::~Execution() {
    if (!done()) peers_.revoke();
}

// Symmetric memory has its own pages.
void Execution::tell_huge_pages() const {
    TUTTI_ASSERT(context_.huge_pages != nullptr);
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        const std::byte* base = buffer == Buffer::input ? operands_.input : operands_.output;
        const std::size_t bytes = schedule_->of(buffer).used_end * operands_.element_bytes();
        if (buffer == Buffer::output && base == operands_.input) continue;
        if (bytes >= HugePages::least_bytes &&
            (context_.symmetric == nullptr || !context_.symmetric->find(base, bytes)))
            context_.huge_pages->used(base, bytes);
    }
}

bool Execution::ready(const Step& step) const {
    TUTTI_ASSERT(step.first_after + step.after_count <= schedule_->after.size());
    for (std::uint32_t i = 0; i < step.after_count; ++i) {
        if (states_[schedule_->after[step.first_after + i]] != State::done) return false;
    }
    return true;
}

bool Execution::progress() {
    TUTTI_ASSERT(first_open_ <= states_.size() && messages_.size() >= states_.size());
    if (broken_) throw StepFailed(*broken_);
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
    if (peers_.are_out_of_reach()) {
        fall_back();
        return true;
    }
    while (first_open_ < states_.size() && states_[first_open_] == State::done) ++first_open_;
    TUTTI_ASSERT(first_open_ <= next_shared_ || next_shared_ == states_.size() || states_[next_shared_] == State::done);
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
    TUTTI_ASSERT(index < states_.size() && states_[index] == State::open);
    TUTTI_ASSERT(ready(schedule_->steps[index]));
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
    TUTTI_ASSERT(states_[index] == State::open);
    TUTTI_ASSERT(context_.mailbox != nullptr);
    TUTTI_ASSERT(schedule_->steps[index].peer >= 0);
    const Step& step = schedule_->steps[index];
    Message& message = messages_[index];
    message = {.transfer = {}, .of = this, .step = &step};
    transport::Transfer& transfer = message.transfer;
    transfer.peer = context_.in_mailbox(step.peer);
    transfer.channel = operands_.channel;
    transfer.fingerprint = operands_.fingerprint;
    started_ = std::max(started_, index + 1);
    states_[index] = State::running;
    if (step.kind == StepKind::send) {
        const schedule::Chunk& chunk = schedule_->operands[step.first_operand].chunk;
        transfer.bytes = buffers_.bytes(chunk);
        if (transfer.bytes > 0) transfer.source = buffers_.address(chunk);
        TUTTI_ASSERT(step.operand_count == 1);
        return context_.mailbox->post_send(transfer);
    }
    transfer.bytes = buffers_.bytes(step.target);
    if (transfer.bytes > 0) transfer.target = buffers_.address(step.target);
    if (step.kind == StepKind::receive_combine) {
        transfer.element_bytes = buffers_.place_of(step.target).element_bytes;
        transfer.on_bytes = transport::ByteSink::of(message);
    }
    TUTTI_ASSERT(transfer.bytes % transfer.element_bytes == 0);
    context_.mailbox->post_receive(transfer);
}

void Execution::Message::operator()(std::size_t offset, std::span<const std::byte> arrived) const {
    TUTTI_ASSERT(of != nullptr && step->kind == StepKind::receive_combine);
    TUTTI_ASSERT(offset + arrived.size() <= transfer.bytes);
    const std::byte* own = of->buffers_.address(of->schedule_->operands[step->first_operand].chunk);
    std::array<const void*, 2> inputs{own + offset, arrived.data()};
    if (step->arrival_first) std::swap(inputs[0], inputs[1]);
    const RunBuffers::Place& place = of->buffers_.place_of(step->target);
    TUTTI_ASSERT(arrived.size() % place.element_bytes == 0);
    if (of->broken_) return;
    try {
        of->combine(*step, place.dtype, transfer.target + offset, inputs, arrived.size() / place.element_bytes);
    } catch (const StepFailed& error) {  // the transport has nothing to do with it
        of->broken_ = error.what();
    }
}

bool Execution::has_sent_all(int peer) const noexcept {
    TUTTI_ASSERT(peer >= 0);
    TUTTI_ASSERT(first_open_ <= states_.size());
    for (std::size_t i = first_open_; i < states_.size(); ++i) {
        const Step& step = schedule_->steps[i];
        if (step.kind == StepKind::send && step.peer == peer && states_[i] != State::done) return false;
    }
    return true;
}

void Execution::add_waits(std::vector<int>& ranks) const {
    TUTTI_ASSERT(ranks.empty());
    const std::size_t end = std::min(states_.size(), first_open_ + window_);
    for (std::size_t i = first_open_; i < end; ++i) {
        const Step& step = schedule_->steps[i];
        if (states_[i] == State::running && step.peer >= 0) ranks.push_back(step.peer);
        if (i == next_shared_) add_waits_for_shared(step, ranks);
    }
    std::ranges::sort(ranks);
    const auto again = std::ranges::unique(ranks);
    ranks.erase(again.begin(), again.end());
}

void Execution::add_waits_for_shared(const Step& step, std::vector<int>& ranks) const {
    TUTTI_ASSERT(schedule::is_shared(step.kind));
    const std::uint64_t publication = publications_.of(step);
    const auto add = [&](int peer) { ranks.push_back(peer); };
    const auto add_silent = [&](int peer) {
        if (!publications_.is_there(peer, publication)) add(peer);
    };
    switch (step.kind) {
        case StepKind::publish: return publications_.for_each_without_room(publication, add);
        case StepKind::settle: return publications_.for_each_unsettled(publication, add);
        case StepKind::meet: return context_.for_each_neighbour([&](int peer, int /*local*/) { add_silent(peer); });
        case StepKind::read: return add_silent(step.peer);
        case StepKind::wait:
            if (publications_.released_by(step.peer).load() < publication) add(step.peer);
            return;
        case StepKind::read_combine:
            if (schedule_->in_place) return;
            for (const schedule::Operand& operand : operands_of(*schedule_, step)) {
                if (operand.peer >= 0) add_silent(operand.peer);
            }
            return;
        default: return;
    }
}

std::string Execution::where() const {
    std::string where = fmt::format("{}, step {} of {}", schedule_->algorithm,
                                    std::min(first_open_ + 1, states_.size()), states_.size());
    if (next_shared_ < states_.size() && schedule_->steps[next_shared_].kind == StepKind::wait)
        where += fmt::format(" ({})", schedule::sentence_of(*schedule_, schedule_->steps[next_shared_]));
    return where;
}

}  // namespace tutti::engine
