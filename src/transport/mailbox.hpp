// Mailbox: messages between the ranks of one world over streams: one frame format, matching, two protocols.
//
// A message is sent on a channel (a collective's sequence number, or a tag) and matches a receive of the same channel
// and source; messages of one source and channel match in order. Short messages are sent at once with their header
// (eager). If no receive is posted, they wait in the stream while it fills other receives, then in memory. Credit
// bounds the eager bytes that each peer may have under way; the receiver gives it back as receives consume them, mostly
// in messages that it sends anyway. A message of more than eager_bytes, or one beyond the credit, is announced
// (request to send) and moves straight between the user's buffers once the receiver has answered (clear to send), so
// memory stays bounded and no long message blocks others while its receive is not posted.
//
// Every header carries the world's id with its generation, and a fingerprint of the operation. A frame of another
// world is refused; a fingerprint or length that differs from the receive's is a mismatch, reported with both sides.
//
// Threads: one at a time (the group's lock). Transfers belong to the caller and must stay where they are while posted.
#pragma once

#include "core/waiting.hpp"
#include "transport/call_checks.hpp"
#include "transport/findings.hpp"
#include "transport/frame.hpp"
#include "transport/frame_reader.hpp"
#include "transport/library_messages.hpp"
#include "transport/long_messages.hpp"
#include "transport/matching.hpp"
#include "transport/peers.hpp"
#include "transport/shm/neighbours.hpp"
#include "transport/single_copy_receives.hpp"
#include "transport/transfer.hpp"

#include <tutti/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tutti::transport {

class Mailbox {
 public:
    /// `neighbours`: null if the ranks share no memory. `streams`, `calls` and `neighbours` must outlive the mailbox.
    Mailbox(int rank, int size, std::uint64_t world, Streams& streams, const Calls& calls,
            const Neighbours* neighbours = nullptr);
    ~Mailbox();
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    /// `transfer.done` becomes true when the source may be written again.
    void post_send(Transfer& transfer);
    /// `transfer.done` becomes true when the target holds the message; of a probe or claim, when it describes one.
    void post_receive(Transfer& transfer);
    /// Lets others have a claimed message again: a receive that waits gets it now, else it is where it was. Nothing
    /// happens if the message has been dropped (drop_all, refuse_unmet, cancel_send).
    void release(std::uint64_t channel, std::uint64_t message);
    /// Sends a short message at once, without a Transfer; returns false, without effect, if that is not possible.
    bool send_now(int to, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload);
    /// Fills a receive that is not posted, from a named source, with a short message that has arrived or arrives within
    /// the polls that `waiting` allows. False: post the receive. No other receive of the same source and channel may be
    /// posted meanwhile.
    bool receive_now(Transfer& receive, Waiting& waiting);
    /// Tells a peer what this rank waits for, so that the peer detects a mismatch even if no message would show it.
    void probe(int peer, std::uint64_t channel, std::uint64_t fingerprint);
    /// For the owner, which compares operations as a collective begins and ends.
    CallChecks& checks() noexcept { return checks_; }
    /// From now on polls the stream of this peer, even if nothing is posted for it.
    void activate(int peer) { peers_.at(peer); }
    /// Moves all that can move now; true if anything did.
    bool progress();
    /// The receiver reads this rank's messages of `bytes` or more in place (SingleCopyReceives). Call before the first
    /// one.
    void pull_from(std::size_t bytes) noexcept { pulls_.pull_from(bytes); }
    /// The findings since the last call. After a mismatch the mailbox makes no progress: its owner has to end it.
    std::vector<Finding> take_findings() { return findings_.take(); }
    bool has_findings() const noexcept { return !findings_.empty(); }
    /// Forgets all transfers, which their owners are about to destroy. From now on finish() announces no end.
    void drop_all();
    /// Forgets a receive, probe or claim that no message has matched; false if a message is already filling it.
    bool cancel_receive(Transfer& transfer);
    /// Forgets a send that no receiver will take: to this rank itself, refused, or to a rank that has left.
    void cancel_send(Transfer& transfer);
    /// Calls `see(source, channel, fingerprint)` for each message that has arrived and matched no receive.
    void for_each_unmatched(const std::function<void(int, std::uint64_t, std::uint64_t)>& see) const {
        matching_.for_each_unexpected([&](const Unexpected& message) {
            if (message.bound == nullptr) see(message.source, message.frame.channel, message.frame.fingerprint);
        });
    }
    /// Refuses the messages that peers have announced for groups that this rank has left.
    void refuse_unmet();
    /// Tells every peer that nothing more will come, once that is true. Returns the peers that may still lack bytes
    /// that this rank sent: call it again for them.
    std::vector<int> finish();
    /// How the stream from a peer ended, once this rank has read all of it; null: more may come.
    const StreamEnd* end_of(int peer) const noexcept;
    /// Whether the stream from a peer has ended, or this rank has given it up.
    bool is_over(int peer) const noexcept;
    /// Descriptors worth polling: for input, or for output where something is queued. After a poll the next turn looks
    /// at all of them.
    void pollables(std::vector<Pollable>& into);
    /// Whether threads of the transport move the bytes (Streams::has_threads).
    bool has_threads() const noexcept { return streams_.has_threads(); }

