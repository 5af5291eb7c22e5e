// The lifelines of a world: which ranks watch each other.
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/thread.hpp"
#include "rendezvous/membership_parts.hpp"
#include "rendezvous/place.hpp"
#include "rendezvous/tree.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::rendezvous {
namespace {

constexpr std::chrono::milliseconds mend_attempt{300}, retry_delay{500};
constexpr std::chrono::milliseconds linger_limit{1000};
constexpr std::chrono::milliseconds telling_patience{500};

// A failure may be no rank's: -1.
int least_rank(VerdictKind kind) {
    const bool may_be_nobody_s = is_accusation(kind) || kind == VerdictKind::aborted || kind == VerdictKind::judged;
    return may_be_nobody_s ? -1 : 0;
}

}  // namespace

bool is_silence(int error) {
    switch (error) {
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case EHOSTDOWN:
        case ENETUNREACH:
        case ENETDOWN: return true;
        default: return false;
    }
}

// Without waiting until the other rank has looked: this end's messages wait for it there, even if this rank dies.
UniqueFd Membership::attach_unseen(int rank) {
    UniqueFd fd = knock(rank);
    if (!fd) return {};
    const struct {
        Hello hello;
        News confirm;
    } words{{world_id_, Hello::Purpose::lifeline, options_.rank}, {attached, options_.rank}};
    static_assert(sizeof words == sizeof(Hello) + sizeof(News));
    const bool said = ::send(fd.get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof words;
    return said ? std::move(fd) : UniqueFd();
}

// A parent that came much earlier may have left again: then the next, which tells the news so far.
void Membership::build_tree() {
    const std::vector<int> parents = possible_parents();
    for (const int parent : parents) {
        if (UniqueFd fd = attach_unseen(parent)) return adopt(parent, {std::move(fd), {}}, false);
        const Card& card = cards_[static_cast<std::size_t>(parent)];
        const Patience patience([&] {
            return fmt::format("the lifeline of rank {} to rank {} at {}", options_.rank, parent,
                               net::to_string({card.listen_host, card.listen_port}));
        });
        try {
            return adopt(parent, dial(parent, true, options_.deadline, nullptr), true);
        } catch (const DistNetworkError&) {
            if (parent == parents.back() || options_.deadline.expired()) throw;
        }
    }
}

// A new parent. The old one, if it still waits for this rank to be safe, may go.
void Membership::adopt(int parent, security::Connection connection, bool confirmed) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& old : edges_) {
            if (!old->up || !old->fd) continue;
            const News goodbye{moved, options_.rank};
            say(*old, bytes_of(goodbye));
            ::shutdown(old->fd.get(), SHUT_WR);  // the old parent closes it
            old->up = false;
            old->left = true;
        }
        if (connection.fd) add_edge(parent, std::move(connection), true, confirmed);
    }
    ::eventfd_write(stop_.get(), 1);  // the service thread looks at its edges again
}

// mutex_ is held. The end of a process shows on its lifeline and on the process itself: an unknown child of it may keep
// the lifeline open.
void Membership::add_edge(int rank, security::Connection connection, bool up, bool confirmed) {
    auto edge = std::make_unique<Edge>();
    edge->rank = rank;
    UniqueFd& fd = connection.fd;
    net::end_when_silent(fd.get(), silence_limit_);
    const Card& card = cards_[static_cast<std::size_t>(rank)];
    if (can_watch(rank))
        edge->process = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, card.process, 0)));
    else if (card.pulse_port != 0 && !near(rank))
        edge->pulse.emplace(net::Address{net::peer_address(fd.get()).host, card.pulse_port});
    edge->fd = fork_guard::GuardedFd(std::move(fd));
    edge->wire = std::move(connection.wire);
    edge->up = up;
    edge->confirmed = confirmed;
    tell_what_happened(*edge);
    ledger_.ask_all(rank, Clock::now());
    edges_.push_back(std::move(edge));
}

// Its process means something here, and is another one.
bool Membership::can_watch(int rank) const {
    return near(rank) &&
           cards_[static_cast<std::size_t>(rank)].process != cards_[static_cast<std::size_t>(options_.rank)].process;
}

// mutex_ is held.
bool Membership::is_connected(int rank) const {
    return std::ranges::any_of(edges_, [rank](const auto& edge) { return edge->rank == rank && edge->fd; });
}

// Ancestors from the nearest, then all others from the lowest: always lower ranks, so that there are no circles.
std::vector<int> Membership::possible_parents() {
    const std::lock_guard lock(mutex_);
    std::vector<int> parents;
    const auto add = [&](int rank) {
        if (!gone_[static_cast<std::size_t>(rank)] && std::ranges::find(parents, rank) == parents.end())
            parents.push_back(rank);
    };
    for (int rank = options_.rank; rank != 0;) add(rank = parent_of(rank));
    for (int rank = 0; rank < options_.rank; ++rank) add(rank);
    return parents;
}

