// Verdict: what one rank says to all others about the world: a death, a goodbye, a mismatch, a judgement.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::rendezvous {

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

struct Verdict {
    VerdictKind kind = VerdictKind::aborted;
    int rank = -1;  ///< the rank that it is about; -1: no known cause (not of peer_lost, left)
    std::string text;
    std::uint32_t group = 0;     ///< in which it happened; its meaning is the sender's
    int from = -1;               ///< the rank whose view this is, if it is one rank's
    std::uint32_t sequence = 0;  ///< of an accusation: the low bits of the collective's number in its group
};

constexpr bool is_accusation(VerdictKind kind) {
    return kind == VerdictKind::mismatch || kind == VerdictKind::timed_out;
}
/// Whether accusation `a` prevails over `b`, equal on all ranks: a cause before a symptom, then the lower accuser's.
constexpr bool outranks(const Verdict& a, const Verdict& b) {
    return a.kind != b.kind ? a.kind == VerdictKind::mismatch : a.from < b.from;
}
/// Whether it matters that all ranks have it: a goodbye without words is one among many.
inline bool wants_answer(const Verdict& verdict) {
    return verdict.kind != VerdictKind::silent && (verdict.kind != VerdictKind::left || !verdict.text.empty());
}
/// Whether the world ends by it: then no rank counts on lifelines any more.
constexpr bool ends_the_world(VerdictKind kind) {
    return kind != VerdictKind::left && kind != VerdictKind::silent;
}

}  // namespace tutti::rendezvous
