#include "nccl/messages.hpp"

#include "nccl/lane.hpp"
#include "nccl/matching.hpp"
#include "nccl/with_title.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tutti::nccl {

namespace {

// A send of up to so many bytes is over for its caller when its data is copied.
constexpr std::size_t short_bytes = 64 << 10;
constexpr std::chrono::milliseconds any_time = std::chrono::hours(24 * 365);

}  // namespace

class Messages::Core : public std::enable_shared_from_this<Core> {
 public:
    explicit Core(std::shared_ptr<Context> context) : context_(std::move(context)), matching_(context_->host_group()) {}

    void start() {
        context_->when_over([weak = weak_from_this()](const std::exception_ptr& error) {
            if (const auto self = weak.lock()) self->end(error);
        });
    }

    void run(const BackendRequest& request, BackendCompletion completion) {
        const Place& place = context_->place(request.device);
        const bool is_copied = request.call == BackendCall::send && request.root != context_->rank() &&
                               request.count * size_of(request.dtype) <= short_bytes;
        const auto message = is_copied ? copy_of(request, std::move(completion), place)
                                       : std::make_shared<Message>(request, std::move(completion), place);
        if (!is_copied) set_times(*message);
        if (!is_copied && place.driver->has_streams()) {
            const CurrentDevice current(*place.driver, place.device.index);
            message->before = place.events->record(request.stream.handle);
        }
        if (const auto error = list(message)) return message->fail(error);
        try {
            if (message->sends())
                offer(message);
            else
                expect(message);
        } catch (...) {
            if (unlist(*message)) fail(*message, std::current_exception());
        }
    }

    bool drain(Clock::time_point until) {
        std::unique_lock lock(mutex_);
        const auto is_copy = [](const auto& entry) { return entry.second->is_copy(); };
        return changed_.wait_until(lock, until,
                                   [&] { return matched_ == 0 && std::ranges::none_of(unmatched_, is_copy); });
    }

    void stop() {
        end(std::make_exception_ptr(Aborted(context_->title() + ": the group has ended")));
        decltype(lanes_) lanes;
        {
            const std::lock_guard lock(mutex_);
            lanes.swap(lanes_);
        }
        for (const auto& [key, lane] : lanes) lane->close();  // all at once, as each may take long
        for (const auto& [key, lane] : lanes) lane->join();
    }

 private:
    using MessagePtr = std::shared_ptr<Message>;
    enum class Direction { to_peer, from_peer };
    using LaneKey = std::tuple<Device::Type, int, Direction>;
    struct Awaited {  // an answer
        Work work;
        std::shared_ptr<Answer> answer;
    };

    void set_times(Message& message) const {
        message.what = name_of_message(message.request);
        message.timeout = context_->timeout_of(message.request);
        message.deadline = Clock::now() + message.timeout;
    }

    // ---- Short sends

    // Two ranks that send to each other before they receive must not wait for each other.
    MessagePtr copy_of(const BackendRequest& r, BackendCompletion completion, const Place& place) {
        const std::size_t bytes = r.count * size_of(r.dtype);
        auto data = short_memory(place, bytes);
        auto own = std::make_unique<BackendRequest>(r);
        own->input = data->data();
        auto message = std::make_shared<Message>(std::move(own), data, place);
        set_times(*message);
        if (!place.driver->has_streams()) {
            place.driver->copy(data->data(), r.input, bytes, nullptr);
            completion.success();
            return message;
        }
        const CurrentDevice current(*place.driver, place.device.index);
        const auto before = place.events->record(r.stream.handle);
        {
            const std::lock_guard lock(mutex_);
            const Driver::StreamHandle stream = own_stream(place);
            before->make_wait(stream);
            place.driver->copy(data->data(), r.input, bytes, stream);
            message->before = place.events->record(stream);
        }
        context_->watcher().watch({.completion = std::move(completion),
                                   .end = message->before,
                                   .communicator = nullptr,
                                   .what = [what = message->what] { return what; },
                                   .deadline = message->deadline,
                                   .timeout = message->timeout,
                                   .kept = std::move(data)});
        return message;
    }