    /// The length from which a receiver on this host reads messages in place (SingleCopyReceives).
    static constexpr std::size_t pull_bytes_on_shared_cores = SingleCopyReceives::bytes_on_shared_cores;
    static constexpr std::size_t pull_bytes_on_own_cores = SingleCopyReceives::bytes_on_own_cores;
    static constexpr std::size_t eager_bytes = std::size_t{256} << 10;  ///< the longest eager message
    /// The same to a peer that is far (Stream::is_far): the credit has room for two.
    static constexpr std::size_t eager_bytes_to_far = std::size_t{1} << 20;

 private:
    Transfer* take_posted(int source, std::uint64_t channel);
    void count_awaited(const Transfer& receive, int by);
    void enqueue(int to, const Frame& frame, Transfer* transfer);
    /// Sends a frame without payload, with this world's id.
    void say(int to, Frame::Kind kind, std::uint64_t channel, std::uint64_t id, std::uint64_t fingerprint = 0);
    void send_to_itself(Transfer& transfer);
    void meet(Unexpected& message, Transfer& receive);
    static void describe(Unexpected& message, Transfer& probe);
    /// Of a message that no receive waits for.
    void tell_probes(Unexpected& message);
    bool is_eager(const Peer& peer, std::size_t bytes);
    bool read_some(Peer& peer);
    bool on_short(Peer& peer, Stream& stream, const ShortMessage& message, Transfer* receive);
    bool on_frame(Peer& peer, const Frame& frame);
    bool on_eager(Peer& peer, const Frame& frame);
    bool on_request(Peer& peer, const Frame& frame);
    bool on_answer(Peer& peer, const Frame& frame);
    bool on_probe(Peer& peer, const Frame& frame);
    void on_payload_complete(Peer& peer);
    void consumed(Peer& peer, std::size_t length);
    /// When this rank clears the sender to send: at once, or after the messages that it posts in the same turn.
    enum class When { now, next_turn };
    void grant(int source, const Frame& request, Transfer& receive, When when);
    void clear(int source, std::uint64_t id, Transfer& receive, When when);
    bool pull_some();
    bool move_by_library();

    const int rank_;
    const std::uint64_t world_;
    Streams& streams_;
    Findings findings_;
    Matching matching_;
    CallChecks checks_;
    SingleCopyReceives pulls_;
    LongMessages long_messages_;
    LibraryMessages library_messages_;
    Peers peers_;
    Bounce bounce_;
    static constexpr unsigned turns_of_a_short_call = 16;
    unsigned turns_ = 0;
    unsigned idle_turns_ = turns_of_a_short_call;  // in a row, in which nothing has moved
    bool dropped_ = false;  // all transfers were dropped, so a stream may have broken off inside a message
};

}  // namespace tutti::transport
