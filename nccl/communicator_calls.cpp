// The exported functions about communicators that exist: their ends, their properties, and the operators and memory
// that belong to them.
#include "exports.hpp"
#include "group_call.hpp"
#include "unique_id.hpp"

namespace nccl = tutti::nccl_library;
using nccl::Communicator;
using nccl::GroupCall;

namespace {

// One that has joined: its numbers are known.
std::shared_ptr<Communicator> joined(ncclComm_t comm) {
    auto communicator = nccl::communicator_of(comm);
    if (communicator->state() == ncclInProgress) communicator->check_ready();
    return communicator;
}

// Leaves, and lets the others of the process that made its unique id know.
void end(Communicator& communicator) {
    std::exception_ptr error;
    try {
        if (communicator.state() == ncclSuccess) communicator.finalize();
    } catch (...) {
        error = std::current_exception();
    }
    communicator.abort();  // what could not be ended otherwise; after finalize() nothing is left to be aborted
    nccl::leave_meeting(communicator.store(), communicator.size());
    if (error != nullptr) std::rethrow_exception(error);
}

void check_not_collected(const Communicator& communicator) {
    if (!communicator.in_group()) return;
    nccl::fail(ncclInvalidUsage, communicator.describe(),
               " has operations in an open group: expected ncclGroupEnd first");
}

}  // namespace

