// Membership: the ranks of a world, where each listens, and which have died.
//
// Joining costs a rank three requests to the store: it makes its will, so that the others learn of its end, writes its
// card, and reads the table that rank 0 makes of all cards (table.hpp). Then every rank connects to its parent in a
// binomial tree (at most log2 n connections a rank). These lifelines stay open: one that closes without a goodbye is a
// death, and the rank that sees it floods the news over the tree.
//
// Between two processes of one host a lifeline is a Unix socket. The kernel tells each end which process has the other
// one, so nothing has to be proved, and joining does not wait until the parent has looked. Across hosts, and where
// that fails, it is a TCP connection that both ends have proved before it counts.
//
// A rank that leaves stays for a moment, until its children have a new parent: the nearest of its ancestors that is
// still there, else the lowest rank. So there is no moment in which a death could go unnoticed, and the tree is never
// cut.
//
// Ranks answer news (ledger.hpp): a rank that began them knows when all have them. A neighbour that shows no sign of
// life is silent: stopped, or cut off. The ranks beside it tell all others so, and turn to its other neighbours
// directly, so that news reach every rank that can be reached. The kernel's probes detect a host that is gone without a
// word.
//
// Threads: one service thread per membership accepts connections, watches lifelines and calls the callbacks; a second
// one runs while the rank looks for a new parent; any thread may call the other methods.
#pragma once

