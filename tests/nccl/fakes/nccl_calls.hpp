// What the fakes of libraries with other interfaces share: they are tutti's library with NCCL's names, by other names.
#pragma once

#include "nccl/interface.hpp"

#include <cstddef>

#define FAKE_API extern "C" __attribute__((visibility("default")))

using tutti::nccl::Comm;
using tutti::nccl::Result;
using tutti::nccl::Type;
using tutti::nccl::UniqueId;

extern "C" {
Result ncclGetUniqueId(UniqueId* id);
Result ncclCommInitRank(Comm* comm, int ranks, UniqueId id, int rank);
Result ncclCommAbort(Comm comm);
Result ncclCommDestroy(Comm comm);
Result ncclCommCount(Comm comm, int* count);
Result ncclCommGetAsyncError(Comm comm, Result* error);
const char* ncclGetLastError(Comm comm);
Result ncclAllReduce(const void* in, void* out, std::size_t count, Type type, int op, Comm comm, void* stream);
Result ncclBroadcast(const void* in, void* out, std::size_t count, Type type, int root, Comm comm, void* stream);
Result ncclReduce(const void* in, void* out, std::size_t count, Type type, int op, int root, Comm comm, void* stream);
Result ncclAllGather(const void* in, void* out, std::size_t block, Type type, Comm comm, void* stream);
Result ncclReduceScatter(const void* in, void* out, std::size_t block, Type type, int op, Comm comm, void* stream);
Result ncclScatter(const void* in, void* out, std::size_t block, Type type, int root, Comm comm, void* stream);
Result ncclSend(const void* data, std::size_t count, Type type, int peer, Comm comm, void* stream);
Result ncclRecv(void* data, std::size_t count, Type type, int peer, Comm comm, void* stream);
Result ncclGroupStart();
Result ncclGroupEnd();
}

namespace fakes {

/// An id longer than NCCL's: what comes after that must arrive, too.
template <std::size_t bytes>
struct LongId {
    UniqueId id;
    unsigned char rest[bytes - sizeof(UniqueId)];

    void fill() {
        for (std::size_t i = 0; i < sizeof rest; ++i) rest[i] = value(i);
    }
    bool is_whole() const {
        for (std::size_t i = 0; i < sizeof rest; ++i) {
            if (rest[i] != value(i)) return false;
        }
        return true;
    }

 private:
    unsigned char value(std::size_t i) const {
        return static_cast<unsigned char>(i * 31 + 7 + (unsigned char)id.bytes[i % 128]);
    }
};

}  // namespace fakes