void Membership::mend_when_due() {
    if (!mend_at_ || Clock::now() < *mend_at_ || mending_ || leaving_) return;
    mend_at_.reset();
    if (mender_.joinable()) mender_.join();
    mending_ = true;
    const auto over = [this](const std::exception_ptr&) noexcept { mending_ = false; };
    try {
        mender_ = thread::start({"tutti-mend", "a new lifeline", over}, [this] {
            serving = true;
            mend();
            mending_ = false;
        });
    } catch (const DistBackendError& error) {
        if (!std::exchange(lacks_mender_, true)) TUTTI_WARN("rank {}: {}; it tries again", options_.rank, error.what());
        mending_ = false;
        mend_at_ = Clock::now() + retry_delay;
    }
}

// Finds a new parent, or learns that this is the lowest rank that is left.
void Membership::mend() {
    for (;;) {
        const auto parents = possible_parents();
        if (parents.empty()) return adopt(-1, {});
        for (const int parent : parents) {
            {
                const std::lock_guard lock(mutex_);
                if (fatal_ || closing_.raised()) return;
                if (gone_[static_cast<std::size_t>(parent)]) continue;
            }
            try {
                return adopt(parent, dial(parent, true, Deadline::after(mend_attempt), &closing_));
            } catch (const DistError&) {
                // It is leaving too, or cannot answer now: the next.
            }
        }
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, mend_attempt, [this] { return fatal_ || closing_.raised(); });
    }
}

// Reads a neighbour's input, or its end; false if there was nothing (more).
bool Membership::read_edge(Edge& edge) {
    char buffer[1024];
    const ssize_t count = edge.fd ? edge.wire.receive(edge.fd.get(), std::as_writable_bytes(std::span(buffer))) : 0;
    if (!edge.fd || (count < 0 && (errno == EAGAIN || errno == EINTR))) return false;
    if (count <= 0) {
        const int error = count < 0 && edge.error == 0 ? errno : edge.error.load();
        const bool altered = count < 0 && error == EBADMSG;
        ended(edge, altered ? End::altered : is_silence(error) && !near(edge.rank) ? End::host_is_lost : End::closed);
        return false;
    }
    edge.inbox.append(buffer, static_cast<std::size_t>(count));
    while (edge.inbox.size() >= sizeof(News)) {
        News news;
        std::memcpy(&news, edge.inbox.data(), sizeof news);
        if (news.text_bytes > news_text_max || news.rank >= options_.world_size || news.rank < least_rank(news.kind) ||
            news.from < -1 || news.from >= options_.world_size) {
            ended(edge, End::closed);
            return false;
        }
        if (edge.inbox.size() < sizeof news + news.text_bytes) break;
        std::string text = edge.inbox.substr(sizeof news, news.text_bytes);
        edge.inbox.erase(0, sizeof news + news.text_bytes);
        take(edge, news, std::move(text));
    }
    send_answers();
    return true;
}

void Membership::take(Edge& edge, const News& news, std::string text) {
    if (news.kind == attached || news.kind == moved) {
        const std::lock_guard lock(mutex_);
        if (news.kind == moved) edge.left = true;
        if (news.kind == attached) edge.confirmed = true;
        std::erase(awaited_, edge.rank);
        changed_.notify_all();
        return;
    }
    if (news.kind == has_it || news.kind == all_have_it) {
        const std::lock_guard lock(mutex_);
        if (news.kind == has_it) return ledger_.has(news.id, edge.rank, Clock::now());
        return ledger_.answered(news.id, edge.rank, Clock::now());
    }
    const Verdict verdict{news.kind, news.rank, std::move(text), news.group, news.from};
    if (verdict.kind == VerdictKind::left) {
        accept_newcomers();  // the rank that left may have connected to this one before
        note_goodbye(edge, verdict.rank);
    }
    const bool is_new = forward(verdict, &edge);
    if (wants_answer(verdict)) answer(edge, is_new ? has_it : all_have_it, news.id);
    if (!is_new) return;
    // News that this rank has yet to hear itself come first.
    if (verdict.kind == VerdictKind::peer_lost && !untold_.empty())
        untold_.emplace_back(verdict, untold_.back().second);
    else
        hear(verdict);
    const std::lock_guard lock(mutex_);
    ledger_.told(news.id);
}

void Membership::hear(const Verdict& verdict) {
    if (leaving_) return;
    options_.on_verdict(verdict);
    wake();
}

void Membership::note_goodbye(Edge& edge, int rank) {
    if (rank != edge.rank) return;
    const std::lock_guard lock(mutex_);
    edge.left = true;
    if (edge.up) mend_at_ = Clock::now() + mend_delay;
    changed_.notify_all();
}

// The messages that it sent before it ended are in its lifeline.
void Membership::look_at_process(Edge& edge) {
    pollfd entry{edge.process.get(), POLLIN, 0};
    const bool is_seen_dead = edge.process && ::poll(&entry, 1, 0) == 1;
    if (!edge.fd || !(is_seen_dead || (edge.pulse && edge.pulse->look(Clock::now())))) return;
    while (read_edge(edge)) {
    }
    if (edge.fd) ended(edge, End::outlived);  // by a child that keeps it open
}

