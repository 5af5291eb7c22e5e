// Mailbox: messages between the ranks of one world over streams: one frame format, matching, two protocols.
//
// A message is sent on a channel (a collective's sequence number, or a tag) and meets the receive of the same channel
// and source; messages of one source and channel are matched in order. Short messages travel at once with their header
// (eager). Where no receive is posted they wait in the stream while it fills other receives, then in memory. Each peer
// may have a bounded number of bytes under way like that; it gets that credit back as receives take them, mostly with
// messages that go the other way anyhow. A message that is longer, or exceeds that bound, announces itself (request to
// send) and moves straight between the user's buffers once the receive has answered (clear to send), so memory stays
// bounded and no long message keeps others waiting for a receive that comes later.
//
// Every header carries the world's id with its generation, and a fingerprint of the operation. A frame of another
// world is refused; a fingerprint or length that differs from the receive's is a mismatch, reported with both sides.
//
// Threads: one at a time (the group's lock). Transfers belong to the caller and must stay where they are while posted.
#pragma once

#include "core/deadline.hpp"
#include "core/waiting.hpp"
#include "transport/shm/neighbours.hpp"

#include <tutti/transport.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::transport {

/// The frame header; little-endian machines only, like the rest of the wire format.
struct Frame {
    enum class Kind : std::uint32_t {
        eager = 1,
        request = 2,
        clear = 3,
        data = 4,
        probe = 5,
        credit = 6,
        taken = 7,
        refused = 8,
        finished = 9
    };
    static constexpr std::uint32_t magic_number = 0x54554954;  // "TIUT"
    std::uint32_t magic = magic_number;
    Kind kind = Kind::eager;
    std::uint64_t world = 0;
    std::uint64_t channel = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t length = 0;   ///< bytes of the whole message
    std::uint64_t id = 0;       ///< request, clear, data: the sender's transfer; eager, credit: bytes given back;
                                ///< refused: the request that nobody will take, 0: the answer to a probe;
                                ///< finished: nothing, it is the answer to a probe
    std::uint64_t address = 0;  ///< request: where the message lies (an address or a Place), when the receiver may read
                                ///< it there; else 0
};
static_assert(sizeof(Frame) == 56);

inline constexpr int any_source = -1;
inline constexpr std::uint64_t collective_channel = std::uint64_t{1} << 63;

/// One send or receive in progress.
struct Transfer {
    int peer = any_source;  ///< receives: becomes the sender's rank once matched
    std::uint64_t channel = 0;
    std::uint64_t fingerprint = 0;
    const std::byte* source = nullptr;  ///< sends
    std::byte* target = nullptr;        ///< receives into memory
    std::size_t bytes = 0;
    /// Receives that combine: gets the bytes in order, whole elements at a time.
    std::function<void(std::size_t offset, std::span<const std::byte>)> on_bytes;
    std::size_t element_bytes = 1;
    bool done = false;
    bool refused = false;  ///< sends: its receiver has left the group without it
    std::size_t bytes_done = 0;
};

/// The calls behind a mailbox's channels, as its owner knows them. Asked under the mailbox's lock.
class Calls {
 public:
    virtual ~Calls() = default;
    /// Whether this rank has left the group with that channel, or leaves it: no receive will come.
    virtual bool has_left(std::uint64_t /*channel*/) const { return false; }
    /// The fingerprint of this rank's collective on a channel; 0: it is not known (yet).
    virtual std::uint64_t fingerprint_of(std::uint64_t /*channel*/) const { return 0; }
    /// Whether a collective with that channel is over here: no receive will come.
    virtual bool has_finished(std::uint64_t /*channel*/) const { return false; }
    /// Whether all that goes to a peer on the channel of a collective has been given to its stream.
    virtual bool has_sent_all(int /*peer*/, std::uint64_t /*channel*/) const { return false; }
};

