// The talk of the two sides of a message over the host group before its data moves: offers with the caller's tag, and
// answers apart from them.
//
// Threads: any; nothing here blocks but the constructor and failure().
#pragma once

#include "nccl/interface.hpp"

#include <tutti/backend.hpp>
#include <tutti/distributed.hpp>
#include <tutti/process_group.hpp>
#include <tutti/work.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace tutti::nccl {

// Both structures travel as they lie in memory: both sides are the same kind of machine.
struct Offer {
    std::uint64_t number = 0;  ///< the sender's number of the message
    std::uint64_t count = 0;
    std::uint32_t dtype = 0, device_type = 0;
    std::string words() const;  ///< "4 float32 on cuda"
};
enum class Verdict : std::uint32_t { go, nothing_to_carry, refused };
struct Answer {
    std::uint64_t number = 0;
    Verdict verdict = Verdict::go;
    std::uint32_t has_id = 0;
    UniqueId id{};     ///< of the first go
    Offer expected{};  ///< of a receiver that refused: the message that it would have taken
};

/// "send of 4 float32 to rank 1 with tag 3"
std::string name_of_message(const BackendRequest& request);

class Matching {
 public:
    struct Channel {
        const ProcessGroup& group;
        int tag;
    };

    /// All ranks make it together: it splits the host group.
    explicit Matching(const ProcessGroup& host_group) : host_group_(host_group), others_(host_group.split({})) {}

    Channel offers(std::uint64_t tag) const;
    Channel answers() const { return {others_, answer_tag}; }

    /// `frame` stays until the Work is over.
    template <class Frame>
    static Work send(Frame& frame, int to, Channel channel, std::chrono::milliseconds timeout) {
        return isend(bytes_of(frame), to, {.tag = channel.tag, .group = channel.group, .timeout = timeout});
    }
    /// `from`: -1, any rank.
    template <class Frame>
    static Work receive(Frame& frame, int from, Channel channel, std::chrono::milliseconds timeout) {
        RecvOptions options{.tag = channel.tag, .group = channel.group, .timeout = timeout};
        if (from >= 0) options.group_src = from;
        return irecv(bytes_of(frame), options);
    }
    /// `f` gets the error, or null; at once or later.
    template <class F>
    static void at_end(const Work& work, F f) {
        work.get_future().add_done_callback([work, f = std::move(f)](const auto&) { f(work.exception()); });
    }

    /// The error that has ended the host group, as other ranks reported it; null: none. Finds out by a message to
    /// oneself.
    std::exception_ptr failure() const;

 private:
    static constexpr int answer_tag = 0, probe_tag = 1, first_other_tag = 2;

    template <class Frame>
    static TensorView bytes_of(Frame& frame) {
        return view(reinterpret_cast<std::uint8_t*>(&frame), Extents::of(sizeof(Frame)));
    }

    const ProcessGroup host_group_;  // offers with callers' tags
    const ProcessGroup others_;      // answers, and offers of tutti's own messages
};

}  // namespace tutti::nccl
