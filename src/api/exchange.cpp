#include "api/exchange.hpp"

#include "api/arguments.hpp"
#include "core/assert.hpp"

#include <algorithm>

namespace tutti::api {
namespace {

// No longer message is gone at once: a receive of one is posted before this rank sends, so that its bytes need not
// wait.
constexpr std::size_t posted_first_bytes = std::size_t{16} << 10;

TensorView writable(const ConstTensorView& view) {
    TensorView result;
    static_cast<ConstTensorView&>(result) = view;
    return result;
}

}  // namespace

// ---- Messages

Exchange::Message::Message(Exchange& exchange, Group& group, const TensorView& tensor, const Match& match,
                           bool receives)
    : exchange_(exchange), group_(group), tensor_(tensor), receives_(receives) {
    TUTTI_ASSERT(match.peer >= 0 && tensor.device().type == Device::Type::cpu);
    transfer_.peer = match.peer;
    transfer_.channel = match.channel;
    transfer_.fingerprint = match.fingerprint;
    transfer_.bytes = tensor.byte_count();
    auto* const data = static_cast<std::byte*>(tensor.data());
    if (receives) {
        transfer_.target = data;
        if (tensor.contiguous()) return;
        transfer_.target = nullptr;
        transfer_.on_bytes = transport::ByteSink::of(writer_.emplace(tensor));
        transfer_.element_bytes = size_of(tensor.dtype());
        return;
    }
    // From the heap, not from empty(), which takes pages of its own for each of the large ones.
    if (!tensor.contiguous()) packed_ = std::make_unique_for_overwrite<std::byte[]>(tensor.byte_count());
    transfer_.source = packed_ ? packed_.get() : data;
}

bool Exchange::Message::is_posted_first() const noexcept {
    return receives_ && transfer_.bytes > posted_first_bytes;
}

void Exchange::Message::pack() {
    if (packed_) tutti::copy(TensorView(packed_.get(), tensor_.shape(), tensor_.dtype()), tensor_);
}

bool Exchange::Message::run_at_once() {
    if (!receives_)
        return group_.send_now(transfer_.peer, transfer_.channel, transfer_.fingerprint,
                               {transfer_.source, transfer_.bytes});
    transport::Transfer receive = transfer_;
    return !is_posted_first() && group_.receive_now(receive);
}

// The last one serves again if nobody else refers to it.
PreparedOperation Exchange::Message::next_operation() {
    if (operation_ != nullptr && operation_.use_count() == 1) {
        std::atomic_thread_fence(std::memory_order_acquire);  // another thread may have dropped it
        operation_->renew(*operation_);
        return std::exchange(operation_, nullptr);
    }
    auto operation = std::make_shared<Operation>();
    operation->name = exchange_.name_;
    operation->is_collective = false;
    operation->is_receive = receives_;
    operation->group = group_.shared_from_this();
    return operation;
}

void Exchange::Message::issue(bool asynchronous) {
    PreparedOperation operation = next_operation();
    operation->transfer = transfer_;
    operation->timeout = exchange_.timeout_.count() > 0 ? exchange_.timeout_ : group_.timeout();
    group_.submit(operation, asynchronous);
    operation_ = std::move(operation);  // a refused one has not begun
    is_issued_ = true;
}

// ---- Phases

Exchange::Exchange(const char* name, milliseconds timeout, TensorList outputs)
    : name_(name), timeout_(timeout), outputs_(std::move(outputs)) {}

Exchange::~Exchange() = default;

void Exchange::add_phase(std::shared_ptr<Group> group) {
    TUTTI_ASSERT(group != nullptr && whole_ == nullptr);
    phases_.push_back({.group = std::move(group)});
}
void Exchange::send(const ConstTensorView& tensor, const Match& match) {
    Phase& phase = phases_.back();
    phase.sends.emplace_back(*this, *phase.group, writable(tensor), match, false);
}
void Exchange::receive(const TensorView& tensor, const Match& match) {
    Phase& phase = phases_.back();
    phase.in_order |= std::ranges::any_of(phase.receives, [&](const Message& m) { return m.has_channel_of(match); });
    phase.receives.emplace_back(*this, *phase.group, tensor, match, true);
}
void Exchange::copy(const TensorView& to, const ConstTensorView& from) {
    TUTTI_ASSERT(to.element_count() == from.element_count());
    phases_.back().copies.emplace_back(to, from);
}

template <class F>
void Exchange::begin(Phase& phase, bool asynchronous, F&& issued) {
    const auto issue = [&](Message& message) {
        message.issue(asynchronous);
        issued(message);
    };
    const bool all_first = asynchronous || phase.in_order;
    for (auto* const list : {&phase.sends, &phase.receives}) {
        for (Message& message : *list) message.forget();
    }
    for (Message& receive : phase.receives) {
        if (all_first || receive.is_posted_first()) issue(receive);
    }
    for (Message& send : phase.sends) {
        send.pack();
        if (!send.run_at_once()) issue(send);
    }
    for (const auto& [to, from] : phase.copies) tutti::copy(to, from);
    for (Message& receive : phase.receives) {
        if (!all_first && !receive.is_posted_first() && !receive.run_at_once()) issue(receive);
    }
}

// ---- Blocking

// Messages may read and write the caller's memory as long as they are under way, so it waits for all, after an error
// too.
void Exchange::run(Phase& phase) {
    std::exception_ptr first;
    const auto attempt = [&](auto&& act) {
        try {
            act();
        } catch (...) {
            if (!first) first = std::current_exception();
        }
    };
    attempt([&] { begin(phase, false, [](Message&) {}); });
    for (auto* const list : {&phase.sends, &phase.receives}) {
        for (Message& message : *list) {
            if (Operation* const operation = message.operation())
                attempt([&] { phase.group->world().wait_for_call(*operation); });
        }
    }
    if (first) std::rethrow_exception(first);
}

void Exchange::run() {
    TUTTI_ASSERT(idle());
    for (Phase& phase : phases_) run(phase);
}

// ---- Asynchronous

void Exchange::note(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (error && !first_error_) first_error_ = error;
}

Work Exchange::start() {
    TUTTI_ASSERT(idle() && !phases_.empty());
    if (whole_ != nullptr && whole_.use_count() == 1) {
        std::atomic_thread_fence(std::memory_order_acquire);
        whole_->renew(*whole_);
    } else {
        whole_ = std::make_shared<Operation>();
        whole_->name = name_;
        whole_->is_collective = false;
        whole_->group = phases_.front().group;
        whole_->outputs = outputs_;
    }
    first_error_ = nullptr;
    itself_ = shared_from_this();
    Work work(whole_);
    continue_from(0);
    return work;
}

void Exchange::continue_from(std::size_t number) {
    for (; number < phases_.size() && !first_error_; ++number) {
        Phase& phase = phases_[number];
        left_ = 1;
        // Its end, on whichever thread: the last one of a phase begins the next.
        const auto issued = [this, number](Message& message) {
            ++left_;
            message.operation()->on_completion([this, number, operation = message.operation()] {
                note(operation->error());
                if (--left_ == 0) continue_from(number + 1);
            });
        };
        try {
            begin(phase, true, issued);
        } catch (...) {
            note(std::current_exception());
        }
        if (--left_ > 0) return;
    }
    const std::shared_ptr<Exchange> itself = std::move(itself_);
    const PreparedOperation whole = whole_;
    TUTTI_ASSERT(itself != nullptr && !whole->done());
    whole->complete(first_error_);
    whole->run_continuations();
}

}  // namespace tutti::api
