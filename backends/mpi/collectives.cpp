#include "mpi/collectives.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace tutti::backends::mpi {
namespace {

constexpr std::uint64_t int_max = std::numeric_limits<int>::max();
constexpr std::uint64_t piece_count_max = std::uint64_t{1} << 30;

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

using Counts = std::vector<std::uint64_t>;

bool combines(const BackendRequest& r) {
    const bool loses_nan =
        is_floating_point(r.dtype) && (r.op.kind() == ReduceOp::Kind::min || r.op.kind() == ReduceOp::Kind::max);
    return type_of(r.dtype) != MPI_DATATYPE_NULL && op_of(r.op.kind()) != MPI_OP_NULL && !loses_nan && !r.in_rank_order;
}

bool fits(const Counts& counts, std::uint64_t unit) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) <= int_max / unit;
}

class Call {
 public:
    Call(const BackendRequest& request, const Communicators& communicators, Begun& begun)
        : r_(request),
          communicators_(communicators),
          begun_(begun),
          comm_(communicators.collectives()),
          is_root_(communicators.rank() == request.root),
          element_(size_of(request.dtype)) {}

    void begin() const {
        switch (r_.call) {
            case BackendCall::broadcast: return broadcast();
            case BackendCall::all_reduce: return all_reduce();
            case BackendCall::reduce: return reduce();
            case BackendCall::scan: return scan(MPI_Iscan, "MPI_Iscan");
            case BackendCall::exscan: return scan(MPI_Iexscan, "MPI_Iexscan");
            case BackendCall::all_gather: return all_gather();
            case BackendCall::gather: return gather();
            case BackendCall::scatter: return scatter();
            case BackendCall::reduce_scatter: return reduce_scatter();
            default: return call(MPI_Ibarrier, "MPI_Ibarrier");
        }
    }

 private:
    const int* ints(const Counts& counts, std::uint64_t unit) const {
        std::vector<int>& result = begun_.ints.emplace_back();
        for (const std::uint64_t count : counts) result.push_back(static_cast<int>(count * unit));
        return result.data();
    }
    MPI_Datatype block_of(std::uint64_t bytes) const { return begun_.blocks.emplace_back(bytes).type(); }
    const char* in(std::uint64_t offset = 0) const { return static_cast<const char*>(r_.input) + offset * element_; }
    char* out(std::uint64_t offset = 0) const { return static_cast<char*>(r_.output) + offset * element_; }

    // Begins a function whose last arguments are the communicator and the request.
    template <class Function, class... Arguments>
    void call(Function function, const char* name, Arguments... arguments) const {
        begun_.requests.push_back(MPI_REQUEST_NULL);
        check(function(arguments..., comm_, &begun_.requests.back()), name);
    }
    // f(offset, count), so that an int counts each piece.
    template <class F>
    void in_pieces(F f) const {
        for (std::uint64_t at = 0; at < r_.count; at += piece_count_max)
            f(at, static_cast<int>(std::min(piece_count_max, r_.count - at)));
    }

    void broadcast() const {
        const MPI_Datatype block = block_of(r_.count * element_);
        call(MPI_Ibcast, "MPI_Ibcast", r_.output, 1, block, r_.root);
    }
    void all_reduce() const {
        in_pieces([&](std::uint64_t at, int count) {
            const void* const from = r_.input == r_.output ? MPI_IN_PLACE : in(at);
            call(MPI_Iallreduce, "MPI_Iallreduce", from, out(at), count, type_of(r_.dtype), op_of(r_.op.kind()));
        });
    }
    void reduce() const {
        in_pieces([&](std::uint64_t at, int count) {
            const void* const from = is_root_ && r_.input == r_.output ? MPI_IN_PLACE : in(at);
            call(MPI_Ireduce, "MPI_Ireduce", from, is_root_ ? out(at) : nullptr, count, type_of(r_.dtype),
                 op_of(r_.op.kind()), r_.root);
        });
    }
    // Rank 0 has no output of an exclusive scan; in place MPI leaves its values as they are.
    template <class Function>
    void scan(Function function, const char* name) const {
        in_pieces([&](std::uint64_t at, int count) {
            const bool in_place = r_.input == r_.output || r_.output == nullptr;
            void* const to = r_.output == nullptr ? const_cast<char*>(in(at)) : out(at);
            const void* const from = in_place ? MPI_IN_PLACE : in(at);
            call(function, name, from, to, count, type_of(r_.dtype), op_of(r_.op.kind()));
        });
    }
    void reduce_scatter() const {
        call(MPI_Ireduce_scatter, "MPI_Ireduce_scatter", r_.input, r_.output, ints(r_.counts, 1), type_of(r_.dtype),
             op_of(r_.op.kind()));
    }
    void all_gather() const {
        const int* const sizes = ints(r_.counts, element_);
        std::vector<int>& places = begun_.ints.emplace_back(r_.counts.size());
        std::exclusive_scan(sizes, sizes + r_.counts.size(), places.begin(), 0);
        const auto own = static_cast<std::size_t>(communicators_.rank());
        const void* const from = r_.input == out() + places[own] ? MPI_IN_PLACE : r_.input;
        call(MPI_Iallgatherv, "MPI_Iallgatherv", from, sizes[own], MPI_BYTE, r_.output, sizes, places.data(), MPI_BYTE);
    }
    void gather() const {
        const MPI_Datatype block = block_of(r_.count * element_);
        call(MPI_Igather, "MPI_Igather", r_.input, 1, block, r_.output, 1, block, r_.root);
    }
    void scatter() const {
        const MPI_Datatype block = block_of(r_.count * element_);
        call(MPI_Iscatter, "MPI_Iscatter", r_.input, 1, block, r_.output, 1, block, r_.root);
    }

    const BackendRequest& r_;
    const Communicators& communicators_;
    Begun& begun_;
    const MPI_Comm comm_;
    const bool is_root_;
    const std::uint64_t element_;
};

}  // namespace

Block::Block(std::uint64_t bytes) {
    constexpr std::uint64_t unit = std::uint64_t{1} << 30;
    MPI_Datatype large = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(static_cast<int>(unit), MPI_BYTE, &large), "MPI_Type_contiguous");
    const int lengths[] = {static_cast<int>(bytes / unit), static_cast<int>(bytes % unit)};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(bytes / unit * unit)};
    const MPI_Datatype types[] = {large, MPI_BYTE};
    check(MPI_Type_create_struct(2, lengths, places, types, &type_), "MPI_Type_create_struct");
    check(MPI_Type_free(&large), "MPI_Type_free");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
}

Block::~Block() {
    if (type_ != MPI_DATATYPE_NULL && !has_broken_off()) MPI_Type_free(&type_);
}

bool has_collective(const BackendRequest& r) {
    switch (r.call) {
        case BackendCall::broadcast:
        case BackendCall::gather:
        case BackendCall::scatter:
        case BackendCall::barrier: return true;
        case BackendCall::all_reduce:
        case BackendCall::reduce:
        case BackendCall::scan:
        case BackendCall::exscan: return combines(r);
        case BackendCall::all_gather: return fits(r.counts, size_of(r.dtype));
        case BackendCall::reduce_scatter: return combines(r) && fits(r.counts, 1);
        default: return false;
    }
}

void begin_collective(const BackendRequest& request, const Communicators& communicators, Begun& begun) {
    Call(request, communicators, begun).begin();
}

}  // namespace tutti::backends::mpi
