#include "operations.hpp"

#include "forms.hpp"
#include "scale.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tutti::nccl_library {
namespace {

struct Type {
    DType dtype;
    const char* name;
};
constexpr std::array<Type, ncclNumTypes> types{{
    {DType::int8, "ncclInt8"},
    {DType::uint8, "ncclUint8"},
    {DType::int32, "ncclInt32"},
    {DType::uint32, "ncclUint32"},
    {DType::int64, "ncclInt64"},
    {DType::uint64, "ncclUint64"},
    {DType::float16, "ncclFloat16"},
    {DType::float32, "ncclFloat32"},
    {DType::float64, "ncclFloat64"},
    {DType::bfloat16, "ncclBfloat16"},
    {DType::float8_e4m3fn, "ncclFloat8e4m3"},
    {DType::float8_e5m2, "ncclFloat8e5m2"},
}};

// What a call has beside buffers and count, and where they reach.
struct Traits {
    const char* name;
    bool reduces;
    bool has_root;
    bool in_is_blocks;  // `in` has one block for each rank
    bool out_is_blocks;
};
const Traits& traits_of(Call call) {
    static constexpr std::array<Traits, 13> all{{
        {"ncclAllReduce", true, false, false, false},
        {"ncclBroadcast", false, true, false, false},
        {"ncclReduce", true, true, false, false},
        {"ncclAllGather", false, false, false, true},
        {"ncclReduceScatter", true, false, true, false},
        {"ncclAlltoAll", false, false, true, true},
        {"ncclGather", false, true, false, true},
        {"ncclScatter", false, true, true, false},
        {"ncclSend", false, true, false, false},
        {"ncclRecv", false, true, false, false},
        {"ncclPutSignal", false, true, false, false},
        {"ncclSignal", false, true, false, false},
        {"ncclWaitSignal", false, false, false, false},
    }};
    return all[static_cast<std::size_t>(call)];
}

bool reads(const Operation& o, int rank) {
    switch (o.call) {
        case Call::broadcast:
        case Call::scatter: return rank == o.root;
        case Call::receive:
        case Call::wait_signal: return false;
        default: return true;
    }
}

bool writes(const Operation& o, int rank) {
    switch (o.call) {
        case Call::reduce:
        case Call::gather: return rank == o.root;
        case Call::send:
        case Call::put_signal:
        case Call::signal:
        case Call::wait_signal: return false;
        default: return true;
    }
}

std::size_t bytes_of(const Operation& o) {
    return o.count * size_of(dtype_of(o.type));
}

bool apart(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    const auto* first = static_cast<const std::byte*>(a);
    const auto* second = static_cast<const std::byte*>(b);
    return first + a_bytes <= second || second + b_bytes <= first;
}

ReduceOp::Kind kind_of(ncclRedOp_t op) {
    switch (op) {
        case ncclProd: return ReduceOp::Kind::product;
        case ncclMax: return ReduceOp::Kind::max;
        case ncclMin: return ReduceOp::Kind::min;
        case ncclAvg: return ReduceOp::Kind::avg;
        default: return ReduceOp::Kind::sum;
    }
}

// ---- How a group carries it out

template <class Form>
class Starter {
 public:
    Starter(const Operation& operation, const Communicator& communicator)
        : o_(operation), group_(communicator.group()), rank_(communicator.rank()), size_(communicator.size()) {}

    Started start() {
        Started started;
        started.work = begin();
        started.scratch = scratch_;
        return started;
    }

