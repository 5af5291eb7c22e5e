// FailureInquiry: what follows when an operation of a group runs out of time, or its ranks mean different things. This
// rank puts down what it was doing, accuses, and all ranks fail with one text: that of the rank whose accusation
// counts, which reads what all of them have put down (record/verdict).
//
// It also makes the titles of operations, for every error about one.
//
// Threads: publish_tail(), any; the rest one at a time (the world's lock).
#pragma once

#include "operation/agreement.hpp"
#include "operation/operation.hpp"
#include "operation/ranks.hpp"
#include "record/recorder.hpp"
#include "record/verdict.hpp"
#include "rendezvous/membership.hpp"

#include <tutti/error.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::detail {

/// The world, as an inquiry needs it. Ranks are the world's.
class WorldFailures {
 public:
    virtual ~WorldFailures() = default;
    /// Tells every rank, and waits until all that can be reached have heard it. True: this rank is to judge; false:
    /// another is.
    virtual bool accuse(const rendezvous::Verdict& accusation) = 0;
    /// Fails with the verdict of the rank that judges.
    virtual void fail_as_told(ErrorContext context) = 0;
    /// Every rank hears of it; `here`: this one too.
    virtual void tell(const rendezvous::Verdict& verdict, bool here) = 0;
    /// Why nothing comes from a rank any more; nothing: something may come.
    virtual std::optional<rendezvous::Verdict> gone(int rank) const = 0;
    /// Ranks that have left.
    virtual std::vector<int> departed() const = 0;
    /// Ranks that show no sign of life.
    virtual std::vector<int> silent() const = 0;
    /// The world ends with this error.
    virtual void fail(const std::exception_ptr& error) = 0;
    /// It has ended already, or is about to.
    virtual bool failing() const = 0;
};

class FailureInquiry {
 public:
    /// Of the group of that name and number. `store`: for this group's inquiries alone. The others must outlive it.
    FailureInquiry(std::string group, std::uint32_t index, const Ranks& ranks, record::Recorder& recorder, Store store,
                   WorldFailures& court)
        : group_(std::move(group)),
          index_(index),
          ranks_(ranks),
          recorder_(recorder),
          inquiry_(std::move(store)),
          court_(court) {}

    /// "all_reduce #41 in group \"dp\" (4 ranks)".
    std::string title_of(const Operation& operation) const;
    ErrorContext context_of(const Operation& operation) const;
    /// Throws the error `cause`, for which a call of that name cannot start: so the call has no number.
    [[noreturn]] void refuse(const char* name, const std::exception_ptr& cause) const;

    /// The rank from which a message comes, or to which it goes, where it names one.
    std::vector<int> peer_of(const Operation& message) const;

    /// Its time is up, and nothing has come from the ranks `missing`.
    void time_out(const Operation& operation, const std::vector<int>& missing);
    /// A rank and this one have called different things, by their fingerprints.
    void mismatch(int peer, std::uint64_t sequence, std::uint64_t theirs, std::uint64_t mine);
    /// Both call the same collective, but `peer` sends a block of another length than this rank expects.
    void mismatch_of_blocks(int peer, std::uint64_t sequence, std::uint64_t fingerprint, std::uint64_t their_bytes,
                            std::uint64_t my_bytes);
    /// A rank of this host and this one have called different collectives, by their records.
    void disagreement(const Agreement::Disagreement& found);
    /// No operation that waits for that rank can finish: all ranks hear the cause, `cause` or that of the world.
    void give_up(int peer, const std::optional<rendezvous::Verdict>& cause = {});
    /// Another rank has named the cause: `told` is its judgement, or, where none has come, an accusation.
    void fail_as_told(const rendezvous::Verdict& told, const ErrorContext& context);
    /// Once: this rank's operations at the time of the trouble, for the others and for the dump.
    void publish_tail(const std::string& reason);

 private:
    record::Subject subject(int rank, int peer, std::uint64_t sequence, bool disagreement, std::string headline) const;
    record::Absent absent() const;
    void mismatch(int peer, std::uint64_t sequence, const std::string& sides);
    void disagreed(int peer, std::uint64_t sequence, const std::string& text);
    void fail_together(const record::Subject& subject, ErrorContext context);
    void fail_as_judged(const record::Judgement& judgement, ErrorContext context);

    const std::string group_;
    const std::uint32_t index_;
    const Ranks& ranks_;
    record::Recorder& recorder_;
    record::Inquiry inquiry_;
    WorldFailures& court_;
    std::atomic<bool> tail_published_{false};
};

}  // namespace tutti::detail
