// Verdict: judges an operation that did not complete, by the ranks' tails (the latest records of each rank).
//
// When an operation times out or the ranks disagree, every rank writes its tail to the store. The deciding rank reads
// the tails, writes the verdict to the store and tells the others, and every rank raises it.
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

/// The failed operation, as the reporting rank knows it.
struct Subject {
    std::string headline;  ///< begins the error message; from the reporting rank's own knowledge
    std::uint64_t sequence = 0;
    int rank = 0;
    int peer = -1;              ///< the rank that it blames without the tails
    bool disagreement = false;  ///< ranks called different operations; else it timed out
    Members members{};          ///< of the group
};

/// The error that all ranks raise.
struct Judgement {
    std::string text;
    int peer = -1;  ///< the first rank that is missing or differs
    std::uint64_t sequence = 0;
    bool disagreement = false;
};

/// Ranks from which no tail is expected.
struct Absent {
    std::vector<int> departed;  ///< they have left the group
    std::vector<int> silent;    ///< they show no sign of life
};

/// `tails`: by rank; nullopt for a rank without one.
Judgement judge(const Subject& subject, const std::vector<std::optional<Dump>>& tails, const Absent& absent);
/// Judges without tails: the result is equal on all ranks with equal knowledge.
Judgement judge(const Subject& subject, const Absent& absent);

/// The judgement as a message to the other ranks; at most 8 KB.
std::string to_text(Judgement judgement);
/// Nothing: the text does not come from to_text().
std::optional<Judgement> read_judgement(const std::string& text);

/// Exchanges tails and verdicts with the other ranks in the store. All calls together take a limited time, even if the
/// store hangs; a failure of the store is no error here.
class Inquiry {
 public:
    /// Enough records for ranks that wait for nobody: they run ahead until they learn that an earlier operation failed.
    static constexpr std::size_t tail_length = 64;
    /// `store`: for this group alone.
    explicit Inquiry(Store store) : store_(std::move(store)) {}

    /// Writes this rank's tail to the store.
    void publish(const Dump& tail) noexcept;
    /// Reads all tails, judges, and returns the verdict: its own, or that of a rank that was faster.
    Judgement decide(const Subject& subject, int size, const Absent& absent) noexcept;
    /// The verdict in the store, if there is one.
    std::optional<Judgement> learn() noexcept;

 private:
    std::vector<std::optional<Dump>> collect(int size, const Absent& absent);

    Store store_;
};

}  // namespace tutti::record