 private:
    Work begin() {
        switch (o_.call) {
            case Call::all_reduce: return all_reduce();
            case Call::broadcast:
                if (rank_ == o_.root) copy_to(o_.out, o_.in);
                return Form::broadcast(out(1), {.group = group_, .group_src = o_.root});
            case Call::reduce: return reduce();
            case Call::all_gather: return Form::all_gather(out(size_), in(1), {.group = group_});
            case Call::reduce_scatter: return reduce_scatter();
            case Call::all_to_all: return Form::all_to_all(out(size_), in(size_), {.group = group_});
            case Call::gather: {
                TensorList blocks;
                for (int i = 0; rank_ == o_.root && i < size_; ++i) blocks.push_back(block(o_.out, i));
                return Form::gather(in(1), blocks, {.group = group_, .group_dst = o_.root});
            }
            case Call::scatter: {
                ConstTensorList blocks;
                for (int i = 0; rank_ == o_.root && i < size_; ++i)
                    blocks.push_back(block(const_cast<void*>(o_.in), i));
                return Form::scatter(out(1), blocks, {.group = group_, .group_src = o_.root});
            }
            case Call::send: return Form::send(in(1), o_.root, {.group = group_});
            case Call::receive: return Form::receive(out(1), {.group = group_, .group_src = o_.root});
            case Call::put_signal:
            case Call::signal:
            case Call::wait_signal: break;  // start_one_sided()
        }
        fail(ncclInternalError, "there is no such operation");
    }

    Work all_reduce() {
        if (multiplies_first()) {
            scale(o_.out, o_.in, o_.count);
            return Form::all_reduce(out(1), {.op = ReduceOp::sum, .group = group_});
        }
        copy_to(o_.out, o_.in);
        return Form::all_reduce(out(1), {.op = op(), .group = group_});
    }

    // Other ranks than the root have no place for a result; a group leaves their values as they are.
    Work reduce() {
        const bool is_root = rank_ == o_.root;
        ReduceOp how = op();
        TensorView values = is_root ? out(1) : writable(o_.in);
        if (multiplies_first()) {
            how = ReduceOp::sum;
            if (!is_root) values = make_scratch(o_.count);
            scale(values.data(), o_.in, o_.count);
        } else if (is_root) {
            copy_to(o_.out, o_.in);
        }
        return Form::reduce(values, {.op = how, .group = group_, .group_dst = o_.root});
    }

    Work reduce_scatter() {
        if (!multiplies_first()) {
            return Form::reduce_scatter(out(1), in(size_), {.op = op(), .group = group_});
        }
        const std::size_t all = o_.count * static_cast<std::size_t>(size_);
        const TensorView values = make_scratch(all);
        scale(values.data(), o_.in, all);
        return Form::reduce_scatter(out(1), values, {.op = ReduceOp::sum, .group = group_});
    }

    // Integers wrap around as NCCL's do; floating-point values are multiplied inside the sum, which rounds once.
    bool multiplies_first() const { return o_.op >= ncclNumOps && is_integral(dtype_of(o_.type)); }
    void scale(void* to, const void* from, std::size_t count) const {
        scale_integers(dtype_of(o_.type), to, from, factor(), count);
    }
    const void* factor() const { return o_.scale.factor.empty() ? o_.scale.where : o_.scale.factor.data(); }
    ReduceOp op() const {
        if (o_.op < ncclNumOps) return kind_of(o_.op);
        if (is_integral(dtype_of(o_.type))) return ReduceOp::sum;
        return ReduceOp::premul_sum(floating_value(dtype_of(o_.type), factor()));
    }

    void copy_to(void* to, const void* from) const {
        if (to != from && o_.count > 0) std::memmove(to, from, bytes_of(o_));
    }
    TensorView make_scratch(std::size_t count) {
        scratch_ = empty(dtype_of(o_.type), Extents::of(static_cast<std::int64_t>(count)));
        return scratch_.view();
    }
    Extents elements(int blocks) const { return Extents::of(static_cast<std::int64_t>(o_.count) * blocks); }
    TensorView out(int blocks) const { return {o_.out, elements(blocks), dtype_of(o_.type)}; }
    ConstTensorView in(int blocks) const { return {o_.in, elements(blocks), dtype_of(o_.type)}; }
    /// For functions that only read it.
    TensorView writable(const void* data) const { return {const_cast<void*>(data), elements(1), dtype_of(o_.type)}; }
    TensorView block(void* blocks, int i) const {
        if (o_.count == 0) return {nullptr, Extents::of(0), dtype_of(o_.type)};
        return {static_cast<std::byte*>(blocks) + static_cast<std::size_t>(i) * bytes_of(o_), elements(1),
                dtype_of(o_.type)};
    }