/// Something that a mailbox has found and cannot settle itself.
struct Finding {
    enum class Kind : std::uint8_t {
        mismatch,    ///< a peer's message does not fit the receive that it meets, or a probe found another operation
        damaged,     ///< bytes of a peer changed on the way; its stream is closed
        left_group,  ///< a peer has left the group with that channel: all that it sent there has been seen
    };
    Kind kind = Kind::mismatch;
    int peer = -1;
    std::uint64_t channel = 0;
    std::uint64_t theirs = 0, mine = 0;         ///< mismatch: fingerprints
    std::size_t their_bytes = 0, my_bytes = 0;  ///< mismatch
    std::string what{};                         ///< damaged
};

/// How the stream from a peer ended.
struct StreamEnd {
    Instant when;
    std::string broken{};  ///< why it broke off; empty: its peer has said that nothing more comes
};

class Mailbox {
 public:
    /// `neighbours`: null where no memory is shared. All three must outlive it.
    Mailbox(int rank, int size, std::uint64_t world, Streams& streams, const Calls& calls,
            const Neighbours* neighbours = nullptr);
    ~Mailbox();
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;

    /// `transfer.done` becomes true when the source may be written again.
    void post_send(Transfer& transfer);
    /// `transfer.done` becomes true when the target holds the message.
    void post_receive(Transfer& transfer);
    /// Sends a short message at once, without a Transfer; where that is not possible, does nothing and returns false.
    bool send_now(int to, std::uint64_t channel, std::uint64_t fingerprint, std::span<const std::byte> payload);
    /// Fills a receive of a named source that is not posted, with a short message that is there or comes within
    /// `spins` looks. False: post it. Receives of that source and channel must not be posted meanwhile.
    bool receive_now(Transfer& receive, Waiting& waiting);
    /// Tells a peer what this rank waits for, so that a mismatch shows where no message would show it.
    void probe(int peer, std::uint64_t channel, std::uint64_t fingerprint);
    /// Compares the messages that came on a channel before its operation began here.
    void check_unexpected(std::uint64_t channel, std::uint64_t fingerprint);
    /// The operation is over: a message that came on its channel and met no receive is a mismatch.
    void check_surplus(std::uint64_t channel, std::uint64_t fingerprint);
    /// From now on looks for messages of this peer, also if nothing is posted for it.
    void activate(int peer) { this->peer(peer); }
    /// Moves all that can move now; true if anything did.
    bool progress();
    /// This rank's own messages of so many bytes or more go that way. Call before the first one.
    void pull_from(std::size_t bytes) noexcept { pull_bytes_ = bytes; }
    /// Its findings since the last call. After a mismatch the mailbox makes no progress: its owner has to end it.
    std::vector<Finding> take_findings() { return std::exchange(findings_, {}); }
    bool has_findings() const noexcept { return !findings_.empty(); }
    /// Forgets all transfers; their owners are about to go.
    void drop_all();
    /// Forgets one receive that nothing has met yet; false if it is already being filled.
    bool cancel_receive(Transfer& transfer);
    /// Forgets one send that its receiver will not take: to this rank itself, refused, or to a rank that has left.
    void cancel_send(Transfer& transfer);
    /// Refuses the messages that have been announced for groups that this rank has left.
    void refuse_unmet();
    /// Says on every stream that nothing more will come, once that is so. Returns the peers that may still lack bytes
    /// that this rank sent: call it again for them.
    std::vector<int> finish();
    /// How the stream from a peer ended, once all of it has been read; null: something may come.
    const StreamEnd* end_of(int peer) const noexcept;
    /// The same, or this rank has given the stream up.
    bool is_over(int peer) const noexcept;
    /// Descriptors worth polling: for input, or for output where something is queued.
    void pollables(std::vector<Pollable>& into) const;

    /// From here on messages of ranks of this host are read where they lie, if that is possible: copied once, by a call
    /// of the kernel. Shorter ones are copied twice, by both sides at the same time where every rank has a core. A
    /// message in memory that the other maps too needs no such call, and is copied once from 48 KB on in any case.
    static constexpr std::size_t pull_bytes_on_shared_cores = std::size_t{48} << 10;
    static constexpr std::size_t pull_bytes_on_own_cores = std::size_t{128} << 10;
    static constexpr std::size_t eager_bytes = std::size_t{256} << 10;  ///< of one message
    static constexpr std::size_t credit_bytes = std::size_t{2} << 20;   ///< of one peer's, not consumed yet