    // The memory comes back when its last handle goes.
    std::shared_ptr<Memory> short_memory(const Place& place, std::size_t bytes) {
        const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 256));
        const std::pair key(place.device.type, size);
        std::unique_ptr<Memory> memory;
        {
            const std::lock_guard lock(mutex_);
            auto& free = short_memory_[key];
            if (!free.empty()) {
                memory = std::move(free.back());
                free.pop_back();
            }
        }
        if (!memory) memory = std::make_unique<Memory>(place.driver, place.device.index, size);
        return {memory.release(), [weak = weak_from_this(), key](Memory* over) {
                    std::unique_ptr<Memory> back(over);
                    const auto self = weak.lock();
                    if (!self) return;
                    const std::lock_guard lock(self->mutex_);
                    self->short_memory_[key].push_back(std::move(back));
                }};
    }

    // Call it with the lock held.
    Driver::StreamHandle own_stream(const Place& place) {
        auto& stream = own_streams_[place.device.type];
        if (!stream) {
            stream = std::make_unique<OwnStream>(place.driver, place.device.index,
                                                 context_->nccl_options().is_high_priority_stream);
        }
        return stream->handle();
    }

    // ---- Sending

    void offer(const MessagePtr& message) {
        const BackendRequest& r = message->request;
        const auto frame = std::make_shared<Offer>(offer_of(*message));
        const auto time = message->is_copy() ? any_time : message->timeout;
        const Work sent = Matching::send(*frame, r.root, matching_.offers(r.tag), time);
        Matching::at_end(sent, [self = shared_from_this(), message, frame](const std::exception_ptr& error) {
            if (error && self->unlist(*message)) self->fail(*message, error);
        });
        if (r.root == context_->rank()) return;
        const auto answer = std::make_shared<Answer>();
        Work answered;
        {
            // An answer may belong to another message than the one that awaits it; answers come in this order.
            const std::lock_guard lock(answers_mutex_);
            answered = Matching::receive(*answer, r.root, matching_.answers(), time);
            answers_[r.root].push_back({answered, answer});
        }
        Matching::at_end(answered, [self = shared_from_this(), message](const std::exception_ptr& error) {
            if (!error) return self->take_answers(message->request.root);
            if (self->unlist(*message)) self->fail(*message, error);
        });
    }

    // Takes the answers that have come, in their order.
    void take_answers(int from) {
        std::vector<std::pair<MessagePtr, Answer>> over;
        {
            const std::lock_guard lock(answers_mutex_);
            auto& awaited = answers_[from];
            while (!awaited.empty() && awaited.front().work.is_completed()) {
                const Awaited first = std::move(awaited.front());
                awaited.pop_front();
                if (first.work.exception()) continue;
                MessagePtr message = unlist_sent(first.answer->number);
                if (!message) continue;  // the message has ended meanwhile
                message->peer = from;
                if (message->is_copy()) message->deadline = Clock::now() + message->timeout;  // nobody has waited yet
                if (first.answer->verdict == Verdict::go)
                    give_to_lane(std::move(message), first.answer->has_id != 0 ? &first.answer->id : nullptr);
                else
                    over.emplace_back(std::move(message), *first.answer);
            }
        }
        for (const auto& [message, answer] : over) {
            leave_lane();
            if (answer.verdict == Verdict::refused)
                refuse(*message, answer.expected);
            else
                message->succeed(-1);
        }
    }

    // ---- Receiving

    void expect(const MessagePtr& message) {
        const BackendRequest& r = message->request;
        const auto frame = std::make_shared<Offer>();
        const Work work = Matching::receive(*frame, r.root, matching_.offers(r.tag), message->timeout);
        Matching::at_end(work, [self = shared_from_this(), message, frame, work](const std::exception_ptr& error) {
            if (!self->unlist(*message)) return;
            if (error) return self->fail(*message, error);
            message->peer = work.source_rank();
            message->number = frame->number;
            try {
                self->meet(message, *frame);
            } catch (...) {
                self->fail(*message, std::current_exception());
            }
        });
    }

    void meet(const MessagePtr& message, const Offer& offer) {
        const Offer expected = offer_of(*message);
        const bool is_own = message->peer == context_->rank();
        const MessagePtr own = is_own ? unlist_sent(offer.number) : nullptr;
        if (is_own && !own) throw Aborted(message->what + ": its send has ended");
        if (offer.count != expected.count || offer.dtype != expected.dtype ||
            offer.device_type != expected.device_type) {
            if (own) {
                leave_lane();
                own->fail(mismatch(*own, expected));
            } else {
                answer(message->peer, {.number = offer.number, .verdict = Verdict::refused, .expected = expected});
            }
            return message->fail(mismatch(*message, offer));
        }
        if (own) {
            leave_lane();
            return carry_here(*own, *message);
        }
        if (offer.count > 0) return give_to_lane(message, nullptr);
        answer(message->peer, {.number = offer.number, .verdict = Verdict::nothing_to_carry});
        message->succeed(message->peer);
    }

    void answer(int to, const Answer& words) {
        const auto frame = std::make_shared<Answer>(words);
        Matching::at_end(Matching::send(*frame, to, matching_.answers(), context_->timeout()),
                         [self = shared_from_this(), frame, to](const std::exception_ptr& error) {
                             if (!error) return;
                             self->context_->fail(
                                 with_title(self->context_->title(), "an answer to rank " + std::to_string(to), error));
                         });
    }

    void carry_here(const Message& sent, const Message& received) {
        const Place& place = received.place;
        const int source = context_->rank();
        if (sent.bytes() == 0 || !place.driver->has_streams()) {
            if (sent.bytes() > 0)
                place.driver->copy(received.request.output, sent.request.input, sent.bytes(), nullptr);
            sent.succeed(-1);
            return received.succeed(source);
        }
        std::shared_ptr<Event> end;
        try {
            const CurrentDevice current(*place.driver, place.device.index);
            const std::lock_guard lock(mutex_);
            const Driver::StreamHandle stream = own_stream(place);
            sent.before->make_wait(stream);
            received.before->make_wait(stream);
            place.driver->copy(received.request.output, sent.request.input, sent.bytes(), stream);
            end = place.events->record(stream);
        } catch (...) {
            sent.fail(std::current_exception());
            throw;
        }
        for (const Message* message : {&sent, &received}) {
            context_->watcher().watch({.completion = message->completion,
                                       .end = end,
                                       .communicator = nullptr,
                                       .what = [what = message->what] { return what; },
                                       .deadline = message->deadline,
                                       .timeout = message->timeout,
                                       .source = message == &sent ? -1 : source});
        }
    }

    // ---- Lanes

    void give_to_lane(MessagePtr message, const UniqueId* id) {
        std::exception_ptr error;
        try {
            const std::lock_guard lock(mutex_);
            if (!message->sends()) ++matched_;
            error = error_;
            if (!error) return lane_of(*message).add(message, id == nullptr ? std::nullopt : std::optional(*id));
        } catch (...) {
            error = std::current_exception();
        }
        leave_lane();
        fail(*message, error);
    }

    Lane& lane_of(const Message& message) {
        const bool sends = message.sends();
        auto& lane =
            lanes_[{message.place.device.type, message.peer, sends ? Direction::to_peer : Direction::from_peer}];
        if (lane) return *lane;
        Lane::Parts parts{.context = context_, .place = message.place, .peer = message.peer, .sends = sends};
        const auto self = shared_from_this();
        if (!sends) {
            parts.go = [self](const Message& m, const UniqueId* id) {
                Answer words{.number = m.number, .verdict = Verdict::go, .has_id = id != nullptr ? 1U : 0U};
                if (id != nullptr) words.id = *id;
                self->answer(m.peer, words);
            };
        }
        parts.cause = [self] { return self->cause(); };
        parts.over = [self] { self->leave_lane(); };
        parts.failed = [self](const MessagePtr& m, const std::exception_ptr& error) {
            self->leave_lane();
            self->context_->fail(error);  // first: a caller that sees the failure may leave the group at once
            m->fail(self->context_->error());
        };
        auto made = std::make_shared<Lane>(std::move(parts));
        made->start();
        lane = std::move(made);
        return *lane;
    }

 public:
    // The error that has ended the group, here or elsewhere; null: none.
    std::exception_ptr cause() const {
        const auto error = context_->error();
        return error ? error : matching_.failure();
    }

 private:
    void leave_lane() {
        const std::lock_guard lock(mutex_);
        --matched_;
        changed_.notify_all();
    }

    // ---- Lists, and ends

    Offer offer_of(const Message& message) const {
        return {message.number, message.request.count, static_cast<std::uint32_t>(message.request.dtype),
                static_cast<std::uint32_t>(message.place.device.type)};
    }

    // Lists an unmatched message. Returns the error once the group is over.
    std::exception_ptr list(const MessagePtr& message) {
        const std::lock_guard lock(mutex_);
        if (error_) return error_;
        message->number = ++numbers_;
        unmatched_[message->number] = message;
        return nullptr;
    }
    // Returns true to one caller, which completes the message.
    bool unlist(const Message& message) {
        const std::lock_guard lock(mutex_);
        const auto found = unmatched_.find(message.number);
        if (found == unmatched_.end() || found->second.get() != &message) return false;
        unmatched_.erase(found);
        changed_.notify_all();
        return true;
    }
    // The message counts as matched from then on, until leave_lane().
    MessagePtr unlist_sent(std::uint64_t number) {
        const std::lock_guard lock(mutex_);
        const auto found = unmatched_.find(number);
        if (found == unmatched_.end() || !found->second->sends()) return nullptr;
        MessagePtr message = std::move(found->second);
        unmatched_.erase(found);
        ++matched_;
        return message;
    }

    std::exception_ptr mismatch(const Message& message, const Offer& theirs) const {
        const Offer mine = offer_of(message);
        return std::make_exception_ptr(CollectiveMismatch(
            context_->title() + ": " + message.what + ": this rank " + (message.sends() ? "sends " : "expects ") +
                mine.words() + ", and rank " + std::to_string(message.sends() ? message.request.root : message.peer) +
                (message.sends() ? " expects " : " sends ") + theirs.words(),
            {.operation = message.request.name, .rank = context_->rank(), .peer = message.peer}));
    }

    // A short send is over already for its caller, which gets the error in the next operation.
    void refuse(const Message& message, const Offer& expected) {
        const auto error = mismatch(message, expected);
        message.fail(error);
        if (message.is_copy()) context_->fail(error);
    }

    // A failed message fails the group, as its other side waits for it. A copy for a rank that has left fails silently.
    void fail(const Message& message, const std::exception_ptr& error) {
        if (const auto cause = context_->error()) return message.fail(cause);
        if (message.is_copy() && has_lost_its_peer(error)) return;
        const auto told = with_title(context_->title(), message.what, error);
        {
            const std::lock_guard lock(mutex_);
            if (!error_ && message.completion) failed_.push_back(*message.completion);
        }
        context_->suspect(told);
        if (const auto cause = context_->error()) message.fail(cause);
    }

    static bool has_lost_its_peer(const std::exception_ptr& error) {
        try {
            std::rethrow_exception(error);
        } catch (const PeerLost&) {
            return true;
        } catch (...) {
            return false;
        }
    }

    void end(const std::exception_ptr& error) {
        std::map<std::uint64_t, MessagePtr> unmatched;
        std::vector<std::shared_ptr<Lane>> lanes;
        std::vector<BackendCompletion> failed;
        {
            const std::lock_guard lock(mutex_);
            if (error_) return;
            error_ = error;
            unmatched.swap(unmatched_);
            failed.swap(failed_);
            for (const auto& [key, lane] : lanes_) lanes.push_back(lane);
            changed_.notify_all();
        }
        for (const auto& lane : lanes) lane->end(error);
        for (const BackendCompletion& completion : failed) completion.failure(error);
        for (const auto& [number, message] : unmatched) message->fail(error);
    }

    const std::shared_ptr<Context> context_;
    const Matching matching_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::exception_ptr error_;
    std::uint64_t numbers_ = 0;
    std::map<std::uint64_t, MessagePtr> unmatched_;  // by number
    std::map<LaneKey, std::shared_ptr<Lane>> lanes_;
    std::map<Device::Type, std::unique_ptr<OwnStream>> own_streams_;                                     // for copies
    std::map<std::pair<Device::Type, std::size_t>, std::vector<std::unique_ptr<Memory>>> short_memory_;  // by size
    std::vector<BackendCompletion> failed_;  // until the cause is known
    std::size_t matched_ = 0;                // messages in lanes

    std::mutex answers_mutex_;                    // before mutex_
    std::map<int, std::deque<Awaited>> answers_;  // by the answer's sender
};

Messages::Messages(std::shared_ptr<Context> context) : core_(std::make_shared<Core>(std::move(context))) {
    core_->start();
}
Messages::~Messages() {
    core_->stop();
}
void Messages::run(const BackendRequest& request, BackendCompletion completion) {
    core_->run(request, std::move(completion));
}
std::function<std::exception_ptr()> Messages::probe() const {
    return [weak = std::weak_ptr<Core>(core_)]() -> std::exception_ptr {
        const auto core = weak.lock();
        return core ? core->cause() : nullptr;
    };
}
bool Messages::drain(Clock::time_point until) {
    return core_->drain(until);
}

}  // namespace tutti::nccl
