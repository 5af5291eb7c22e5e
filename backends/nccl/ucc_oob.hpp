// UccOob: how the ranks of a team exchange addresses: in a store, by one key for each rank and round. UCC uses it until
// it has destroyed its context, for which the ranks wait for each other.
//
// Threads: one at a time.
#pragma once

#include "nccl/ucc_api.hpp"

#include <tutti/store.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::nccl {

class UccOob {
 public:
    UccOob(Store store, int rank, int ranks) : store_(std::move(store)), rank_(rank), ranks_(ranks) {}
    UccOob(const UccOob&) = delete;
    UccOob& operator=(const UccOob&) = delete;

    /// The functions by which UCC calls this object.
    ucc::Oob functions();
    /// Rounds fail once `given_up` is set (null: never), or from `until` on.
    void end_with(const std::atomic<bool>* given_up) { given_up_ = given_up; }
    void end_at(std::chrono::steady_clock::time_point until) { until_ = until; }

 private:
    struct Round;
    static ucc::Status allgather(void* send, void* receive, std::size_t bytes, void* info, void** request);
    static ucc::Status test(void* request);
    static ucc::Status release(void* request);
    ucc::Status look(Round& round);
    std::string key(std::uint64_t round, int rank) const;

    Store store_;
    const int rank_, ranks_;
    const std::atomic<bool>* given_up_ = nullptr;
    std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::time_point::max();
    std::uint64_t rounds_ = 0;
};

}  // namespace tutti::nccl
