#include "nccl/lane.hpp"

#include "nccl/join.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <utility>

namespace tutti::nccl {

void Lane::start() {
    thread_ = std::thread([self = shared_from_this()] { self->work(); });
}

void Lane::add(std::shared_ptr<Message> message, std::optional<UniqueId> id) {
    const std::lock_guard lock(mutex_);
    if (id) id_ = id;
    queue_.push_back(std::move(message));
    changed_.notify_all();
}

void Lane::end(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    changed_.notify_all();
}

void Lane::close() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
}

void Lane::join() {
    backends::join(thread_);
}

void Lane::work() {
    for (;;) {
        std::vector<std::shared_ptr<Message>> messages;
        std::exception_ptr error;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
            if (queue_.empty()) break;
            messages.swap(queue_);
            error = error_;
        }
        try {
            if (error) std::rethrow_exception(error);
            carry_all(messages);
        } catch (...) {
            error = await_cause(std::current_exception());
            end(error);
            for (auto& message : messages) {
                if (message) parts_.failed(std::move(message), error);
            }
        }
    }
    communicator_.reset();
    stream_.reset();
}

// A library's error after a peer's death is a symptom; the cause is known a moment later, and then ends everything.
std::exception_ptr Lane::await_cause(std::exception_ptr symptom) const {
    const auto until = Clock::now() + time_for_the_cause;
    for (;;) {
        if (auto cause = parts_.cause()) return cause;
        if (Clock::now() > until) return symptom;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

// Takes finished messages from the list. The sender gets all answers at once, so that it need not wait for one after
// the other.
void Lane::carry_all(std::vector<std::shared_ptr<Message>>& messages) {
    std::size_t told = 0;
    if (!communicator_) {
        connect(*messages.front());
        told = 1;
    }
    if (parts_.go) {
        for (std::size_t i = told; i < messages.size(); ++i) parts_.go(*messages[i], nullptr);
    }
    for (auto& message : messages) {
        carry(*message);
        message = nullptr;
    }
}

void Lane::connect(const Message& first) {
    Context& context = *parts_.context;
    if (parts_.place.driver->has_streams()) {
        parts_.place.driver->use(parts_.place.device.index);  // this thread's from now on
        stream_ = std::make_unique<OwnStream>(parts_.place.driver, parts_.place.device.index,
                                              context.nccl_options().is_high_priority_stream);
    }
    UniqueId id{};
    if (parts_.go) {
        id = Communicator::make_id(*context.library(), context.store());
        parts_.go(first, &id);
    } else {
        const std::lock_guard lock(mutex_);
        if (!id_) throw InternalError(first.what + ": its receiver has named no communicator");
        id = *id_;
    }
    communicator_ = context.make_communicator({&id, 1}, parts_.sends ? 0 : 1, 2, parts_.place);
}

void Lane::carry(const Message& message) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(message.deadline - Clock::now());
    const auto time = std::clamp(left, std::chrono::milliseconds(1), message.timeout);
    const Driver::StreamHandle stream = stream_ ? stream_->handle() : nullptr;
    if (stream_) message.before->make_wait(stream);
    {
        const Communicator::Use use(*communicator_);
        const Interface& calls = communicator_->library().calls();
        if (parts_.sends) {
            communicator_->finish(calls.Send(message.request.input, message.bytes(), uint8, 1, use.handle(), stream),
                                  "Send", message.what, time);
        } else {
            communicator_->finish(calls.Recv(message.request.output, message.bytes(), uint8, 0, use.handle(), stream),
                                  "Recv", message.what, time);
        }
    }
    const int source = parts_.sends ? -1 : message.peer;
    if (!stream_) {
        parts_.over();  // first: the caller may end the group as soon as it sees the completion
        return message.succeed(source);
    }
    parts_.context->watcher().watch({.completion = message.completion,
                                     .end = message.place.events->record(stream),
                                     .communicator = communicator_,
                                     .what = [what = message.what] { return what; },
                                     .deadline = message.deadline,
                                     .timeout = message.timeout,
                                     .source = source,
                                     .kept = message.data});
    parts_.over();
}

}  // namespace tutti::nccl
