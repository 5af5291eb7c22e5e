// The exported operations and groups.
#include "exports.hpp"
#include "group_call.hpp"

#include <cstring>

namespace nccl = tutti::nccl_library;
using nccl::Call;

namespace {

ncclResult_t issue(ncclComm_t comm, nccl::Operation operation) {
    return nccl::collected(nccl::name_of(operation.call), [&] {
        const auto communicator = nccl::communicator_of(comm);
        communicator->check_ready();
        nccl::check(operation, *communicator);
        return nccl::GroupCall::of_this_thread().add(communicator, operation);
    });
}

}  // namespace

NCCL_EXPORT(ncclResult_t, ncclAllReduce,
            (const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
             ncclStream_t stream)) {
    return issue(comm, {Call::all_reduce, in, out, count, type, op, -1, stream});
}

NCCL_EXPORT(ncclResult_t, ncclBroadcast,
            (const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
             ncclStream_t stream)) {
    return issue(comm, {Call::broadcast, in, out, count, type, ncclSum, root, stream});
}

NCCL_EXPORT(ncclResult_t, ncclBcast,
            (void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm, ncclStream_t stream)) {
    return issue(comm, {Call::broadcast, data, data, count, type, ncclSum, root, stream});
}

NCCL_EXPORT(ncclResult_t, ncclReduce,
            (const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
             ncclStream_t stream)) {
    return issue(comm, {Call::reduce, in, out, count, type, op, root, stream});
}

NCCL_EXPORT(ncclResult_t, ncclAllGather,
            (const void* in, void* out, size_t block, ncclDataType_t type, ncclComm_t comm, ncclStream_t stream)) {
    return issue(comm, {Call::all_gather, in, out, block, type, ncclSum, -1, stream});
}

NCCL_EXPORT(ncclResult_t, ncclReduceScatter,
            (const void* in, void* out, size_t block, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
             ncclStream_t stream)) {
    return issue(comm, {Call::reduce_scatter, in, out, block, type, op, -1, stream});
}

NCCL_EXPORT(ncclResult_t, ncclAlltoAll,
            (const void* in, void* out, size_t block, ncclDataType_t type, ncclComm_t comm, ncclStream_t stream)) {
    return issue(comm, {Call::all_to_all, in, out, block, type, ncclSum, -1, stream});
}

NCCL_EXPORT(ncclResult_t, ncclGather,
            (const void* in, void* out, size_t block, ncclDataType_t type, int root, ncclComm_t comm,
             ncclStream_t stream)) {
    return issue(comm, {Call::gather, in, out, block, type, ncclSum, root, stream});
}

NCCL_EXPORT(ncclResult_t, ncclScatter,
            (const void* in, void* out, size_t block, ncclDataType_t type, int root, ncclComm_t comm,
             ncclStream_t stream)) {
    return issue(comm, {Call::scatter, in, out, block, type, ncclSum, root, stream});
}

NCCL_EXPORT(ncclResult_t, ncclSend,
            (const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, ncclStream_t stream)) {
    return issue(comm, {Call::send, data, nullptr, count, type, ncclSum, peer, stream});
}

NCCL_EXPORT(ncclResult_t, ncclRecv,
            (void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, ncclStream_t stream)) {
    return issue(comm, {Call::receive, nullptr, data, count, type, ncclSum, peer, stream});
}

// ---- One-sided ------------------------------------------------------------------------------------------------------

namespace {

// NCCL has one signal of each pair of ranks, and one context.
void check_zero(const char* name, long long value) {
    if (value != 0) nccl::fail(ncclInvalidArgument, name, " is ", value, ": expected 0");
}

ncclResult_t issue(ncclComm_t comm, nccl::Operation operation, int signal, int context, unsigned int flags) {
    return nccl::collected(nccl::name_of(operation.call), [&] {
        check_zero("sigIdx", signal);
        check_zero("ctx", context);
        check_zero("flags", flags);
        return issue(comm, operation);
    });
}

}  // namespace

NCCL_EXPORT(ncclResult_t, ncclPutSignal,
            (const void* data, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset,
             int signal, int context, unsigned int flags, ncclComm_t comm, ncclStream_t stream)) {
    nccl::Operation put{Call::put_signal, data, nullptr, count, type, ncclSum, peer, stream};
    put.window = window;
    put.offset = offset;
    return issue(comm, put, signal, context, flags);
}

