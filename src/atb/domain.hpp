// Domain: the group of an operation, which operations of one rank share as long as it works. A domain in which a call
// has failed is over; the next call asks for another, on all ranks alike, since all of them have heard of it.
//
// Threads: any.
#pragma once

#include <tutti/atb.hpp>

#include <memory>
#include <mutex>

namespace tutti::atb {

class Domain {
 public:
    /// The domain of a communicator; else the one that another operation of this rank has; else a new one, which takes
    /// a call of all its ranks. Throws Error where operations of one rank and commDomain say different things, and
    /// meet()'s errors.
    static std::shared_ptr<Domain> of(const AllToAllVV2Param& param);

    Domain(ProcessGroup group, bool is_own) : group_(std::move(group)), is_own_(is_own) {}

    /// Empty when it is over.
    ProcessGroup group() const;
    bool is_over() const { return !group(); }
    /// A call has failed, so it is of no use to anybody any more.
    void end() noexcept;

 private:
    mutable std::mutex mutex_;
    ProcessGroup group_;
    const bool is_own_;
};

}  // namespace tutti::atb
