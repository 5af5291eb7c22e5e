// Lane: the messages that one rank sends to another: a communicator of the two, a stream, and a thread that makes the
// communicator at the first message and puts sends, or receives, into the stream in the receiver's order. Each lane has
// a thread, as the library's calls may wait for the other side: the first call to connect, and in host memory all
// calls.
//
// Threads: any. A lane completes each of its messages, once.
#pragma once

#include "nccl/context.hpp"

#include <tutti/backend.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::nccl {

/// A send or a receive from its call to its end.
struct Message {
    Message(const BackendRequest& r, BackendCompletion c, const Place& p)
        : request(r), completion(std::move(c)), place(p) {}
    /// A short send of a copy, so that it is over for its caller, which has no part in it any more.
    Message(std::unique_ptr<const BackendRequest> own_request, std::shared_ptr<Memory> own_data, const Place& p)
        : own(std::move(own_request)), data(std::move(own_data)), request(*own), place(p) {}
    bool is_copy() const noexcept { return own != nullptr; }
    void succeed(int source) const {
        if (completion) completion->success(source);
    }
    void fail(const std::exception_ptr& error) const {
        if (completion) completion->failure(error);
    }
    bool sends() const noexcept { return request.call == BackendCall::send; }
    std::size_t bytes() const noexcept { return request.count * size_of(request.dtype); }

    const std::unique_ptr<const BackendRequest> own;
    const std::shared_ptr<Memory> data;
    const BackendRequest& request;
    const std::optional<BackendCompletion> completion;
    const Place& place;
    std::string what;               ///< "send of 4 float32 to rank 1 with tag 3"
    std::shared_ptr<Event> before;  ///< in the caller's stream
    Clock::time_point deadline{};
    std::chrono::milliseconds timeout{0};
    int peer = -1;             ///< the rank of the matched other side
    std::uint64_t number = 0;  ///< the sender's number of it
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
    /// Answers "go" to the sender, the first time with the id of the new communicator.
    using Go = std::function<void(const Message& message, const UniqueId* id)>;
    struct Parts {
        std::shared_ptr<Context> context;
        const Place& place;
        int peer = -1;
        bool sends = false;
        std::function<std::exception_ptr()> cause;  ///< the error that has ended the group elsewhere; null: none yet
        Go go{};                                    ///< of a lane that receives
        std::function<void()> over;                 ///< a message is complete, or with the context's watcher
        /// A message has failed: this function completes it.
        std::function<void(std::shared_ptr<Message> message, std::exception_ptr error)> failed;
    };

    explicit Lane(Parts parts) : parts_(std::move(parts)) {}
    void start();
    /// `id`: with the sender's first message.
    void add(std::shared_ptr<Message> message, std::optional<UniqueId> id = {});
    /// Messages that it holds, or gets later, fail with `error`.
    void end(const std::exception_ptr& error);
    /// When its thread has completed all messages, it ends the communicator, and then itself.
    void close();
    void join();

 private:
    void work();
    void carry_all(std::vector<std::shared_ptr<Message>>& messages);
    std::exception_ptr await_cause(std::exception_ptr symptom) const;
    void connect(const Message& first);
    void carry(const Message& message);

    const Parts parts_;
    std::thread thread_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::shared_ptr<Message>> queue_;
    std::optional<UniqueId> id_;
    std::exception_ptr error_;
    bool stopping_ = false;

    // The thread's alone.
    std::shared_ptr<Communicator> communicator_;
    std::unique_ptr<OwnStream> stream_;
};

}  // namespace tutti::nccl
