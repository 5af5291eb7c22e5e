// The messages of a window between hosts: the requests of one rank to another, and how they are sent.
//
// A rank sends a Request, on the window's channel of requests. A payload that does not fit into the request
// follows on the channel of payloads; replies come on the channel of answers. Messages of one rank to another on one
// channel arrive in order, so payloads and answers do not name their request.
//
// Threads: any.
#pragma once

#include "group/group.hpp"
#include "operation/operation.hpp"

#include <tutti/window.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace tutti::window {

using detail::Group;
using detail::Operation;
using detail::WindowMessage;

struct Request {
    enum class Kind : std::uint16_t {
        put = 1,           ///< write `bytes` bytes at `offset`, then add `value` to `signal`, where it is not 0
        get,               ///< send back `bytes` bytes from `offset`
        accumulate,        ///< update `bytes` bytes at `offset` by `op`
        get_accumulate,    ///< the same, and send back what they were
        compare_and_swap,  ///< of one element; the payload is the expected one and the desired one
        flush,             ///< answer when all earlier requests have been done
        end,               ///< from a rank to itself: its window is closed
        let_go,            ///< the sender ends its window; it serves requests until `heard`
        heard,             ///< the answer to let_go: no more requests will come
    };
    static constexpr std::size_t payload_bytes = 64;

    Kind kind{};
    AccumulateOp op = AccumulateOp::no_op;
    std::uint32_t signal = 0;
    std::uint64_t value = 0;
    std::uint64_t offset = 0, bytes = 0;  ///< in the target's elements
    std::array<std::byte, payload_bytes> payload{};

    /// How many bytes go to the target, beside the request.
    std::size_t sent_bytes() const noexcept {
        switch (kind) {
            case Kind::put:
            case Kind::accumulate: return bytes;
            case Kind::get_accumulate: return op == AccumulateOp::no_op ? 0 : bytes;
            case Kind::compare_and_swap: return 2 * bytes;
            default: return 0;
        }
    }
    /// Whether they are in the request.
    bool is_whole() const noexcept { return sent_bytes() <= payload_bytes; }
};
static_assert(sizeof(Request) == 96, "ranks send its bytes");

/// One window's messages.
class Messages {
 public:
    /// `number`: the window's, equal on all ranks. The group must outlive the object.
    Messages(Group& group, std::uint32_t number) : group_(group), number_(number) {}

    Group& group() const noexcept { return group_; }
    /// Prepared messages to and from a rank of the group. `name`: a literal, for errors. `bytes` must stay valid until
    /// the message is complete.
    std::shared_ptr<Operation> send(const char* name, int to, WindowMessage way, std::span<const std::byte> bytes,
                                    std::chrono::milliseconds timeout) const;
    std::shared_ptr<Operation> receive(const char* name, int from, WindowMessage way, std::span<std::byte> bytes,
                                       std::chrono::milliseconds timeout) const;
    /// The same with a copy of the request.
    std::shared_ptr<Operation> send(const char* name, int to, const Request& request,
                                    std::chrono::milliseconds timeout) const;

    /// Issues a message. True: it is complete. False: `later` will be called on completion, without a lock, on the
    /// thread that completes the message.
    bool is_complete_at_once(const std::shared_ptr<Operation>& message, std::function<void()> later) const;

    static constexpr int any_rank = -1;
    /// The timeout of messages that wait for a peer's decision: a window's service has these, and no call waits for
    /// them.
    static constexpr std::chrono::milliseconds no_limit =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::duration::max());

 private:
    std::shared_ptr<Operation> message(const char* name, int peer, WindowMessage way, std::size_t bytes,
                                       std::chrono::milliseconds timeout) const;

    Group& group_;
    std::uint32_t number_;
};

}  // namespace tutti::window
