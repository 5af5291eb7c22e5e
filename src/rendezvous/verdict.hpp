// Verdict: what one rank tells all others about the world: a death, a goodbye, a mismatch, a judgement.
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
    host_lost = 6,  ///< as peer_lost, but for all ranks of its host
    silent = 7,     ///< the rank shows no sign of life; not a failure by itself
    judged = 8,     ///< the judgement of a mismatch or a timeout, by the rank that decides
    damaged = 9,    ///< its data was changed on the way
};

struct Verdict {
    VerdictKind kind = VerdictKind::aborted;
    int rank = -1;  ///< the rank that it is about; -1: no known cause (never for peer_lost or left)
    std::string text;
    std::uint32_t group = 0;     ///< the group in which it happened, by the sender's numbering
    int from = -1;               ///< the rank whose view this is, if it is a single rank's
    std::uint32_t sequence = 0;  ///< for accusations: the low bits of the collective's number in its group
};

constexpr bool is_accusation(VerdictKind kind) {
    return kind == VerdictKind::mismatch || kind == VerdictKind::timed_out;
}
/// Whether accusation `a` prevails over `b`, decided alike on all ranks: a mismatch (cause) over a timeout (symptom),
/// else the accuser with the lower rank.
constexpr bool outranks(const Verdict& a, const Verdict& b) {
    return a.kind != b.kind ? a.kind == VerdictKind::mismatch : a.from < b.from;
}
/// Whether the sender has to learn when all ranks have the verdict: not for a goodbye without text, nor for `silent`.
inline bool wants_answer(const Verdict& verdict) {
    return verdict.kind != VerdictKind::silent && (verdict.kind != VerdictKind::left || !verdict.text.empty());
}
/// Whether the verdict ends the world: then ranks no longer depend on lifelines.
constexpr bool ends_the_world(VerdictKind kind) {
    return kind != VerdictKind::left && kind != VerdictKind::silent;
}

}  // namespace tutti::rendezvous
