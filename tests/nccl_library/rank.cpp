// One rank of a job that has nothing in common but a file for the unique id. Usage: nccl_library_rank RANK SIZE FILE
#include "../../nccl/interface.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(ncclResult_t result, const char* what) {
    if (result == ncclSuccess) return;
    std::fprintf(stderr, "%s: %d: %s\n", what, static_cast<int>(result), ncclGetLastError(nullptr));
    std::exit(1);
}

// Rank 0 makes it; it appears in the file as a whole.
ncclUniqueId shared_id(int rank, const std::string& file) {
    ncclUniqueId id{};
    if (rank == 0) {
        check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        std::ofstream(file + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
        if (std::rename((file + ".new").c_str(), file.c_str()) != 0) std::exit(2);
        return id;
    }
    for (int tries = 0; tries < 3000; ++tries) {
        std::ifstream in(file, std::ios::binary);
        if (in.read(id.internal, sizeof id.internal)) return id;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::fprintf(stderr, "no id in %s\n", file.c_str());
    std::exit(2);
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 4) return 2;
    const int rank = std::atoi(arguments[1]), size = std::atoi(arguments[2]);
    ncclComm_t comm = nullptr, part = nullptr;
    check(ncclCommInitRank(&comm, size, shared_id(rank, arguments[3]), rank), "ncclCommInitRank");
    std::vector<float> values(1 << 20);
    for (int round = 0; round < 3; ++round) {
        values.assign(values.size(), static_cast<float>(rank));
        check(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, comm, nullptr),
              "ncclAllReduce");
        if (values.front() != static_cast<float>(size * (size - 1) / 2) || values.front() != values.back()) return 3;
    }
    // Ranks of both hosts in each part.
    check(ncclCommSplit(comm, rank % 2, 0, &part, nullptr), "ncclCommSplit");
    int members = 1, expected = (size + 1 - rank % 2) / 2;
    check(ncclAllReduce(&members, &members, 1, ncclInt32, ncclSum, part, nullptr), "ncclAllReduce of a part");
    if (members != expected) return 4;
    check(ncclCommDestroy(part), "ncclCommDestroy of a part");
    check(ncclCommDestroy(comm), "ncclCommDestroy");
    return 0;
}