#include "core/fork_guard.hpp"
#include "core/interrupt.hpp"
#include "core/seldom.hpp"
#include "core/socket.hpp"
#include "core/unique_fd.hpp"
#include "rendezvous/ledger.hpp"
#include "rendezvous/pulse.hpp"
#include "security/handshake.hpp"
#include "security/wire.hpp"

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace tutti::rendezvous {

struct Failure;
struct Table;

/// A rank's description of itself for the others: what PMI calls its business card.
struct Card {
    std::string listen_host;
    std::uint16_t listen_port = 0;
    std::string door;      ///< where ranks of this host attach their lifelines: an abstract Unix socket; empty: none
    std::string host_key;  ///< equal where memory can be shared
    std::string host_name;
    int process = 0;
    std::uint64_t process_space = 0;  ///< in which `process` means something
    std::uint16_t pulse_port = 0;     ///< open as long as the process lives; 0: none
    std::uint64_t place_to_try = 0;  ///< an address in the process, for ranks that try whether they may read its memory
    std::string cannot_share;        ///< why the rank shares no memory with others; empty: it can. For rank 0
    int world_size = 0;              ///< as this rank was told
    bool tls = false;                ///< it encrypts traffic that leaves its host
    std::string note;                ///< the rank's own text for the others
};

/// On one host and under one user, and each a process that the other can name.
inline bool are_near(const Card& a, const Card& b) {
    return a.host_key == b.host_key && a.process_space == b.process_space;
}

enum class VerdictKind : std::uint32_t {
    peer_lost = 1,
    mismatch = 2,
    aborted = 3,
    left = 4,
    timed_out = 5,
    host_lost = 6,  ///< peer_lost, and with it all ranks of its host
    silent = 7,     ///< it shows no sign of life; no failure by itself
    judged = 8,     ///< the judgement of a mismatch or a timeout, by the rank that decides
    damaged = 9,    ///< its data was changed on the way
};

/// News about the world; every rank gets the first of them.
struct Verdict {
    VerdictKind kind = VerdictKind::aborted;
    int rank = -1;  ///< the rank that it is about; -1: no known cause (not of peer_lost, left)
    std::string text;
    std::uint32_t group = 0;  ///< in which it happened; its meaning is the sender's
    int from = -1;            ///< the rank whose view this is, if it is one rank's
};

constexpr bool is_accusation(VerdictKind kind) {
    return kind == VerdictKind::mismatch || kind == VerdictKind::timed_out;
}
/// Whether `a` counts more of two accusations, equal on all ranks: a cause before a symptom, then the lower accuser's.
bool outranks(const Verdict& a, const Verdict& b);

struct MembershipOptions {
    Store store;  ///< for this world alone
    int rank = 0;
    int world_size = 1;
    Deadline deadline = Deadline::never();
    std::string listen_host;
    std::function<void(const Verdict&)> on_verdict;  ///< service thread
    /// The note for this rank's card, in the constructor. Called on rank 0, and on ranks that other hosts can reach.
    std::function<std::string()> note{};
    /// Rank 0, in the constructor: from all cards to a text that goes to every rank.
    std::function<std::string(const std::vector<Card>&)> decide{};
    /// In the constructor, before this rank connects to others: rank 0's decision. Where all ranks throw because of it,
    /// none looks for another that has gone.
    std::function<void(const std::string& decision)> on_decision{};
    /// A process of this host visits this rank; the connection is closed afterwards. Service thread.
    std::function<void(const UniqueFd&)> on_visit{};
    /// For this rank's card.
    std::uint64_t place_to_try = 0;
    std::string cannot_share{};
};

class Membership {
 public:
    /// Joins. Throws, on all ranks that came: a DistStoreError (timeout) that lists the missing; PeerLost that names
    /// the rank that could not join, and why; InvalidArgument for ranks that contradict each other.
    explicit Membership(MembershipOptions options);
    /// Says goodbye, waits (at most a second) until ranks that counted on this one have another parent, and closes.
    ~Membership();

    const std::vector<Card>& cards() const noexcept { return cards_; }
    /// Rank 0's decision; empty without MembershipOptions::decide.
    const std::string& decision() const noexcept { return decision_; }
    /// Unique to this world, equal on all ranks.
    std::uint64_t world_id() const noexcept { return world_id_; }
    const security::Secret& secret() const noexcept { return *secret_; }
    /// A fresh, authenticated connection on which we send to a rank.
    security::Connection connect(int rank, const Deadline& deadline, const AbortFlag* abort);
    /// A connection to a rank of this host, for MembershipOptions::on_visit. DistNetworkError if there is no way to it.
    UniqueFd visit(int rank, const Deadline& deadline, const AbortFlag* abort) const;
    bool has_incoming() const noexcept { return has_incoming_.load(std::memory_order_acquire); }
    /// Connections on which others send to us, since the last call.
    std::vector<std::pair<int, security::Connection>> take_incoming();
    /// Whether connections to a rank leave the host, and are encrypted.
    bool encrypts(int rank) const;
    /// The number of a round of accepting that begins after this call.
    std::uint64_t next_round() const noexcept;
    /// Whether that round is over: every connection made to this rank before is among the incoming ones. Hurries it.
    bool is_through(std::uint64_t round) const noexcept;
    /// Readable when there are incoming connections or a verdict.
    int wake_fd() const noexcept { return wake_.get(); }
    /// Tells every rank. Returns once the neighbours' sockets have it. False, and tells none, if it is known already,
    /// or an accusation that counts more is.
    bool flood(const Verdict& verdict);
    /// All ranks that can be reached have this one's flooded verdicts (on_verdict has returned there), and the
    /// unreachable ranks are known.
    bool settled();
    /// Whether the calling thread is one of a membership: it cannot wait for its own end.
    static bool on_own_thread() noexcept;

 private:
    struct Edge;
    struct Newcomer;
    struct News;

    void join();
    Card listen();
    void put(const Card& own);
    Table await_table(const UniqueFd& bell);
    Table gather(Card own, const UniqueFd& bell);
    std::vector<int> await_cards(std::vector<Card>& cards);
    void compare_encryption(const std::vector<Card>& cards);
    void settle_addresses(std::vector<Card>& cards);
    [[noreturn]] void refuse(const Failure& failure);
    Milliseconds left() const;
    std::string open_door();
    bool near(int rank) const;
    bool runs_at_other_end(int rank, const UniqueFd& fd) const;
    void build_tree();
    UniqueFd knock(int rank) const;
    security::Connection dial(int rank, bool lifeline, const Deadline& deadline, const AbortFlag* abort);
    security::Wire prove(int rank, int fd, const Deadline& deadline, const AbortFlag* abort) const;
    DistNetworkError unsafe(int rank, const DistNetworkError& cause) const;
    std::string tls_identity(int from, int to) const;
    bool is_for_this_rank(std::string_view identity) const;
    void turn_away(Newcomer& newcomer, std::string_view why);
    UniqueFd attach_unseen(int rank);
    void serve();
    void accept_newcomers();
    void welcome(Newcomer& newcomer);
    bool read_edge(Edge& edge);
    void take(Edge& edge, const News& news, std::string text);
    void note_goodbye(Edge& edge, int rank);
    void look_at_process(Edge& edge);
    enum class End { closed, altered, host_is_lost, outlived };
    void ended(Edge& edge, End how);
    std::optional<Verdict> death_of(const Edge& edge, End how) const;
    Verdict loss_of_host(const std::vector<int>& ranks) const;
    std::vector<int> ranks_beside(int rank);
    void add_edge(int rank, security::Connection connection, bool up, bool confirmed);
    bool is_connected(int rank) const;
    bool can_watch(int rank) const;
    // news.cpp
    bool forward(const Verdict& verdict, const Edge* teller);
    void hear(const Verdict& verdict);
    void hear_what_all_have();
    void tell_what_happened(Edge& edge);
    static void say(Edge& edge, std::span<const std::byte> bytes);
    void answer(Edge& edge, VerdictKind how, Ledger::Id id) const;
    void send_answers();
    void look_for_silent();
    bool is_silent(int rank, Instant since) const;
    void go_around(const std::vector<int>& ranks);
    void contact(int rank);
    void note_refusals();
    void mend_when_due();
    void mend();
    void adopt(int parent, security::Connection connection, bool confirmed = true);
    std::vector<int> possible_parents();
    void linger();
    void stop();
    void wake() const;

    MembershipOptions options_;
    std::vector<Card> cards_;
    std::string decision_;
    std::uint64_t world_id_ = 0;
    bool everywhere_ = false;    // listens at every address
    bool all_are_here_ = false;  // on this host
    std::optional<security::Secret> secret_;
    fork_guard::GuardedFd listener_, door_;
    std::optional<Pulse> pulse_;
    UniqueFd wake_, stop_;
    std::mutex mutex_;  // edges_ (writing), incoming_, news heard
    std::vector<std::unique_ptr<Edge>> edges_;
    std::vector<std::unique_ptr<Newcomer>> newcomers_;  // service thread
    std::string news_;                                  // all that was sent over lifelines; few and short
    std::set<Ledger::Id> heard_;                        // the same, piece by piece: each is passed on once
    Ledger ledger_;
    std::optional<Verdict> accusation_;  // the one that counts
    std::set<std::string> lost_hosts_;   // their keys
    std::set<int> unreachable_;          // ranks that are silent, or on a host that is lost
    std::set<int> contacted_;            // ranks to which this one has turned since they are behind such ranks
    std::vector<int> refused_;           // the ones among them that do not listen any more
    std::list<std::thread> messengers_;  // service thread
    // Service thread: losses of which this rank may be the only one to know. It reports them to itself, and may end of
    // that, only when it has told the others, or has tried to for a while.
    std::vector<std::pair<Verdict, Instant>> untold_;
    std::chrono::milliseconds silence_limit_;
    std::vector<bool> gone_;    // ranks that said goodbye
    std::vector<int> awaited_;  // children that have not come yet
    bool fatal_ = false;        // news after which no rank counts on lifelines any more
    std::condition_variable changed_;
    std::optional<Instant> mend_at_;  // service thread: when to look for a new parent
    std::atomic<bool> mending_{false}, leaving_{false};
    bool lacks_mender_ = false;  // no thread could be had, and the log says so
    AbortFlag closing_;
    std::thread mender_;
    std::vector<std::pair<int, security::Connection>> incoming_;
    Seldom turned_away_;
    std::atomic<bool> stopping_{false}, has_incoming_{false};
    std::atomic<std::uint64_t> rounds_{0};  // looks at newcomers that are over
    std::thread thread_;
};

}  // namespace tutti::rendezvous
