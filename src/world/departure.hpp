// Departure: how a rank leaves a group, or its world: it waits until its peers have received the messages that it sent,
// and withdraws those that they have not received in time.
//
// A rank that leaves receives no further messages, and refuses messages that others announce, so that ranks that all
// leave do not wait for one another. When it has nothing more to send, it ends its streams (Stream::end), and stays
// until its peers' kernels have the bytes; so a peer can tell messages still to come from those that will never come,
// without a timeout. It withdraws messages that its peers have not received in time before it frees their memory
// (Offers).
//
// Invariant: a rank leaves its world once; from then on nothing is in flight, and nothing begins.
//
// Threads: any, not under the lock unless it says otherwise.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/membership.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti::detail {

class Driver;
class OperationsInFlight;
class GroupTable;
class Member;
class Verdicts;

class Departure {
 public:
    /// The parts of a world. All must outlive it; `membership` exists before any call.
    struct Parts {
        int rank = 0;
        const std::string& world;
        std::chrono::milliseconds timeout{0};
        OperationsInFlight& flight;
        Driver& driver;
        GroupTable& groups;
        Verdicts& verdicts;
        const std::unique_ptr<rendezvous::Membership>& membership;
    };
    explicit Departure(const Parts& parts)
        : rank_(parts.rank),
          world_(parts.world),
          timeout_(parts.timeout),
          flight_(parts.flight),
          driver_(parts.driver),
          groups_(parts.groups),
          verdicts_(parts.verdicts),
          membership_(parts.membership) {}

    /// Whether this rank has left the world; under the lock.
    bool has_left() const noexcept { return left_; }
    /// Leaves the world. Waits for this rank's operations in flight, and until its peers have received all that it
    /// sent, but for messages at most for the world's timeout; then says goodbye. Unmatched receives end with Aborted.
    /// Throws CollectiveMismatch if the ranks turn out to have disagreed.
    void leave();
    /// As leave(), but only until `limit`; operations that are then still in flight end on all ranks with Aborted,
    /// whose text is `reason`.
    void leave_by(const Deadline& limit, const std::string& reason);
    /// Waits for ranks whose connections this rank has not accepted yet, so that they learn that it has left and do not
    /// consider it dead. The world's destructor does this too; close() is for a program that ends without it. Not on a
    /// membership's own thread.
    void close();
    /// Leaves a group: waits until none of its operations is in flight here, and removes it from the table of groups;
    /// unmatched receives end with Aborted.
    void leave(Member& group);

 private:
    bool is_over();
    bool wait_for_collectives(const Member* group, const Deadline& limit);
    bool drive_until_none(const char* what, const std::function<std::vector<int>()>& awaited, const Deadline& limit);
    bool finish(const Deadline& limit);
    void part();

    const int rank_;
    const std::string& world_;
    const std::chrono::milliseconds timeout_;
    OperationsInFlight& flight_;
    Driver& driver_;
    GroupTable& groups_;
    Verdicts& verdicts_;
    const std::unique_ptr<rendezvous::Membership>& membership_;
    bool left_ = false;  // under the lock
};

}  // namespace tutti::detail
