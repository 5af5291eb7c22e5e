// Remote: one rank's requests to ranks of other hosts, for one window.
//
// Threads: any; the order of a thread's requests to one rank is that of its calls.
#pragma once

#include "window/memory.hpp"
#include "window/messages.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::window {

class Remote {
 public:
    Remote(Group& group, std::uint32_t number, const Memory& memory)
        : messages_(group, number),
          title_(memory.title()),
          unflushed_(static_cast<std::size_t>(group.size())),
          let_go_(static_cast<std::size_t>(group.size())) {}

    /// Issue a request to `target`, with a payload of its sent_bytes(). Throw as refuse() if the target has let go of
    /// the window.
    /// Of a request that has no answer: completes when the payload may be written again.
    std::shared_ptr<Operation> write(const char* name, int target, Request request, const void* payload,
                                     std::chrono::milliseconds timeout);
    /// Of one that has: completes when `answer` may be read. The payload may be written when the call returns.
    std::shared_ptr<Operation> read(const char* name, int target, Request request, const void* payload,
                                    std::span<std::byte> answer, std::chrono::milliseconds timeout);
    /// An operation that completes when all earlier requests to `target` have been carried out; null: none since the
    /// last flush.
    std::shared_ptr<Operation> flush(int target, std::chrono::milliseconds timeout);

    /// Notes that `rank` has let go of the window: from now on no request goes to it. `answers`: also sends it `heard`.
    void note_let_go(int rank, bool answers);
    bool was_let_go_by(int rank) const noexcept { return let_go_[static_cast<std::size_t>(rank)]; }
    /// Sends a request that has only a kind.
    void tell(int rank, Request::Kind kind) const;
    /// Throws InvalidArgument that names the call, the window and `owner`, which has let go of the window.
    [[noreturn]] void refuse(const char* name, int owner) const;

 private:
    class Sending;
    struct News {
        int rank;
        bool answers;
    };
    void check(const char* name, int target) const;
    std::shared_ptr<Operation> payload_of(const char* name, int target, const Request& request, const void* payload,
                                          std::chrono::milliseconds timeout) const;
    void take_news() noexcept;

    const Messages messages_;
    const std::string title_;
    std::mutex mutex_;  // held from a request to its last message
    std::vector<bool> unflushed_;
    std::vector<std::atomic<bool>> let_go_;  // written under mutex_
    std::mutex news_mutex_;                  // taken after mutex_
    bool busy_ = false;                      // a request and its messages are being sent
    std::vector<News> news_;
};

}  // namespace tutti::window