NCCL_EXPORT(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
    return nccl::collected("ncclCommFinalize", [&] {
        const auto communicator = nccl::communicator_of(comm);
        check_not_collected(*communicator);
        communicator->check_ready();
        return GroupCall::of_this_thread().add(nccl::Job{.communicators = {communicator},
                                                         .blocking = communicator->settings().blocking,
                                                         .run = [communicator] { communicator->finalize(); }});
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
    return nccl::collected("ncclCommDestroy", [&] {
        if (comm == nullptr) return ncclSuccess;
        const auto communicator = joined(comm);
        check_not_collected(*communicator);
        nccl::end_handle(comm, "destroyed");
        if (!GroupCall::of_this_thread().is_open()) {
            end(*communicator);
            return ncclSuccess;
        }
        return GroupCall::of_this_thread().add(nccl::Job{.communicators = {communicator},
                                                         .blocking = communicator->settings().blocking,
                                                         .run = [communicator] { end(*communicator); }});
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
    return nccl::guarded("ncclCommAbort", [&] {
        if (comm == nullptr) return ncclSuccess;
        const auto communicator = nccl::communicator_of(comm);
        nccl::end_handle(comm, "aborted");
        communicator->abort();
        nccl::leave_meeting(communicator->store(), communicator->size());
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags)) {
    return nccl::guarded("ncclCommRevoke", [&] {
        const auto communicator = joined(comm);
        if (flags != 0) nccl::fail(ncclInvalidArgument, "revokeFlags is ", flags, ": expected 0");
        communicator->revoke();
        return ncclSuccess;
    });
}

// ---- Memory of the communicator's own -------------------------------------------------------------------------------

namespace {

// Blocks, as NCCL's do, also where the communicator does not; ranks of one thread do it in a group.
ncclResult_t run_on_all_ranks(const std::shared_ptr<Communicator>& communicator, void (Communicator::*what)()) {
    check_not_collected(*communicator);
    return GroupCall::of_this_thread().add(
        nccl::Job{.communicators = {communicator}, .run = [communicator, what] { (communicator.get()->*what)(); }});
}

}  // namespace

NCCL_EXPORT(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags)) {
    return nccl::collected("ncclCommSuspend", [&] {
        const auto communicator = nccl::communicator_of(comm);
        communicator->check_ready();
        if ((flags & ~NCCL_SUSPEND_MEM) != 0) {
            nccl::fail(ncclInvalidArgument, "flags is ", flags, ": expected NCCL_SUSPEND_MEM (", NCCL_SUSPEND_MEM, ")");
        }
        if (flags == 0) return ncclSuccess;
        return run_on_all_ranks(communicator, &Communicator::suspend);
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommResume, (ncclComm_t comm)) {
    return nccl::collected("ncclCommResume", [&] { return run_on_all_ranks(joined(comm), &Communicator::resume); });
}

NCCL_EXPORT(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value)) {
    return nccl::guarded("ncclCommMemStats", [&] {
        const auto communicator = joined(comm);
        nccl::check_place("value", value);
        const Communicator::MemoryUse use = communicator->memory_use();
        switch (stat) {
            case ncclStatGpuMemSuspend: *value = use.releasable; return ncclSuccess;
            case ncclStatGpuMemSuspended: *value = use.is_released ? 1 : 0; return ncclSuccess;
            case ncclStatGpuMemPersist: *value = use.lasting; return ncclSuccess;
            case ncclStatGpuMemTotal: *value = use.releasable + use.lasting; return ncclSuccess;
        }
        nccl::fail(ncclInvalidArgument, "stat is ", static_cast<int>(stat), ": expected 0 (ncclStatGpuMemSuspend) to ",
                   static_cast<int>(ncclStatGpuMemTotal), " (ncclStatGpuMemTotal)");
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error)) {
    return nccl::guarded("ncclCommGetAsyncError", [&] {
        nccl::check_place("asyncError", error);
        *error = nccl::communicator_of(comm)->state();
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count)) {
    return nccl::guarded("ncclCommCount", [&] {
        nccl::check_place("count", count);
        *count = joined(comm)->size();
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank)) {
    return nccl::guarded("ncclCommUserRank", [&] {
        nccl::check_place("rank", rank);
        *rank = joined(comm)->rank();
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device)) {
    return nccl::guarded("ncclCommCuDevice", [&] {
        nccl::check_place("device", device);
        *device = joined(comm)->device();
        return ncclSuccess;
    });
}

// ---- Memory that a program registers --------------------------------------------------------------------------------

namespace {

void check_memory(const void* memory, size_t size) {
    if (memory == nullptr) nccl::fail(ncclInvalidArgument, "buff is NULL");
    if (size == 0) nccl::fail(ncclInvalidArgument, "size is 0");
}

}  // namespace

NCCL_EXPORT(ncclResult_t, ncclCommRegister, (ncclComm_t comm, void* memory, size_t size, void** handle)) {
    return nccl::guarded("ncclCommRegister", [&] {
        nccl::check_place("handle", handle);
        check_memory(memory, size);
        *handle = joined(comm)->add_registration(memory, size);
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle)) {
    return nccl::guarded("ncclCommDeregister", [&] {
        nccl::communicator_of(comm)->remove_registration(handle, "handle");
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommWindowRegister,
            (ncclComm_t comm, void* memory, size_t size, ncclWindow_t* window, int flags)) {
    return nccl::collected("ncclCommWindowRegister", [&] {
        nccl::check_place("win", window);
        check_memory(memory, size);
        if (flags < 0 || flags > 7)
            nccl::fail(ncclInvalidArgument, "winFlags is ", flags, ": expected flags of NCCL_WIN_");
        const auto communicator = joined(comm);
        communicator->check_ready();
        if ((flags & NCCL_WIN_COLL_SYMMETRIC) == 0) {
            *window = static_cast<ncclWindow_t>(communicator->add_registration(memory, size));
            return ncclSuccess;
        }
        *window = nullptr;
        return GroupCall::of_this_thread().add(nccl::Job{.communicators = {communicator},
                                                         .blocking = communicator->settings().blocking,
                                                         .run = [communicator, window, memory, size] {
                                                             *window = static_cast<ncclWindow_t>(
                                                                 communicator->add_symmetric_window(memory, size));
                                                         }});
    });
}

NCCL_EXPORT(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void** memory)) {
    return nccl::guarded("ncclWinGetUserPtr", [&] {
        nccl::check_place("win", window);
        nccl::check_place("outUserPtr", memory);
        *memory = joined(comm)->registered(window, "win").memory;
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window)) {
    return nccl::guarded("ncclCommWindowDeregister", [&] {
        nccl::communicator_of(comm)->remove_registration(window, "win");
        return ncclSuccess;
    });
}
