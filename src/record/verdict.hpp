// Verdict: the evidence of the ranks' tails about an operation that did not complete.
//
// When an operation times out or the ranks disagree, every rank puts the tail of its record into the store. The rank
// that decides reads them, writes the verdict there and tells it to the others, and every rank raises it.
//
// Threads: free functions; any.
#pragma once

#include "record/dump.hpp"

#include <tutti/store.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tutti::record {

/// The operation that failed, on the rank that says so.
struct Subject {
    std::string headline;  ///< from that rank's own knowledge
    std::uint64_t sequence = 0;
    int rank = 0;
    int peer = -1;              ///< the rank that it blames by itself
    bool disagreement = false;  ///< ranks called different things; else the time was up
    Members members{};          ///< of the group
};

/// The error that all ranks raise.
struct Judgement {
    std::string text;
    int peer = -1;  ///< the first rank that is missing or different
    std::uint64_t sequence = 0;
    bool disagreement = false;
};

/// Ranks that say nothing.
struct Absent {
    std::vector<int> departed;  ///< they have left the group
    std::vector<int> silent;    ///< they show no sign of life
};

/// `tails`: by rank, nothing where none came.
Judgement judge(const Subject& subject, const std::vector<std::optional<Dump>>& tails, const Absent& absent);
/// The same where no tails can be had: equal on all ranks that know the same.
Judgement judge(const Subject& subject, const Absent& absent);

/// For the other ranks; at most 8 KB.
std::string to_text(Judgement judgement);
/// Nothing: to_text did not make it.
std::optional<Judgement> read_judgement(const std::string& text);

/// Meets the other ranks in the store. All calls together take no longer than the patience, even if the store hangs;
/// a store that fails is no error here.
class Inquiry {
 public:
    /// Ranks that wait for nobody run ahead, and learn of a disagreement about an earlier operation.
    static constexpr std::size_t tail_length = 64;
    /// `store`: for this group alone.
    explicit Inquiry(Store store) : store_(std::move(store)) {}

    /// Puts this rank's tail there for the others.
    void publish(const Dump& tail) noexcept;
    /// Reads all tails, judges, and returns the verdict: this one, or that of a rank that was quicker.
    Judgement decide(const Subject& subject, int size, const Absent& absent) noexcept;
    /// The verdict, if it is there.
    std::optional<Judgement> learn() noexcept;

 private:
    std::vector<std::optional<Dump>> collect(int size, const Absent& absent);

    Store store_;
};

}  // namespace tutti::record
