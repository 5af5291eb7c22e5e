// Domain: the group of ranks of an operation. Operations of one rank with the same commDomain share a domain. A failed
// call ends the domain on all ranks, since the failure reaches all of them; the next call makes a new one on all ranks.
//
// Threads: any.
#pragma once

#include <tutti/atb.hpp>

#include <memory>
#include <mutex>

namespace tutti::atb {

class Domain {
 public:
    /// The domain of param.hcclComm; else the domain of another operation of this rank with the same commDomain; else a
    /// new one: then all of its ranks must call this. Throws Error if operations of one rank and commDomain have
    /// different parameters, and meet()'s errors.
    static std::shared_ptr<Domain> of(const AllToAllVV2Param& param);

    Domain(ProcessGroup group, bool is_own) : group_(std::move(group)), is_own_(is_own) {}

    /// Empty when the domain has ended.
    ProcessGroup group() const;
    bool is_over() const { return !group(); }
    /// Ends the domain, after a failed call.
    void end() noexcept;

 private:
    mutable std::mutex mutex_;
    ProcessGroup group_;
    const bool is_own_;
};

}  // namespace tutti::atb
