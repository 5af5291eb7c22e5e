// The backend "ucc": OpenUCX's library, made to look like NCCL. A call on host memory waits until it is over; a call on
// CUDA memory is in the stream when it returns, by UCC's triggered collectives.
//
// The replacements: a communicator is a team with a context of its own, whose ranks exchange addresses in the group's
// store; sends and receives are broadcasts within the pair ("active sets"), in a group of calls all at the same time.
// UCC's gather and scatter are not here: the set of transports that have them differs by version.
#include "nccl/adapted.hpp"
#include "nccl/plug_in.hpp"
#include "nccl/ucc_team.hpp"
#include "nccl/vendors.hpp"

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace tutti::nccl {
namespace {

using ucc::Collective;
using StreamHandle = void*;
constexpr std::size_t id_bytes = 16;

// UCC's numbers of predefined types; -1: it has no such type.
int type_of(Type type) {
    switch (type) {
        case int8: return 0;
        case int32: return 2;
        case int64: return 3;
        case uint8: return 5;
        case uint32: return 7;
        case uint64: return 8;
        case float16: return 10;
        case float32: return 11;
        case float64: return 12;
        case bfloat16: return 13;
        default: return -1;
    }
}
constexpr unsigned type_shift = 3;

Result result_of(ucc::Status status) {
    return status == ucc::ok ? Result::success : foreign(status);
}

ucc::Buffer buffer(const void* data, std::uint64_t count, Type type) {
    return {.data = const_cast<void*>(data),
            .count = count,
            .type = static_cast<std::uint64_t>(type_of(type)) << type_shift};
}

const std::byte* at(const void* data, std::uint64_t elements, Type type) {
    return static_cast<const std::byte*>(data) + elements * size_of(type);
}

// The common part of every call: `fill` describes the collective of this team.
template <class F>
Result run(Comm comm, Collective collective, std::uint64_t count, Type type, const void* memory, StreamHandle stream,
           F fill) {
    if (count == 0) return Result::success;  // on all ranks
    auto* team = static_cast<UccTeam*>(Adapted::own(comm));
    if (team == nullptr) return Result::invalid_usage;
    if (type_of(type) < 0) return Result::invalid_argument;
    ucc::CollArgs args;
    args.collective = collective;
    fill(args, *team);
    return result_of(team->start(args, memory, stream));
}
void in_place(ucc::CollArgs& args) {
    args.mask |= ucc::args_have_flags;
    args.flags |= ucc::flag_in_place;
}

Result get_version(int* version) {
    *version = ucc_version();
    return *version == 0 ? Result::invalid_usage : Result::success;
}
Result get_id(void* id) {
    std::random_device chance;
    auto* to = static_cast<std::uint32_t*>(id);
    for (std::size_t i = 0; i < id_bytes / sizeof *to; ++i) to[i] = chance();
    return Result::success;
}
Result init_rank(Comm* comm, int ranks, const void* id, int rank, const Store& store) {
    std::string key = "ucc";
    for (std::size_t i = 0; i < id_bytes; ++i) {
        key += '/';
        key += std::to_string(static_cast<unsigned>(static_cast<const unsigned char*>(id)[i]));
    }
    return Adapted::start(
        comm,
        [=](void** own, const std::atomic<bool>& given_up) {
            UccTeam* team = nullptr;
            const ucc::Status status = UccTeam::make(team, PrefixStore(key, store), rank, ranks, given_up);
            *own = team;
            return status;
        },
        [](void* own) { return UccTeam::end(static_cast<UccTeam*>(own)); });
}
Result get_async_error(Comm comm, Result* error) {
    *error = Adapted::state(comm);
    auto* team = static_cast<UccTeam*>(Adapted::own(comm));
    if (*error == Result::success && team != nullptr) *error = result_of(team->error());
    return Result::success;
}
const char* error_string(Result result) {
    const char* own = Adapted::text(result);
    return own != nullptr ? own : ucc_status_text(code_of(result));
}
const char* last_error(Comm) {
    return "";  // it logs; UCC_LOG_LEVEL says how much
}

Result all_reduce(const void* in, void* out, std::size_t count, Type type, ReduceOpHandle op, Comm comm,
                  StreamHandle stream) {
    return run(comm, Collective::all_reduce, count, type, out, stream, [&](ucc::CollArgs& args, UccTeam&) {
        args.src = buffer(in, count, type);
        args.dst = buffer(out, count, type);
        args.op = op;
        if (in == out) in_place(args);
    });
}
Result broadcast(const void* in, void* out, std::size_t count, Type type, int root, Comm comm, StreamHandle stream) {
    return run(comm, Collective::broadcast, count, type, out, stream, [&](ucc::CollArgs& args, UccTeam& team) {
        if (team.rank() == root && in != out) team.copy(out, in, count * size_of(type), stream);
        args.src = buffer(out, count, type);
        args.root = static_cast<std::uint64_t>(root);
    });
}
Result reduce(const void* in, void* out, std::size_t count, Type type, ReduceOpHandle op, int root, Comm comm,
              StreamHandle stream) {
    return run(comm, Collective::reduce, count, type, in, stream, [&](ucc::CollArgs& args, UccTeam& team) {
        args.src = buffer(in, count, type);
        args.dst = buffer(out, count, type);
        args.op = op;
        args.root = static_cast<std::uint64_t>(root);
        if (team.rank() == root && in == out) in_place(args);
    });
}
Result all_gather(const void* in, void* out, std::size_t block, Type type, Comm comm, StreamHandle stream) {
    return run(comm, Collective::all_gather, block, type, out, stream, [&](ucc::CollArgs& args, UccTeam& team) {
        args.src = buffer(in, block, type);
        args.dst = buffer(out, block * team.size(), type);
        if (in == at(out, block * team.index(), type)) in_place(args);
    });
}
Result reduce_scatter(const void* in, void* out, std::size_t block, Type type, ReduceOpHandle op, Comm comm,
                      StreamHandle stream) {
    return run(comm, Collective::reduce_scatter, block, type, in, stream, [&](ucc::CollArgs& args, UccTeam& team) {
        const std::uint64_t all = block * team.size();
        args.src = buffer(in, all, type);
        args.dst = buffer(out, block, type);
        args.op = op;
        if (out != at(in, block * team.index(), type)) return;
        args.dst = buffer(in, all, type);
        in_place(args);
    });
}
Result message(const void* data, std::size_t count, Type type, int from, int to, Comm comm, StreamHandle stream) {
    return run(comm, Collective::broadcast, count, type, data, stream, [&](ucc::CollArgs& args, UccTeam&) {
        args.src = buffer(data, count, type);
        args.root = static_cast<std::uint64_t>(from);
        args.mask |= ucc::args_have_active_set | ucc::args_have_tag;
        args.active_set = {.start = static_cast<std::uint64_t>(from), .stride = to - from, .size = 2};
    });
}
int rank_in(Comm comm) {
    const auto* team = static_cast<const UccTeam*>(Adapted::own(comm));
    return team == nullptr ? -1 : team->rank();
}
Result send(const void* data, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
    return message(data, count, type, rank_in(comm), peer, comm, stream);
}
Result receive(void* data, std::size_t count, Type type, int peer, Comm comm, StreamHandle stream) {
    return message(data, count, type, peer, rank_in(comm), comm, stream);
}
Result group_start() {
    UccTeam::begin_group();
    return Result::success;
}
Result group_end() {
    return result_of(UccTeam::end_group());
}

void resolve(Symbols& symbols, Interface& calls) {
    resolve_ucc(symbols);
    calls.GetVersion = get_version;
    calls.id_bytes = id_bytes;
    calls.GetLongId = get_id;
    calls.CommInitRankLongId = init_rank;
    calls.CommFinalize = Adapted::finalize;
    calls.CommDestroy = Adapted::destroy;
    calls.CommAbort = Adapted::destroy;
    calls.CommGetAsyncError = get_async_error;
    calls.GetErrorString = error_string;
    calls.GetLastError = last_error;
    calls.AllReduce = all_reduce;
    calls.Broadcast = broadcast;
    calls.Reduce = reduce;
    calls.AllGather = all_gather;
    calls.ReduceScatter = reduce_scatter;
    calls.Send = send;
    calls.Recv = receive;
    calls.GroupStart = group_start;
    calls.GroupEnd = group_end;
}

bool has_devices() {
    try {
        return open_cuda_driver()->device_count() > 0;
    } catch (const std::exception&) {
        return false;
    }
}

Abilities abilities(int) {
    Abilities known;
    known.reduced_types = {int8, uint8, int32, uint32, int64, uint64, float32, float64};
    // On host memory tutti's own reduction rounds short floats once, and copies nothing.
    if (has_devices()) known.reduced_types.insert(known.reduced_types.end(), {float16, bfloat16});
    known.avg = known.premul_sum = known.split = known.carries_nan = false;
    return known;
}

bool always() {
    return true;
}

}  // namespace

Vendor ucc_vendor() {
    Vendor vendor;
    vendor.backend = "ucc";
    vendor.title = "UCC";
    vendor.prefix = "UCC's ";
    vendor.files = {"libucc.so.1"};
    vendor.variable = "TUTTI_UCC_LIB";
    vendor.devices = {Device::Type::cuda};
    vendor.oldest = 10200;
    vendor.oldest_text = "1.2";
    vendor.how_to_get = "NVIDIA's HPC-X brings it; OpenUCX has its sources";
    vendor.resolve = resolve;
    vendor.abilities = abilities;
    vendor.version_text = nccl_version_text;
    vendor.anchor = "ucc_get_version";
    vendor.on_host = always;
    return vendor;
}

}  // namespace tutti::nccl

TUTTI_NCCL_PLUG_IN(tutti::nccl::ucc_vendor())
