#include "mpi/collectives.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::backends::mpi {
namespace {

constexpr std::uint64_t int_max = std::numeric_limits<int>::max();
constexpr std::uint64_t piece_count_max = std::uint64_t{1} << 30;

// Any number of bytes at any address, as one element of a type. Null: relative to a buffer.
class Block {
 public:
    explicit Block(std::uint64_t bytes, const void* address = nullptr) {
        constexpr std::uint64_t unit = std::uint64_t{1} << 30;
        MPI_Datatype large = MPI_DATATYPE_NULL;
        check(MPI_Type_contiguous(static_cast<int>(unit), MPI_BYTE, &large), "MPI_Type_contiguous");
        MPI_Aint begin = 0;
        if (address != nullptr) check(MPI_Get_address(address, &begin), "MPI_Get_address");
        const int lengths[] = {static_cast<int>(bytes / unit), static_cast<int>(bytes % unit)};
        const MPI_Aint places[] = {begin, begin + static_cast<MPI_Aint>(bytes / unit * unit)};
        const MPI_Datatype types[] = {large, MPI_BYTE};
        check(MPI_Type_create_struct(2, lengths, places, types, &type_), "MPI_Type_create_struct");
        check(MPI_Type_free(&large), "MPI_Type_free");
        check(MPI_Type_commit(&type_), "MPI_Type_commit");
    }
    ~Block() {
        if (type_ != MPI_DATATYPE_NULL && !has_broken_off()) MPI_Type_free(&type_);
    }
    Block(Block&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
    Block& operator=(Block&&) = delete;
    MPI_Datatype type() const noexcept { return type_; }

 private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

MPI_Datatype type_of(DType dtype) {
    switch (dtype) {
        case DType::uint8: return MPI_UINT8_T;
        case DType::uint16: return MPI_UINT16_T;
        case DType::uint32: return MPI_UINT32_T;
        case DType::uint64: return MPI_UINT64_T;
        case DType::int8: return MPI_INT8_T;
        case DType::int16: return MPI_INT16_T;
        case DType::int32: return MPI_INT32_T;
        case DType::int64: return MPI_INT64_T;
        case DType::float32: return MPI_FLOAT;
        case DType::float64: return MPI_DOUBLE;
        case DType::complex64: return MPI_C_FLOAT_COMPLEX;
        case DType::complex128: return MPI_C_DOUBLE_COMPLEX;
        default: return MPI_DATATYPE_NULL;
    }
}

MPI_Op op_of(ReduceOp::Kind kind) {
    switch (kind) {
        case ReduceOp::Kind::sum: return MPI_SUM;
        case ReduceOp::Kind::product: return MPI_PROD;
        case ReduceOp::Kind::min: return MPI_MIN;
        case ReduceOp::Kind::max: return MPI_MAX;
        case ReduceOp::Kind::band: return MPI_BAND;
        case ReduceOp::Kind::bor: return MPI_BOR;
        case ReduceOp::Kind::bxor: return MPI_BXOR;
        default: return MPI_OP_NULL;
    }
}

class Call {
 public:
    Call(const BackendRequest& request, const Communicators& communicators)
        : r_(request),
          communicators_(communicators),
          comm_(communicators.collectives()),
          is_root_(communicators.rank() == request.root),
          element_(size_of(request.dtype)) {}

    bool run() const {
        switch (r_.call) {
            case BackendCall::broadcast: return broadcast();
            case BackendCall::all_reduce: return combines() && all_reduce();
            case BackendCall::reduce: return combines() && reduce();
            case BackendCall::all_gather: return fits(r_.counts, element_) && all_gather();
            case BackendCall::gather: return gather();
            case BackendCall::scatter: return scatter();
            case BackendCall::reduce_scatter: return combines() && fits(r_.counts, 1) && reduce_scatter();
            case BackendCall::all_to_all: return all_to_all();
            case BackendCall::barrier: return wait_for(MPI_Ibarrier, "MPI_Ibarrier");
            default: return false;
        }
    }

 private:
    using Counts = std::vector<std::uint64_t>;

    bool combines() const {
        const bool loses_nan =
            is_floating_point(r_.dtype) && (r_.op.kind() == ReduceOp::Kind::min || r_.op.kind() == ReduceOp::Kind::max);
        return type_of(r_.dtype) != MPI_DATATYPE_NULL && op_of(r_.op.kind()) != MPI_OP_NULL && !loses_nan &&
               !r_.in_rank_order;
    }
    static bool fits(const Counts& counts, std::uint64_t unit) {
        return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) <= int_max / unit;
    }
    static std::vector<int> ints(const Counts& counts, std::uint64_t unit) {
        std::vector<int> result;
        for (const std::uint64_t count : counts) result.push_back(static_cast<int>(count * unit));
        return result;
    }
    const char* in(std::uint64_t offset = 0) const { return static_cast<const char*>(r_.input) + offset * element_; }
    char* out(std::uint64_t offset = 0) const { return static_cast<char*>(r_.output) + offset * element_; }

    // Begins a function whose last arguments are the communicator and the request, and waits for its end.
    template <class Function, class... Arguments>
    bool wait_for(Function function, const char* name, Arguments... arguments) const {
        MPI_Request request = MPI_REQUEST_NULL;
        check(function(arguments..., comm_, &request), name);
        communicators_.wait(&request);
        return true;
    }
    // f(offset, count), so that an int counts each piece.
    template <class F>
    bool in_pieces(F f) const {
        for (std::uint64_t at = 0; at < r_.count; at += piece_count_max)
            f(at, static_cast<int>(std::min(piece_count_max, r_.count - at)));
        return true;
    }

    bool broadcast() const {
        const Block block(r_.count * element_);
        return wait_for(MPI_Ibcast, "MPI_Ibcast", r_.output, 1, block.type(), r_.root);
    }
    bool all_reduce() const {
        return in_pieces([&](std::uint64_t at, int count) {
            const void* const from = r_.input == r_.output ? MPI_IN_PLACE : in(at);
            wait_for(MPI_Iallreduce, "MPI_Iallreduce", from, out(at), count, type_of(r_.dtype), op_of(r_.op.kind()));
        });
    }
    bool reduce() const {
        return in_pieces([&](std::uint64_t at, int count) {
            const void* const from = is_root_ && r_.input == r_.output ? MPI_IN_PLACE : in(at);
            wait_for(MPI_Ireduce, "MPI_Ireduce", from, is_root_ ? out(at) : nullptr, count, type_of(r_.dtype),
                     op_of(r_.op.kind()), r_.root);
        });
    }
    bool reduce_scatter() const {
        const std::vector<int> counts = ints(r_.counts, 1);
        return wait_for(MPI_Ireduce_scatter, "MPI_Ireduce_scatter", r_.input, r_.output, counts.data(),
                        type_of(r_.dtype), op_of(r_.op.kind()));
    }
    bool all_gather() const {
        const std::vector<int> sizes = ints(r_.counts, element_);
        std::vector<int> places(sizes.size());
        std::exclusive_scan(sizes.begin(), sizes.end(), places.begin(), 0);
        const auto own = static_cast<std::size_t>(communicators_.rank());
        const void* const from = r_.input == out() + places[own] ? MPI_IN_PLACE : r_.input;
        return wait_for(MPI_Iallgatherv, "MPI_Iallgatherv", from, sizes[own], MPI_BYTE, r_.output, sizes.data(),
                        places.data(), MPI_BYTE);
    }
    bool gather() const {
        const Block block(r_.count * element_);
        return wait_for(MPI_Igather, "MPI_Igather", r_.input, 1, block.type(), r_.output, 1, block.type(), r_.root);
    }
    bool scatter() const {
        const Block block(r_.count * element_);
        return wait_for(MPI_Iscatter, "MPI_Iscatter", r_.input, 1, block.type(), r_.output, 1, block.type(), r_.root);
    }
    // Every block is a type of its own that knows its place, so that no int has to hold a place.
    bool all_to_all() const {
        const auto size = static_cast<std::size_t>(communicators_.size());
        const auto types_of = [&](const Counts& counts, const Counts& offsets, const char* base,
                                  std::vector<Block>& blocks) {
            std::vector<MPI_Datatype> types;
            for (std::size_t i = 0; i < size; ++i) {
                const std::uint64_t bytes = counts[i] * element_;
                blocks.emplace_back(bytes, bytes > 0 ? base + offsets[i] * element_ : nullptr);
                types.push_back(blocks.back().type());
            }
            return types;
        };
        std::vector<Block> kept;
        const auto sent = types_of(r_.send_counts, r_.send_offsets, in(), kept);
        const auto received = types_of(r_.receive_counts, r_.receive_offsets, out(), kept);
        const auto ones = [&](const Counts& counts) {
            std::vector<int> result;
            for (const std::uint64_t count : counts) result.push_back(count > 0 ? 1 : 0);
            return result;
        };
        const std::vector<int> send_ones = ones(r_.send_counts), receive_ones = ones(r_.receive_counts), zeros(size);
        return wait_for(MPI_Ialltoallw, "MPI_Ialltoallw", static_cast<const void*>(MPI_BOTTOM), send_ones.data(),
                        zeros.data(), sent.data(), static_cast<void*>(MPI_BOTTOM), receive_ones.data(), zeros.data(),
                        received.data());
    }

    const BackendRequest& r_;
    const Communicators& communicators_;
    const MPI_Comm comm_;
    const bool is_root_;
    const std::uint64_t element_;
};

}  // namespace

bool run_collective(const BackendRequest& request, const Communicators& communicators) {
    return communicators.size() > 1 && Call(request, communicators).run();
}

}  // namespace tutti::backends::mpi
