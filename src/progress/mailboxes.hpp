// Mailboxes: the mailboxes of a world (its own, and one for each group whose bytes another transport carries). The
// class also acts on the findings that a mailbox reports: a mismatch, corrupted bytes, a rank that has left a group.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "transport/mailbox.hpp"

#include <tutti/transport.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::detail {

class GroupTable;
class Verdicts;

class Mailboxes {
 public:
    /// Both must outlive the Mailboxes.
    Mailboxes(GroupTable& groups, Verdicts& verdicts) : groups_(groups), verdicts_(verdicts) {}
    /// Sets the world's own mailbox, which must outlive this; until then there is none.
    void attach(transport::Mailbox& own) noexcept { own_ = &own; }
    transport::Mailbox& own() noexcept { return *own_; }
    /// Adds the mailbox of a group whose bytes another transport carries, for as long as it lives.
    void add(const std::shared_ptr<transport::Mailbox>& mailbox);

    /// Moves the messages of all mailboxes; true if anything moved.
    bool progress();
    /// Acts on the findings of all mailboxes: a mismatch or corrupted bytes fail the world; notes ranks that left a
    /// group.
    void heed();
    /// Notes in the groups' recorders the messages that have arrived and that no receive has matched.
    void record_unmatched();
    /// Refuses the messages that peers have announced for groups that this rank has left.
    void refuse_unmet();
    /// Announces the end of data on every stream; returns the peers that may still lack bytes that this rank sent.
    std::vector<int> finish();
    /// The world has failed: drops all messages in flight.
    void drop_all();
    /// Replaces the contents of `into` by the descriptors to poll until messages can move: of all mailboxes, or of the
    /// world's own.
    enum class Which : std::uint8_t { all, own };
    void pollables(std::vector<transport::Pollable>& into, Which which);

 private:
    template <class F>
    void for_each(F f);
    void heed(transport::Mailbox& mailbox);
    void mismatch(const transport::Finding& finding);

    GroupTable& groups_;
    Verdicts& verdicts_;
    transport::Mailbox* own_ = nullptr;
    std::vector<std::weak_ptr<transport::Mailbox>> others_;
    std::vector<transport::Pollable> of_one_;  // of one mailbox; kept for its memory
    std::vector<std::uint32_t> unmatched_;     // the groups with unmatched messages, when last recorded
};

}  // namespace tutti::detail
