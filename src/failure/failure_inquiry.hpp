// FailureInquiry: finds out, together with the other ranks, why an operation of a group times out, or why its ranks
// disagree. This rank publishes its recent operations in the store and sends all ranks an accusation. The rank whose
// accusation prevails writes the error text from the operations that all ranks have published (record/verdict); then
// all ranks fail with this text.
//
// The class also makes the names of operations that all error messages use.
//
// Threads: publish_tail(): any; the rest: one at a time (the world's lock).
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

/// The functions of a world that an inquiry uses. Ranks are the world's.
class WorldFailures {
 public:
    virtual ~WorldFailures() = default;
    /// Sends the accusation to every rank, and waits until all reachable ranks have received it. True: this rank writes
    /// the verdict; false: another rank does.
    virtual bool accuse(const rendezvous::Verdict& accusation) = 0;
    /// Waits for the verdict of the rank that writes it, and fails the world with it.
    virtual void fail_as_told(ErrorContext context) = 0;
    /// Sends the verdict to every other rank; `here`: also applies it on this one.
    virtual void tell(const rendezvous::Verdict& verdict, bool here) = 0;
    /// Why no more data will arrive from a rank; empty: data may still arrive.
    virtual std::optional<rendezvous::Verdict> gone(int rank) const = 0;
    /// Ranks that have left.
    virtual std::vector<int> departed() const = 0;
    /// Ranks that do not answer, though their connections are open.
    virtual std::vector<int> silent() const = 0;
    /// Ends the world with this error.
    virtual void fail(const std::exception_ptr& error) = 0;
    /// Whether the world has failed, or is about to.
    virtual bool failing() const = 0;
};

class FailureInquiry {
 public:
    /// For the group of that name and number. `store`: used only by this group's inquiries. The references must outlive
    /// it.
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
    /// Throws `cause`, the error for which a call of function `name` cannot start; such a call has no sequence number.
    [[noreturn]] void refuse(const char* name, const std::exception_ptr& cause) const;

    /// The group rank of a message's sender or receiver, as a list; empty for a receive from any rank.
    std::vector<int> peer_of(const Operation& message) const;

    /// The operation's deadline has passed, and the data of the group's ranks `missing` has not arrived.
    void time_out(const Operation& operation, const std::vector<int>& missing);
    /// Rank `peer` and this rank have made different calls, as their fingerprints show.
    void mismatch(int peer, std::uint64_t sequence, std::uint64_t theirs, std::uint64_t mine);
    /// Both ranks call the same collective, but `peer` sends a block of another length than this rank expects.
    void mismatch_of_blocks(int peer, std::uint64_t sequence, std::uint64_t fingerprint, std::uint64_t their_bytes,
                            std::uint64_t my_bytes);
    /// A rank of this host and this rank have called different collectives, as their records in shared memory show.
    void disagreement(const Agreement::Disagreement& found);
    /// No operation that waits for `peer` can complete: fails all ranks with `cause`, or with the cause that the world
    /// knows.
    void give_up(int peer, const std::optional<rendezvous::Verdict>& cause = {});
    /// Fails as another rank says: `told` is the verdict of that rank or, if none has arrived, an accusation.
    void fail_as_told(const rendezvous::Verdict& told, const ErrorContext& context);
    /// Publishes this rank's recent operations for the other ranks, and dumps its record; later calls have no effect.
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