    const Operation& o_;
    ProcessGroup group_;
    int rank_;
    int size_;
    Tensor scratch_;
};

// ---- One-sided

bool is_one_sided(Call call) {
    return call >= Call::put_signal;
}

// NCCL takes only symmetric windows, as target and as source.
void check_put(Operation& o, const Communicator& communicator) {
    const Registered window = communicator.registered(o.window, "peerWin");
    if (!window.is_symmetric())
        fail(ncclInvalidArgument, "peerWin was registered without NCCL_WIN_COLL_SYMMETRIC: expected a window with it");
    const std::uint64_t there = window.rank_bytes[static_cast<std::size_t>(o.root)];
    if (o.offset > there || bytes_of(o) > there - o.offset) {
        fail(ncclInvalidArgument, "peerWinOffset is ", o.offset, " and ", bytes_of(o), " bytes are to be put: rank ",
             o.root, "'s window has ", there, " bytes");
    }
    o.window_number = window.number;
    if (o.count > 0 && !communicator.one_sided().find_symmetric(o.in, bytes_of(o))) {
        fail(ncclInvalidArgument, "localbuff, ", bytes_of(o), " bytes at ", o.in,
             ", is in no window of the communicator that was registered with NCCL_WIN_COLL_SYMMETRIC");
    }
}

Started start_one_sided(const Operation& o, Communicator& communicator) {
    Started started;
    if (o.call == Call::wait_signal) {
        communicator.listen();
        started.wait_otherwise = [&o, &communicator] {
            communicator.one_sided().await(o.signals, communicator.group().timeout());
        };
        return started;
    }
    auto sending = std::make_shared<OneSided::Sending>(communicator.one_sided().put(
        communicator.group(), o.root, o.window_number, o.offset, o.in, o.count > 0 ? bytes_of(o) : 0));
    started.wait_otherwise = [sending] { sending->wait(); };
    return started;
}

}  // namespace

const char* name_of(Call call) noexcept {
    return traits_of(call).name;
}

DType dtype_of(ncclDataType_t type) {
    const int number = static_cast<int>(type);
    if (number < 0 || number >= ncclNumTypes) {
        fail(ncclInvalidArgument, "datatype is ", number, ": expected 0 (ncclInt8) to ", ncclNumTypes - 1,
             " (ncclFloat8e5m2)");
    }
    return types[static_cast<std::size_t>(number)].dtype;
}