 private:
    struct Peer;
    struct Unexpected;

    Peer& peer(int rank) {
        auto& slot = peers_[static_cast<std::size_t>(rank)];
        if (!slot) [[unlikely]]
            meet(rank);
        return *slot;
    }
    void meet(int rank);
    bool is_posted(int source, std::uint64_t channel) const;
    Transfer* take_posted(int source, std::uint64_t channel);
    void count_posted(const Transfer& receive, int by);
    void await(int rank, int by);
    bool looks_at(const Peer& peer, const Stream& stream) const;
    void deliver_local(Transfer& send, Transfer& receive);
    bool check(int source, const Frame& frame, const Transfer& receive);
    void enqueue(int to, const Frame& frame, const std::byte* payload, std::size_t bytes, Transfer* transfer);
    bool write_some(int to, Peer& peer);
    bool read_some(int from, Peer& peer);
    void look_at_end(int from, Peer& peer, const Stream& stream);
    void refuse(int to, std::uint64_t channel, std::uint64_t id);
    void mismatch(int peer, const Frame& frame, std::uint64_t mine, std::size_t their_bytes, std::size_t my_bytes);
    static void lose(Peer& peer, std::string why);
    const PeerMemory* memory_of(int peer) const;
    bool on_header(int from, Peer& peer);
    bool put_short(int to, const Frame& frame);
    std::uint64_t place_of(int to, std::span<const std::byte> payload) const;
    bool on_short_frame(int from, Peer& peer, Stream& stream, const ShortMessage& message);
    bool on_short(int from, Peer& peer, Stream& stream, const ShortMessage& message, Transfer* receive);
    bool count_eager(Peer& peer, std::uint64_t bytes, std::uint64_t given_back);
    void take_short(Stream& stream, Transfer& receive);
    bool check_unmet(int from, const Frame& frame);
    bool on_probe(int from, const Frame& frame);
    void on_finished(int from, const Frame& frame);
    void on_payload_complete(Peer& peer);
    bool next_header(Peer& peer, Stream& stream);
    std::size_t take(Peer& peer, Stream& stream, std::span<std::byte> into);
    std::size_t read_payload(Peer& peer, Stream& stream);
    void consumed(int source, const Frame& frame);
    static std::uint64_t give_back(Peer& peer);
    /// When this rank clears the sender to send: at once, or behind the messages that it posts in the same turn.
    enum class When { now, next_turn };
    void grant(int source, const Frame& request, Transfer& receive, When when);
    void clear(int source, std::uint64_t id, Transfer& receive, When when);
    struct Pull;
    bool pull_some();
    bool pull_piece_of(const Pull& pull, std::size_t piece);

    int rank_;
    std::uint64_t world_;
    Streams& streams_;
    const Calls& calls_;
    const Neighbours* neighbours_;
    std::vector<Finding> findings_;
    std::size_t pull_bytes_ = pull_bytes_on_shared_cores;
    struct Pull {
        int source = 0;
        std::uint64_t id = 0, address = 0;
        Transfer* receive = nullptr;
    };
    std::deque<Pull> pulls_;  // receives that read the sender's memory
    std::vector<std::unique_ptr<Peer>> peers_;
    std::vector<int> active_;                                              // ranks with a Peer
    std::unordered_map<std::uint64_t, std::list<Transfer*>> posted_;       // by channel, in order
    std::unordered_map<std::uint64_t, std::list<Unexpected>> unexpected_;  // by channel, in order of arrival
    std::unordered_map<std::uint64_t, Transfer*> waiting_sends_;           // announced, by id
    std::unordered_map<std::uint64_t, Transfer*> granted_;                 // receives, by (source, id) hash
    std::uint64_t next_id_ = 1;
    std::vector<std::pair<int, Frame>> clears_;  // for the next turn, each with its receiver
    std::size_t posted_for_any_ = 0;             // receives of any source
    unsigned turns_ = 0;
    std::vector<std::byte> bounce_;
};

}  // namespace tutti::transport