NCCL_EXPORT(ncclResult_t, ncclSignal,
            (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, ncclStream_t stream)) {
    return issue(comm, {Call::signal, nullptr, nullptr, 0, ncclInt8, ncclSum, peer, stream}, signal, context, flags);
}

NCCL_EXPORT(ncclResult_t, ncclWaitSignal,
            (int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm, ncclStream_t stream)) {
    return nccl::collected("ncclWaitSignal", [&] {
        nccl::Operation wait{Call::wait_signal, nullptr, nullptr, 0, ncclInt8, ncclSum, -1, stream};
        nccl::check_place("signalDescs", signals);
        if (count < 1) nccl::fail(ncclInvalidArgument, "nDesc is ", count, ": expected at least 1");
        const int ranks = nccl::communicator_of(comm)->size();
        for (int i = 0; i < count; ++i) {
            const ncclWaitSignalDesc_t& one = signals[i];
            const auto refuse = [i](const char* member, int value, const std::string& expected) {
                nccl::fail(ncclInvalidArgument, "signalDescs[", i, "].", member, " is ", value, ": expected ",
                           expected);
            };
            if (one.opCnt < 1) refuse("opCnt", one.opCnt, "at least 1");
            if (one.peer < 0 || one.peer >= ranks) refuse("peer", one.peer, nccl::text("0 to ", ranks - 1));
            if (one.sigIdx != 0) refuse("sigIdx", one.sigIdx, "0");
            if (one.ctx != 0) refuse("ctx", one.ctx, "0");
            wait.signals.push_back({one.peer, static_cast<std::uint64_t>(one.opCnt)});
        }
        return issue(comm, wait);
    });
}

// ---- Operators ------------------------------------------------------------------------------------------------------

NCCL_EXPORT(ncclResult_t, ncclRedOpCreatePreMulSum,
            (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm)) {
    return nccl::guarded("ncclRedOpCreatePreMulSum", [&] {
        const auto communicator = nccl::communicator_of(comm);
        communicator->check_ready();
        const std::size_t bytes = size_of(nccl::dtype_of(type));
        if (op == nullptr) nccl::fail(ncclInvalidArgument, "op is NULL");
        if (scalar == nullptr) nccl::fail(ncclInvalidArgument, "scalar is NULL");
        nccl::ScaledSum made{.type = type, .factor = {}, .where = scalar};
        if (residence == ncclScalarHostImmediate) {
            made.factor.resize(bytes);
            std::memcpy(made.factor.data(), scalar, bytes);
        } else if (residence != ncclScalarDevice) {
            nccl::fail(ncclInvalidArgument, "residence is ", static_cast<int>(residence),
                       ": expected ncclScalarDevice or ncclScalarHostImmediate");
        }
        *op = communicator->add_operator(std::move(made));
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
    return nccl::guarded("ncclRedOpDestroy", [&] {
        const auto communicator = nccl::communicator_of(comm);
        if (op >= 0 && op < ncclNumOps) {
            nccl::fail(ncclInvalidArgument, "op is ", static_cast<int>(op),
                       ", which is built in: expected one of ncclRedOpCreatePreMulSum's");
        }
        communicator->remove_operator(op);
        return ncclSuccess;
    });
}

// ---- Groups ---------------------------------------------------------------------------------------------------------

NCCL_EXPORT(ncclResult_t, ncclGroupStart, (void)) {
    nccl::GroupCall::of_this_thread().start();
    return ncclSuccess;
}

NCCL_EXPORT(ncclResult_t, ncclGroupEnd, (void)) {
    return nccl::guarded("ncclGroupEnd", [] { return nccl::GroupCall::of_this_thread().end(); });
}

NCCL_EXPORT(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info)) {
    return nccl::guarded("ncclGroupSimulateEnd", [&] {
        const bool wrong =
            info != nullptr && (info->magic != NCCL_SIM_INFO_MAGIC || info->size < sizeof(ncclSimInfo_t));
        const double us = nccl::GroupCall::of_this_thread().simulate_end();
        if (wrong) {
            nccl::fail(ncclInvalidArgument, "the information was not initialised: expected NCCL_SIM_INFO_INITIALIZER");
        }
        if (info != nullptr) info->estimatedTime = static_cast<float>(us);
        return ncclSuccess;
    });
}