void check(Operation& o, const Communicator& communicator) {
    const int rank = communicator.rank(), size = communicator.size();
    const Traits& traits = traits_of(o.call);
    const DType dtype = dtype_of(o.type);
    if (traits.has_root && (o.root < 0 || o.root >= size)) {
        const bool message = o.call >= Call::send;
        fail(ncclInvalidArgument, message ? "peer" : "root", " is ", o.root, ": expected 0 to ", size - 1);
    }
    if (traits.reduces && o.op >= ncclNumOps) {
        o.scale = communicator.operator_of(o.op);
        if (o.scale.type != o.type) {
            fail(ncclInvalidArgument, "op was made for ", types[static_cast<std::size_t>(o.scale.type)].name,
                 ", and datatype is ", types[static_cast<std::size_t>(o.type)].name);
        }
    } else if (traits.reduces && static_cast<int>(o.op) < 0) {
        fail(ncclInvalidArgument, "op is ", static_cast<int>(o.op),
             ": expected ncclSum to ncclAvg, or one that was made");
    }
    const std::size_t most = static_cast<std::size_t>(INT64_MAX) / size_of(dtype) / static_cast<std::size_t>(size);
    if (o.count > most) fail(ncclInvalidArgument, "count is ", o.count, ": expected at most ", most);
    if (o.call == Call::put_signal) check_put(o, communicator);
    if (o.count == 0) return;
    if (reads(o, rank) && o.in == nullptr) {
        fail(ncclInvalidArgument, "sendbuff is NULL, and count ", o.count);
    }
    if (writes(o, rank) && o.out == nullptr) {
        fail(ncclInvalidArgument, "recvbuff is NULL, and count ", o.count);
    }
    if (!reads(o, rank) || !writes(o, rank)) return;

    // NCCL's operations in place: the same buffer, or this rank's block of the larger one.
    const std::size_t bytes = bytes_of(o), blocks = static_cast<std::size_t>(size);
    const std::size_t in_bytes = traits.in_is_blocks ? bytes * blocks : bytes;
    const std::size_t out_bytes = traits.out_is_blocks ? bytes * blocks : bytes;
    if (apart(o.in, in_bytes, o.out, out_bytes)) return;
    const auto* in = static_cast<const std::byte*>(o.in);
    const auto* out = static_cast<const std::byte*>(o.out);
    const std::size_t own = static_cast<std::size_t>(rank) * bytes;
    const bool in_place = traits.in_is_blocks == traits.out_is_blocks ? in == out && (!traits.in_is_blocks || size == 1)
                          : traits.out_is_blocks                      ? in == out + own
                                                                      : out == in + own;
    if (in_place) return;
    const char* rule = traits.in_is_blocks == traits.out_is_blocks
                           ? (traits.in_is_blocks ? "buffers apart" : "the same buffer, or buffers apart")
                       : traits.out_is_blocks ? "sendbuff at this rank's block of recvbuff, or buffers apart"
                                              : "recvbuff at this rank's block of sendbuff, or buffers apart";
    fail(ncclInvalidArgument, "sendbuff and recvbuff overlap: expected ", rule);
}

void check_own_messages(const std::vector<Operation>& operations, const Communicator& communicator) {
    std::vector<const Operation*> sends, receives;
    for (const Operation& o : operations) {
        if (o.root != communicator.rank()) continue;
        if (o.call == Call::send) sends.push_back(&o);
        if (o.call == Call::receive) receives.push_back(&o);
    }
    if (sends.size() != receives.size()) {
        fail(ncclInvalidUsage, communicator.describe(), " sends ", sends.size(),
             " messages to itself in this group and receives ", receives.size(), ": expected as many in one group");
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
        if (bytes_of(*sends[i]) == bytes_of(*receives[i]) && sends[i]->type == receives[i]->type) continue;
        fail(ncclInvalidUsage, communicator.describe(), " sends itself ", sends[i]->count, " elements of ",
             types[static_cast<std::size_t>(sends[i]->type)].name, ", and receives ", receives[i]->count, " of ",
             types[static_cast<std::size_t>(receives[i]->type)].name);
    }
}

Started start(const Operation& operation, Communicator& communicator) {
    if (is_one_sided(operation.call)) return start_one_sided(operation, communicator);
    return Starter<AtOnce>(operation, communicator).start();
}

void carry_out(const Operation& operation, Communicator& communicator) {
    if (is_one_sided(operation.call)) return start_one_sided(operation, communicator).wait();
    Starter<WhenDone>(operation, communicator).start();
}

double predicted_us(const Operation& o, const Communicator& communicator) {
    constexpr std::array<std::string_view, 8> names{"all_reduce",     "broadcast",  "reduce", "all_gather",
                                                    "reduce_scatter", "all_to_all", "gather", "scatter"};
    if (o.call == Call::wait_signal) return 0;  // its time is the puts'
    const auto index = static_cast<std::size_t>(o.call);
    // A message is a broadcast's last step, which a group predicts.
    const std::string_view name = index < names.size() ? names[index] : "broadcast";
    return communicator.group().predicted_us(name, bytes_of(o));
}

}  // namespace tutti::nccl_library
