// The lifelines of a world: who watches whom, and how news travel.
#include "rendezvous/membership_parts.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::rendezvous {
namespace {

constexpr std::size_t news_text_max = 4096;
constexpr std::chrono::milliseconds mend_attempt{300};
constexpr std::chrono::milliseconds linger_limit{1000};

// A failure may be nobody's: -1.
int least_rank(VerdictKind kind) {
    return kind == VerdictKind::timed_out || kind == VerdictKind::mismatch || kind == VerdictKind::aborted ? -1 : 0;
}

}  // namespace

// Without waiting until the parent has looked: what this end has to say waits for it there, even if this rank dies.
bool Membership::attach_unseen(int parent) {
    UniqueFd fd = knock(parent);
    if (!fd) return false;
    const struct {
        Hello hello;
        News confirm;
    } words{{world_id_, Hello::Purpose::lifeline, options_.rank}, {attached, options_.rank}};
    static_assert(sizeof words == sizeof(Hello) + sizeof(News));
    if (::send(fd.get(), &words, sizeof words, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof words) return false;
    adopt(parent, std::move(fd), false);
    return true;
}

// A parent that came much earlier may have left again: then the next, who tells what has happened.
void Membership::build_tree() {
    const std::vector<int> parents = possible_parents();
    for (const int parent : parents) {
        if (attach_unseen(parent)) return;
        try {
            return adopt(parent, dial(parent, true, options_.deadline, nullptr), true);
        } catch (const DistNetworkError&) {
            if (parent == parents.back() || options_.deadline.expired()) throw;
        }
    }
}

// A new parent. The old one, if it still waits for this rank to be safe, may go.
void Membership::adopt(int parent, UniqueFd fd, bool confirmed) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& old : edges_) {
            if (!old->up || !old->fd) continue;
            const News goodbye{moved, options_.rank};
            (void)!::send(old->fd.get(), &goodbye, sizeof goodbye, MSG_NOSIGNAL | MSG_DONTWAIT);
            ::shutdown(old->fd.get(), SHUT_WR);  // the old parent closes it
            old->up = false;
            old->left = true;
        }
        if (fd) {
            auto edge = std::make_unique<Edge>();
            edge->rank = parent;
            edge->fd = fork_guard::GuardedFd(std::move(fd));
            edge->up = true;
            edge->confirmed = confirmed;
            tell_what_happened(*edge);
            edges_.push_back(std::move(edge));
        }
    }
    ::eventfd_write(stop_.get(), 1);  // the service thread looks at its edges again
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
    mender_ = std::thread([this] {
        serving = true;
        mend();
        mending_ = false;
    });
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

// What a neighbour says, or its end; false if there was nothing (more).
bool Membership::read_edge(Edge& edge) {
    char buffer[1024];
    const ssize_t count = edge.fd ? ::recv(edge.fd.get(), buffer, sizeof buffer, 0) : 0;
    if (!edge.fd || (count < 0 && (errno == EAGAIN || errno == EINTR))) return false;
    if (count <= 0) {
        closed(edge);
        return false;
    }
    edge.inbox.append(buffer, static_cast<std::size_t>(count));
    while (edge.inbox.size() >= sizeof(News)) {
        News news;
        std::memcpy(&news, edge.inbox.data(), sizeof news);
        if (news.text_bytes > news_text_max || news.rank >= options_.world_size || news.rank < least_rank(news.kind)) {
            closed(edge);
            return false;
        }
        if (edge.inbox.size() < sizeof news + news.text_bytes) break;
        const Verdict verdict{news.kind, news.rank, edge.inbox.substr(sizeof news, news.text_bytes), news.group};
        edge.inbox.erase(0, sizeof news + news.text_bytes);
        if (verdict.kind == attached || verdict.kind == moved) {
            const std::lock_guard lock(mutex_);
            if (verdict.kind == moved) edge.left = true;
            if (verdict.kind == attached) edge.confirmed = true;
            std::erase(awaited_, edge.rank);
            changed_.notify_all();
            continue;
        }
        if (verdict.kind == VerdictKind::left) note_goodbye(edge, verdict.rank);
        if (!forward(verdict, &edge) || leaving_) continue;
        options_.on_verdict(verdict);
        wake();
    }
    return true;
}

void Membership::note_goodbye(Edge& edge, int rank) {
    if (rank != edge.rank) return;
    const std::lock_guard lock(mutex_);
    edge.left = true;
    if (edge.up) mend_at_ = Clock::now() + mend_delay;
    changed_.notify_all();
}

// A lifeline has ended: a rank that had said goodbye, or has moved, or was never quite here; else a death. Who leaves
// answers all that have come to its door, so a process that has ended without an answer died.
void Membership::closed(Edge& edge) {
    {
        const std::lock_guard lock(mutex_);  // another thread may be sending news on it
        edge.fd.reset();
        changed_.notify_all();
        if (edge.up) mend_at_ = Clock::now();
        edge.up = false;
        if (edge.left || stopping_) return;
    }
    const Card& card = cards_[static_cast<std::size_t>(edge.rank)];
    const bool known = near(edge.rank) && card.process != cards_[static_cast<std::size_t>(options_.rank)].process;
    const std::optional<std::string> end = known ? end_of(card.process) : std::nullopt;
    if (!edge.confirmed && !end) return;
    const Verdict verdict{
        VerdictKind::peer_lost, edge.rank,
        fmt::format("rank {} ({}, pid {}) is gone: {}", edge.rank, card.host_name, card.process,
                    end.value_or(known ? "its connection closed, though its process lives" : "its connection closed"))};
    if (!forward(verdict, &edge) || leaving_) return;
    options_.on_verdict(verdict);
    wake();
}

// Each piece of news once: while lifelines move there may be two ways to a rank. False if it was known.
bool Membership::forward(const Verdict& verdict, const Edge* except) {
    const std::string_view text = std::string_view(verdict.text).substr(0, news_text_max);
    const News news{verdict.kind, verdict.rank, static_cast<std::uint32_t>(text.size()), verdict.group};
    std::string bytes(reinterpret_cast<const char*>(&news), sizeof news);
    bytes += text;
    const std::lock_guard lock(mutex_);
    if (!heard_.insert(bytes).second) return false;
    news_ += bytes;  // goodbyes too: a rank that is accepted later counts on nobody who has gone
    if (verdict.kind == VerdictKind::left)
        gone_[static_cast<std::size_t>(verdict.rank)] = true;
    else
        fatal_ = true;
    changed_.notify_all();
    for (const auto& edge : edges_) {
        if (edge.get() == except || !edge->fd) continue;
        // News are few and short; a neighbour whose socket is full has stopped, and will be noticed otherwise.
        (void)!::send(edge->fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return true;
}

// A lifeline that is new here (mutex_ is held): what was flooded before it existed.
void Membership::tell_what_happened(const Edge& edge) {
    if (!news_.empty()) (void)!::send(edge.fd.get(), news_.data(), news_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Membership::flood(const Verdict& verdict) {
    forward(verdict, nullptr);
}

// Until nobody depends on this rank: children are attached elsewhere or leave too. News are passed on meanwhile.
void Membership::linger() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, linger_limit, [this] {
        return fatal_ || (awaited_.empty() && std::ranges::none_of(edges_, [](const auto& edge) {
                              return edge->fd && !edge->up && !edge->left;
                          }));
    });
}

}  // namespace tutti::rendezvous
