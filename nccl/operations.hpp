// Operations: their arguments, checked as NCCL checks them, and how each is carried out by a tutti group.
//
// Threads: values and free functions.
#pragma once

#include "communicator.hpp"
#include "interface.h"

#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace tutti::nccl_library {

enum class Call {
    all_reduce,
    broadcast,
    reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    send,
    receive,
    put_signal,
    signal,
    wait_signal
};
/// "ncclAllReduce".
const char* name_of(Call call) noexcept;

struct Operation {
    Call call = Call::all_reduce;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;  ///< elements, of one rank's block where there are blocks
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t op = ncclSum;
    int root = -1;  ///< the other rank, of calls that have a peer
    ncclStream_t stream = nullptr;
    ScaledSum scale{};              ///< where `op` was made
    ncclWindow_t window = nullptr;  ///< put_signal: where `in` goes, and the offset there in bytes
    std::size_t offset = 0;
    std::uint64_t window_number = 0;          ///< check() fills it in
    std::vector<OneSided::Wanted> signals{};  ///< wait_signal
};

/// Throws Failure (invalid argument) that names the argument. Looks up an `op` that was made.
void check(Operation& operation, const Communicator& communicator);
/// Of one type; throws Failure (invalid argument) for a number that is none.
DType dtype_of(ncclDataType_t type);
/// Throws Failure (invalid usage) where messages to oneself have no counterpart in the same launch.
void check_own_messages(const std::vector<Operation>& operations, const Communicator& communicator);

/// What an operation holds while it runs.
struct Started {
    Work work;
    Tensor scratch;
    std::function<void()> wait_otherwise{};  ///< where it is no one operation of a group
    void wait() { wait_otherwise ? wait_otherwise() : (void)work.wait(); }
};
/// Begins it; does not wait. Local copies are done when it returns. Both arguments outlive what is started.
Started start(const Operation& operation, Communicator& communicator);
/// Returns when it is done. Not for messages to oneself.
void carry_out(const Operation& operation, Communicator& communicator);

/// What it takes, in microseconds, by the numbers that the ranks have measured.
double predicted_us(const Operation& operation, const Communicator& communicator);

}  // namespace tutti::nccl_library