// A lifeline has ended: a rank that had said goodbye, or has moved, or was never quite here; else a death, or the end
// of its host. Both ends notice one that closes, as do all ranks that have one to that rank; all else may go unnoticed.
void Membership::ended(Edge& edge, End how) {
    bool counts = true;
    {
        const std::lock_guard lock(mutex_);
        counts = !edge.left && !stopping_;
    }
    // The lifeline itself tells the other end, before that sees its close.
    const bool told = how == End::altered && counts && forward(*death_of(edge, how), nullptr);
    {
        const std::lock_guard lock(mutex_);  // another thread may be sending news on it
        edge.fd.reset();
        edge.process.reset();
        edge.pulse.reset();
        changed_.notify_all();
        if (edge.up) mend_at_ = Clock::now();
        edge.up = false;
        counts = !edge.left && !stopping_;
        if (lost_hosts_.contains(cards_[static_cast<std::size_t>(edge.rank)].host_key)) how = End::host_is_lost;
    }
    std::vector<int> lost{edge.rank};
    if (how == End::host_is_lost) lost = ranks_beside(edge.rank);
    std::optional<Verdict> verdict;
    if (counts) verdict = how == End::host_is_lost ? loss_of_host(lost) : death_of(edge, how);
    if (verdict && how != End::closed) {
        const std::lock_guard lock(mutex_);
        unreachable_.insert(lost.begin(), lost.end());  // no rank waits for their answers
    }
    const bool is_new = verdict && (told || forward(*verdict, nullptr));
    if (verdict && how != End::closed) {
        go_around(lost);
        if (is_new) untold_.emplace_back(*verdict, Clock::now() + telling_patience);
    } else if (is_new) {
        hear(*verdict);
    }
    const std::lock_guard lock(mutex_);
    if (!is_connected(edge.rank)) ledger_.drop(edge.rank);
}

void Membership::hear_what_all_have() {
    if (untold_.empty()) return;
    const bool all_have = settled();
    std::erase_if(untold_, [&](const auto& entry) {
        const auto& [verdict, limit] = entry;
        const bool over = all_have || Clock::now() >= limit;
        if (over) hear(verdict);
        return over;
    });
}

// A rank that leaves answers all connections at its door, so a process that has ended without an answer died.
std::optional<Verdict> Membership::death_of(const Edge& edge, End how) const {
    const Card& card = cards_[static_cast<std::size_t>(edge.rank)];
    if (how == End::altered) {
        return Verdict{VerdictKind::damaged, edge.rank,
                       fmt::format("the lifeline of rank {} to rank {} ({}, pid {}): {}", options_.rank, edge.rank,
                                   card.host_name, card.process, edge.wire.error())};
    }
    const bool known = can_watch(edge.rank);
    std::optional<std::string> end = known ? end_of(card.process) : std::nullopt;
    if (how == End::outlived && !end) end = "its process has ended";
    if (!edge.confirmed && !end) return std::nullopt;
    return Verdict{
        VerdictKind::peer_lost, edge.rank,
        fmt::format("rank {} ({}, pid {}) is gone: {}", edge.rank, card.host_name, card.process,
                    end.value_or(known ? "its connection closed, though its process lives" : "its connection closed"))};
}

// The loss of all ranks of a host; ranks that lose several of them name the same one.
Verdict Membership::loss_of_host(const std::vector<int>& ranks) const {
    const int first = ranks.front();
    const Card& card = cards_[static_cast<std::size_t>(first)];
    return {
        VerdictKind::host_lost, first,
        fmt::format("rank {} ({}, pid {}) is gone: its host has not answered for {:.1f} s: it has failed, or is cut "
                    "off{}",
                    first, card.host_name, card.process, std::chrono::duration<double>(silence_limit_).count(),
                    ranks.size() == 1 ? "" : fmt::format(", with ranks {}", fmt::join(ranks, ", ")))};
}

// The ranks of its host that have not left.
std::vector<int> Membership::ranks_beside(int rank) {
    std::vector<int> ranks;
    const std::lock_guard lock(mutex_);
    for (int other = 0; other < options_.world_size; ++other) {
        const auto index = static_cast<std::size_t>(other);
        if (cards_[index].host_key == cards_[static_cast<std::size_t>(rank)].host_key && !gone_[index])
            ranks.push_back(other);
    }
    if (ranks.empty()) ranks.push_back(rank);
    return ranks;
}

// Waits until no rank depends on this one: children attach elsewhere or leave too. It passes on news meanwhile.
void Membership::linger() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, linger_limit, [this] {
        return fatal_ || (awaited_.empty() && std::ranges::none_of(edges_, [](const auto& edge) {
                              return edge->fd && !edge->up && !edge->left;
                          }));
    });
}

}  // namespace tutti::rendezvous
