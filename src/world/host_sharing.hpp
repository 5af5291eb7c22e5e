// HostSharing: sets up the memory that the ranks of one host share, while a world is joined.
//
// Rank 0 creates an arena while the other ranks start. If all ranks are near (one host, one PID namespace), rank 0's
// decision says where the arena is, and each rank maps it by itself. Otherwise the lowest rank of each host creates an
// arena and passes the file descriptor to the other ranks of the host. Schedules need all ranks to know which ranks
// share memory, so if one rank cannot, none does.
//
// Threads: the membership's thread (rendezvous/membership) calls give_to(); the rest: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/unique_fd.hpp"
#include "failure/health.hpp"
#include "object/codec.hpp"
#include "rendezvous/membership.hpp"
#include "transport/shm/neighbours.hpp"

#include <tutti/process_group.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::detail {

/// The location of a world's shared memory: a descriptor of rank 0's process; -1: there is none. See Arena::find.
struct OfferedMemory {
    int descriptor = -1;
    std::uint64_t identity = 0;
};
TUTTI_OBJECT(OfferedMemory, descriptor, identity);

class HostSharing {
 public:
    /// `health` must outlive it.
    HostSharing(int rank, int size, std::string group, TransportKind transport, const Health& health)
        : rank_(rank), size_(size), group_(std::move(group)), transport_(transport), health_(health) {}

    /// Does what rank 0 can do before the ranks have met. Returns why this rank cannot share memory; empty: it can.
    std::string prepare();
    /// On rank 0: why some rank cannot share memory, so that none does; empty: all can.
    std::string why_not(const std::vector<rendezvous::Card>& cards) const;
    /// On rank 0: where the other ranks find the arena.
    OfferedMemory offer(const std::vector<rendezvous::Card>& cards);
    /// Decides that no rank shares memory. Throws DistBackendError if the requested transport is shared memory.
    void go_without(const std::string& why);
    /// The requested transport; tcp after go_without().
    TransportKind transport() const noexcept { return transport_; }
    /// Passes the arena's descriptor to a rank that has connected to get it.
    void give_to(const UniqueFd& visitor) const;

    /// Shares memory with `ranks`, those of this host. Throws Aborted, PeerLost, or DistStoreError (timeout) if some of
    /// them will not come.
    std::unique_ptr<transport::Neighbours> share(rendezvous::Membership& membership, const std::vector<int>& ranks,
                                                 const OfferedMemory& offer, const Deadline& deadline);
    /// The first of `ranks` (of this host) passes its descriptors to the others, which receive duplicates in `fds`.
    static void pass_on(const rendezvous::Membership& membership, int rank, const std::string& what,
                        std::span<const int> ranks, std::span<UniqueFd> fds, const Deadline& deadline,
                        const AbortFlag* abort);

 private:
    void find_offered(rendezvous::Membership& membership, const OfferedMemory& offer, const Deadline& deadline);
    void share_by_hand(const rendezvous::Membership& membership, const std::vector<int>& ranks,
                       const Deadline& deadline);
    transport::Reads agree(const rendezvous::Membership& membership, const std::vector<int>& ranks,
                           const Deadline& deadline);
    void check_attachments(const rendezvous::Membership& membership, const std::vector<int>& ranks,
                           const Deadline& deadline) const;

    const int rank_, size_;
    const std::string group_;
    TransportKind transport_;
    const Health& health_;
    std::shared_ptr<transport::Arena> arena_;
};

}  // namespace tutti::detail
