// The exported functions about the library itself: version, errors, memory.
#include "exports.hpp"
#include "failure.hpp"
#include "faults.hpp"
#include "group_call.hpp"
#include "process_mutex.hpp"

#include <cstdlib>
#include <mutex>
#include <set>

namespace nccl = tutti::nccl_library;

namespace {

struct Memory {
    nccl::ProcessMutex mutex;
    std::set<void*> all;
};
Memory& memory_given() {
    static Memory* memory = new Memory;
    return *memory;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int tuttiNcclHostMemory(void) {
    return 1;
}

NCCL_EXPORT(ncclResult_t, ncclGetVersion, (int* version)) {
    return nccl::guarded("ncclGetVersion", [&] {
        if (version == nullptr) nccl::fail(ncclInvalidArgument, "version is NULL");
        *version = nccl::faults().version.value_or(NCCL_VERSION_CODE);
        return ncclSuccess;
    });
}

NCCL_EXPORT(const char*, ncclGetErrorString, (ncclResult_t result)) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error (ncclGetLastError has the sentence)";
        case ncclSystemError: return "unhandled system error (ncclGetLastError has the sentence)";
        case ncclInternalError: return "internal error (ncclGetLastError has the sentence)";
        case ncclInvalidArgument: return "invalid argument (ncclGetLastError has the sentence)";
        case ncclInvalidUsage: return "invalid usage (ncclGetLastError has the sentence)";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
        case ncclNumResults: break;
    }
    return "unknown result code";
}

NCCL_EXPORT(const char*, ncclGetLastError, (ncclComm_t comm)) {
    try {
        if (comm != nullptr) {
            const std::string sentence = nccl::communicator_of(comm)->sentence();
            if (!sentence.empty()) return nccl::shown(sentence);
        }
        return nccl::last_sentence();
    } catch (...) {
        return nccl::last_sentence();  // one that is gone: what its calls have said before
    }
}

NCCL_EXPORT(void, ncclResetDebugInit, (void)) {}  // this library prints nothing

NCCL_EXPORT(ncclResult_t, ncclMemAlloc, (void** memory, size_t size)) {
    return nccl::guarded("ncclMemAlloc", [&] {
        if (memory == nullptr) nccl::fail(ncclInvalidArgument, "ptr is NULL");
        *memory = nullptr;
        if (size == 0) return ncclSuccess;
        constexpr std::size_t page_bytes = 4096;  // the alignment that windows need
        const std::size_t whole = (size + page_bytes - 1) / page_bytes * page_bytes;
        void* given = whole >= size ? std::aligned_alloc(page_bytes, whole) : nullptr;
        if (given == nullptr) nccl::fail(ncclSystemError, size, " bytes could not be allocated");
        Memory& all = memory_given();
        const std::lock_guard lock(all.mutex);
        all.all.insert(given);
        *memory = given;
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclMemFree, (void* memory)) {
    return nccl::guarded("ncclMemFree", [&] {
        if (memory == nullptr) return ncclSuccess;
        Memory& all = memory_given();
        const std::lock_guard lock(all.mutex);
        if (all.all.erase(memory) == 0) nccl::fail(ncclInvalidArgument, "ptr is none that ncclMemAlloc has given");
        std::free(memory);
        return ncclSuccess;
    });
}
