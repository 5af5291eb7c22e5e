// MPI as a peer: the same program for Open MPI and MPICH, compiled with each one's compiler.
#include "peer.hpp"

// The C functions only: Open MPI's deprecated C++ bindings do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::bench {
namespace {

MPI_Datatype type_of(const std::string& name) {
    if (name == "float32") return MPI_FLOAT;
    if (name == "float64") return MPI_DOUBLE;
    return name == "int32" ? MPI_INT32_T : MPI_INT64_T;
}
MPI_Op op_of(const std::string& name) {
    if (name == "sum") return MPI_SUM;
    if (name == "prod") return MPI_PROD;
    return name == "min" ? MPI_MIN : MPI_MAX;
}

/// One after the other.
struct Blocks {
    std::vector<int> counts, offsets;
    explicit Blocks(std::vector<int> sizes) : counts(std::move(sizes)), offsets(counts.size()) {
        std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
    }
};

class Mpi final : public Peer {
 public:
    Mpi() {
        MPI_Init(nullptr, nullptr);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
    }
    ~Mpi() override { MPI_Finalize(); }
    Mpi(const Mpi&) = delete;
    Mpi& operator=(const Mpi&) = delete;

    std::string name() const override {
#if defined(OPEN_MPI)
        return "openmpi " + std::to_string(OMPI_MAJOR_VERSION) + "." + std::to_string(OMPI_MINOR_VERSION) + "." +
               std::to_string(OMPI_RELEASE_VERSION);
#else
        return std::string("mpich ") + MPICH_VERSION;
#endif
    }
    int rank() const override {
        return rank_;
    }
    int size() const override {
        return size_;
    }
    Ranks ranks() override {
        return {[] { MPI_Barrier(MPI_COMM_WORLD); },
                [](double value) {
                    MPI_Bcast(&value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                    return value;
                },
                [size = size_](std::vector<double>& values) {
                    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                                  MPI_COMM_WORLD);
                    for (double& value : values) value /= size;
                },
                size_};
    }
    std::function<void()> call(const PeerCase& work) override {
        const MPI_Comm world = MPI_COMM_WORLD;
        const MPI_Datatype type = type_of(work.dtype);
        const MPI_Op op = op_of(work.op);
        const int count = static_cast<int>(work.count);
        void* const in = work.in;
        void* const out = work.out;
        const std::string& name = work.collective;
        if (name == "all_reduce") return [=] { MPI_Allreduce(MPI_IN_PLACE, out, count, type, op, world); };
        if (name == "scan") return [=] { MPI_Scan(MPI_IN_PLACE, out, count, type, op, world); };
        if (name == "exscan") return [=] { MPI_Exscan(MPI_IN_PLACE, out, count, type, op, world); };
        if (name == "broadcast") return [=] { MPI_Bcast(out, count, type, 0, world); };
        if (name == "reduce") {
            return [=, root = rank_ == 0] {
                MPI_Reduce(root ? MPI_IN_PLACE : out, root ? out : nullptr, count, type, op, 0, world);
            };
        }
        if (name == "all_gather") return [=] { MPI_Allgather(in, count, type, out, count, type, world); };
        if (name == "reduce_scatter") return [=] { MPI_Reduce_scatter_block(in, out, count, type, op, world); };
        if (name == "all_to_all") return [=] { MPI_Alltoall(in, count, type, out, count, type, world); };
        if (name == "gather") return [=] { MPI_Gather(in, count, type, out, count, type, 0, world); };
        if (name == "scatter") return [=] { MPI_Scatter(in, count, type, out, count, type, 0, world); };
        if (name == "sendrecv") {
            return [=, next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_] {
                MPI_Sendrecv(in, count, type, next, 0, out, count, type, last, 0, world, MPI_STATUS_IGNORE);
            };
        }
        if (name == "gather_v") {
            return [=, own = work.send_counts[0], all = Blocks(work.receive_counts)] {
                MPI_Gatherv(in, own, type, out, all.counts.data(), all.offsets.data(), type, 0, world);
            };
        }
        if (name == "scatter_v") {
            return [=, own = work.receive_counts[0], all = Blocks(work.send_counts)] {
                MPI_Scatterv(in, all.counts.data(), all.offsets.data(), type, out, own, type, 0, world);
            };
        }
        if (name.starts_with("all_to_all_v")) {
            return [=, sent = Blocks(work.send_counts), received = Blocks(work.receive_counts)] {
                MPI_Alltoallv(in, sent.counts.data(), sent.offsets.data(), type, out, received.counts.data(),
                              received.offsets.data(), type, world);
            };
        }
        return [] { MPI_Barrier(MPI_COMM_WORLD); };
    }

 private:
    int rank_ = 0, size_ = 0;
};

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
    std::unique_ptr<tutti::bench::Mpi> mpi;
    return tutti::bench::run_peer(argc, argv, [&mpi]() -> tutti::bench::Peer& {
        mpi = std::make_unique<tutti::bench::Mpi>();
        return *mpi;
    });
}
