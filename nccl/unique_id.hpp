// ncclUniqueId: where the ranks of a communicator meet. The process that makes ids serves a store for them; an id holds
// an address and port of that store, a random key that every connection to it proves, and its number in the store.
//
// The address: TUTTI_HOST, else that of the first interface that NCCL_SOCKET_IFNAME allows, else of the first that is
// not the loopback, else 127.0.0.1. With NCCL_COMM_ID=host:port every process makes the same id by itself, and the
// store is served by rank 0; its connections prove the job's secret (TUTTI_JOB_SECRET), as those of any other job.
//
// The store lives as long as it may be needed, whether the maker is one of the ranks or not: until all ranks of all its
// ids have left, or the process ends. An id that is used again afterwards is an error within seconds. Threads: any.
#pragma once

#include "interface.h"

#include <tutti/store.hpp>

#include <string>

namespace tutti::nccl_library {

ncclUniqueId make_unique_id();
/// As NCCL_COMM_ID says; where that is not set, make_unique_id().
ncclUniqueId given_unique_id();

/// Throws Failure (invalid argument) for one that is not from make_unique_id().
void check(const ncclUniqueId& id);

/// The way of a rank to the others by this id. Blocks until its store can be reached, for 15 s at most, or as long as a
/// store waits for its server where NCCL_COMM_ID names the place. Throws Failure: remote error, or invalid usage where
/// all ranks have left.
Store meeting_store(const ncclUniqueId& id, int rank);

/// To be called by each rank that leaves. Takes at most seconds.
void leave_meeting(Store store, int size) noexcept;

/// 128 bytes, to travel.
std::string to_bytes(const ncclUniqueId& id);
ncclUniqueId from_bytes(const std::string& bytes);

}  // namespace tutti::nccl_library
