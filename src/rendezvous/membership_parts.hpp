// Parts of a membership, for the files that it is made of.
#pragma once

#include "rendezvous/membership.hpp"
#include "security/entrance.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace tutti::rendezvous {

/// The purpose of a connection: the first message on it, after the handshake if there is one.
struct Hello {
    enum class Purpose : std::uint32_t { lifeline = 1, data = 2, visit = 3 };
    std::uint64_t world = 0;
    Purpose purpose = Purpose::data;
    std::int32_t rank = -1;
};

/// A verdict on a lifeline.
struct Membership::News {
    VerdictKind kind = VerdictKind::aborted;
    std::int32_t rank = -1;
    std::uint32_t text_bytes = 0;
    std::uint32_t group = 0;
    std::int32_t from = -1;
    std::uint32_t unused = 0;
    Ledger::Id id = 0;  ///< equal for the same news from any rank
};

/// Said between two neighbours only. A lifeline counts once both have said `attached` on it: until then either may
/// think better of it, and its end is nobody's death. `moved`: this end has another parent now, its closing is no death
/// either.
constexpr auto attached = static_cast<VerdictKind>(64);
constexpr auto moved = static_cast<VerdictKind>(65);
/// Answers to news, see Ledger.
constexpr auto has_it = static_cast<VerdictKind>(66);
constexpr auto all_have_it = static_cast<VerdictKind>(67);

/// Whether the error means a peer that does not answer any more, in contrast to one that has closed.
bool is_silence(int error);

constexpr std::size_t news_text_max = 16384;

/// A goodbye is one among many; for all other news it matters whether all ranks have them.
inline bool wants_answer(const Verdict& verdict) {
    return verdict.kind != VerdictKind::silent && (verdict.kind != VerdictKind::left || !verdict.text.empty());
}

/// Ranks mostly leave together: a rank that hears of it waits a little before it looks for a parent, which might leave
/// as well.
constexpr std::chrono::milliseconds mend_delay{20};

struct Membership::Edge {
    int rank = -1;
    fork_guard::GuardedFd fd;         // a child that kept it would hide this rank's death
    security::Wire wire;              // on it
    UniqueFd process;                 // of a rank of this host: readable when it has ended
    std::optional<PulseWatch> pulse;  // of a rank whose process is not visible
    std::string inbox;
    std::atomic<int> error{0};  ///< of a failed send: the kernel tells it once
    bool up = false;            ///< to the parent (mutex_)
    bool confirmed = false;     ///< both ends have said `attached` (mutex_)
    bool left = false;          ///< its end is no death (mutex_)
};

struct Membership::Newcomer {
    UniqueFd fd;
    std::optional<security::Entrance> entrance;  ///< none at the door, where the kernel vouches
    bool proved = true;
    security::Wire wire{};
    Deadline deadline;
    std::string hello;
    explicit Newcomer(UniqueFd socket)
        : fd(std::move(socket)), deadline(Deadline::after(security::handshake_timeout())) {}
    Newcomer(UniqueFd socket, const security::Secret& secret, security::Tls::Admits admits)
        : Newcomer(std::move(socket)) {
        entrance.emplace(secret, "peer", std::move(admits));
        proved = false;
    }
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
    return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

std::uint64_t random_id();

inline thread_local bool serving = false;  // a membership's thread

}  // namespace tutti::rendezvous
