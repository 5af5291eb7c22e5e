// The checks of each collective, and the call that it means.
#include "api/call.hpp"

#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "operation/fingerprint.hpp"

#include <algorithm>
#include <numeric>

namespace tutti::api::describe {
namespace {

using group::Fingerprint;

template <class Options>
void begin(Call& call, const char* name, Collective collective, const Options& o) {
    Group* const group = group_unheld(o.group);
    if (group == nullptr) [[unlikely]]
        refuse_group(o.group, name);
    check_timeout(name, o.timeout);
    call.name = name;
    call.collective = collective;
    call.group = group;
    call.timeout = o.timeout;
    call.stream = o.stream;
}

// Those that are not plain.
[[gnu::noinline]] void set_special_op(Call& call, const ReduceOp& op, Device device) {
    call.is_plain = false;
    call.op = op.kind();
    call.user = op.user();
    if (op.kind() == ReduceOp::Kind::premul_sum) {
        check_op(call.name, op.kind(), call.dtype);
        call.op = ReduceOp::Kind::sum;
        call.scaling = &op;
        return;
    }
    if (call.user == nullptr)
        refuse("{}: op is of kind user, without a function: expected one of ReduceOp.of", call.name);
    check_user_op(call.name, *call.user, call.dtype, device, *call.group);
}

void set_op(Call& call, const ReduceOp& op, const ConstTensorView& tensor) {
    TUTTI_ASSERT(call.group != nullptr && call.group->size() > 0);
    if (op.kind() >= ReduceOp::Kind::premul_sum) [[unlikely]]
        return set_special_op(call, op, tensor.device());
    check_op(call.name, op.kind(), call.dtype);
    call.op = op.kind();
    if (op.kind() == ReduceOp::Kind::avg) call.divisor = static_cast<std::uint64_t>(call.group->size());
}

// Several elements of the tensors are one of a caller's operator.
std::uint64_t elements_per_item(const Call& call) {
    TUTTI_ASSERT(call.user != nullptr);
    return call.element_bytes() / size_of(call.dtype);
}
[[gnu::noinline]] std::uint64_t items_in(const Call& call, const char* argument, std::uint64_t elements) {
    const std::uint64_t each = elements_per_item(call);
    if (elements % each != 0)
        refuse("{}: {} has {} bytes: expected a multiple of {}, the element size of {}", call.name, argument,
               elements * size_of(call.dtype), call.element_bytes(), call.user->to_string());
    return elements / each;
}
// Sets the number of elements of a tensor or block.
void set_count_of(Call& call, const char* argument, const ConstTensorView& tensor) {
    const std::uint64_t elements = count_of(tensor);
    call.set_count(call.user == nullptr ? elements : items_in(call, argument, elements));
}
// The same for blocks. A rank that combines blocks has no use for the room for received counts.
void set_counts_of(Call& call, const char* argument, std::span<const std::uint64_t> elements) {
    if (call.user == nullptr) return call.set_counts(elements);
    const std::span<std::uint64_t> items = call.receive_room.take(elements.size());
    std::ranges::transform(elements, items.begin(),
                           [&](std::uint64_t count) { return items_in(call, argument, count); });
    call.set_counts(items);
}

// The parts of a call on which all ranks have to agree.
void set_fingerprint(Call& call, ReduceOp::Kind op = ReduceOp::Kind::sum, int root = -1) {
    TUTTI_ASSERT(root < call.group->size());
    if (call.user != nullptr) [[unlikely]] {
        call.fingerprint =
            Fingerprint::pack(static_cast<int>(call.collective), call.dtype, *call.user, root, call.count);
        return;
    }
    call.fingerprint = Fingerprint::pack(static_cast<int>(call.collective), call.dtype, op, root, call.count);
}
// Of blocks whose lengths may differ.
void set_fingerprint_of_blocks(Call& call, ReduceOp::Kind op = ReduceOp::Kind::sum) {
    if (call.counts.empty()) return set_fingerprint(call, op);
    TUTTI_ASSERT(call.counts.empty() || call.counts.size() == static_cast<std::size_t>(call.group->size()));
    const int operation = static_cast<int>(call.collective);
    call.fingerprint = call.user == nullptr ? Fingerprint::pack(operation, call.dtype, op, -1, call.counts)
                                            : Fingerprint::pack(operation, call.dtype, *call.user, -1, call.counts);
}
// An exchange's blocks are each pair's own.
void set_fingerprint_of_exchange(Call& call) {
    const CollectiveTraits& traits = traits_of(call.collective);
    TUTTI_ASSERT(traits.exchanges());
    call.fingerprint = Fingerprint::pack(static_cast<int>(call.collective), call.dtype, ReduceOp::Kind::sum,
                                         traits.is_rooted() ? call.root : -1, std::uint64_t{0});
}

// ---- Where the values are

bool is_on_host(const ConstTensorView& view) {
    return view.device().type == Device::Type::cpu;
}

/// The values on one side of a call.
struct Memory {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    bool in_one_piece = true;  ///< of host memory
};
Memory memory_of(const ConstTensorView& view) {
    return {static_cast<std::byte*>(const_cast<void*>(view.data())), view.byte_count(),
            view.contiguous() && is_on_host(view)};
}
template <class View>
Memory memory_of(const std::vector<View>& list) {
    const auto begin = in_one_piece(list);
    std::size_t bytes = 0;
    for (const ConstTensorView& view : list) bytes += view.byte_count();
    return {begin.value_or(nullptr), bytes, begin && std::ranges::all_of(list, is_on_host)};
}
bool are_apart(const Memory& a, const Memory& b) {
    return a.bytes == 0 || b.bytes == 0 || a.begin + a.bytes <= b.begin || b.begin + b.bytes <= a.begin;
}

void set_target(Call& call, const TensorView& tensor) {
    TUTTI_ASSERT(call.target == nullptr);
    const Memory memory = memory_of(tensor);
    call.target = &tensor;
    call.output = memory.begin;
    call.direct = memory.in_one_piece && call.is_plain;
}
void set_source(Call& call, const ConstTensorView& tensor) {
    const Memory memory = memory_of(tensor);
    TUTTI_ASSERT(call.source == nullptr);
    call.source = &tensor;
    call.input = memory.begin;
    call.direct = memory.in_one_piece && call.is_plain;
}
/// Results in the place of the values.
void set_target_in_place(Call& call, const TensorView& tensor) {
    set_target(call, tensor);
    call.input = call.output;
    call.in_place = true;
}

void refer(Call& call, const ConstTensorView& source) {
    call.source = &source;
}
void refer(Call& call, const ConstTensorList& sources) {
    call.sources = &sources;
}
void refer(Call& call, const TensorView& target) {
    call.target = &target;
}
void refer(Call& call, const TensorList& targets) {
    call.targets = &targets;
}

/// The place of a rank's own block in the whole, where one side has the blocks of all ranks.
enum class OwnBlock { nowhere, in_source, in_target };

std::size_t place_of_own(const Call& call, OwnBlock own) {
    const int rank = call.group->rank();
    if (!traits_of(call.collective).exchanges()) return static_cast<std::size_t>(rank) * call.block_bytes;
    std::size_t place = 0;
    int peer = 0;
    const auto look = [&](const engine::Stretch& part) {
        if (peer++ == rank) place = part.at;
    };
    if (own == OwnBlock::in_source)
        call.for_each_input_part(rank, call.group->size(), look);
    else
        call.for_each_output_part(rank, call.group->size(), look);
    return place;
}

/// Input and output may touch only where the rank's own block is in its place already.
template <class Source, class Target>
void set_memory(Call& call, const Source& source, const Target& target, OwnBlock own = OwnBlock::nowhere) {
    const Memory from = memory_of(source), to = memory_of(target);
    TUTTI_ASSERT(call.source == nullptr && call.sources == nullptr && call.target == nullptr &&
                 call.targets == nullptr);
    refer(call, source);
    refer(call, target);
    call.input = from.begin;
    call.output = to.begin;
    if (!from.in_one_piece || !to.in_one_piece || !call.is_plain || !call.counts.empty()) return;
    TUTTI_ASSERT(own == OwnBlock::nowhere || call.block_bytes != engine::CollectiveCall::different);
    const std::size_t before = own == OwnBlock::nowhere ? 0 : place_of_own(call, own);
    const bool in_place = (own == OwnBlock::in_source && to.begin == from.begin + before) ||
                          (own == OwnBlock::in_target && from.begin == to.begin + before);
    call.direct = in_place || are_apart(from, to);
}

// ---- Blocks

/// Of a list: of each tensor.
template <class List>
std::span<const std::uint64_t> counts_of(const List& list, RankNumbers& room) {
    const std::span<std::uint64_t> counts = room.take(list.size());
    TUTTI_ASSERT(counts.size() == list.size());
    std::ranges::transform(list, counts.begin(), [](const ConstTensorView& view) { return count_of(view); });
    return counts;
}

/// The blocks of a rank that has one for, or from, the root alone.
std::span<const std::uint64_t> only(int root, std::uint64_t count, int ranks, RankNumbers& room) {
    const std::span<std::uint64_t> counts = room.take(static_cast<std::size_t>(ranks));
    std::ranges::fill(counts, std::uint64_t{0});
    counts[static_cast<std::size_t>(root)] = count;
    return counts;
}

template <class List>
void check_list(const Call& call, const char* list_name, const char* entry, const List& list, DType dtype) {
    TUTTI_ASSERT(call.group != nullptr);
    check_length(call.name, list_name, list.size(), *call.group);
    for (const ConstTensorView& view : list) check_dtype(call.name, entry, view, dtype, *call.group);
}
/// The list of blocks that the root of a gather or scatter gives.
template <class List>
void check_root_list(const Call& call, const char* list_name, const char* entry, const List& list) {
    check_list(call, list_name, entry, list, call.dtype);
    for (const ConstTensorView& view : list) check_count(call.name, entry, view, call.count);
}
void refuse_list(const Call& call, const char* list_name) {
    refuse("{}: {} is given on rank {}: expected it only on the root, rank {}", call.name, list_name,
           call.group->rank(), call.root);
}
bool is_root(const Call& call) {
    TUTTI_ASSERT(call.root >= 0 && call.root < call.group->size());
    return call.group->rank() == call.root;
}

// Checks the device, and takes the type.
void set_type(Call& call, const char* argument, const ConstTensorView& view) {
    TUTTI_ASSERT(call.group != nullptr && view.element_count() >= 0);
    check_device(call.name, argument, view, *call.group);
    call.dtype = view.dtype();
}

void describe_prefix(Call& call, const char* name, Collective collective, const TensorView& tensor,
                     const AllReduceOptions& o) {
    begin(call, name, collective, o);
    set_type(call, "tensor", tensor);
    if (o.op.kind() == ReduceOp::Kind::avg) {
        refuse(
            "{}: op avg: expected another one; each rank combines another number of values: take sum, and divide by "
            "the number of them",
            name);
    }
    set_op(call, o.op, tensor);
    set_count_of(call, "tensor", tensor);
    if (traits_of(collective).writes(call.group->rank(), call.root))
        set_target_in_place(call, tensor);
    else
        set_source(call, tensor);
    set_fingerprint(call, o.op.kind());
}

}  // namespace

void all_reduce(Call& call, const TensorView& tensor, const AllReduceOptions& o) {
    begin(call, "all_reduce", Collective::all_reduce, o);
    set_type(call, "tensor", tensor);
    set_op(call, o.op, tensor);
    set_count_of(call, "tensor", tensor);
    set_target_in_place(call, tensor);
    set_fingerprint(call, o.op.kind());
}

void scan(Call& call, const TensorView& tensor, const AllReduceOptions& o) {
    describe_prefix(call, "scan", Collective::scan, tensor, o);
}
void exscan(Call& call, const TensorView& tensor, const AllReduceOptions& o) {
    describe_prefix(call, "exscan", Collective::exscan, tensor, o);
}

void broadcast(Call& call, const TensorView& tensor, const BroadcastOptions& o) {
    begin(call, "broadcast", Collective::broadcast, o);
    set_type(call, "tensor", tensor);
    call.root = root_of(call.name, "src", o.src, o.group_src, *call.group, -1);
    call.set_count(count_of(tensor));
    set_target_in_place(call, tensor);
    set_fingerprint(call, ReduceOp::Kind::sum, call.root);
}

void reduce(Call& call, const TensorView& tensor, const ReduceOptions& o) {
    begin(call, "reduce", Collective::reduce, o);
    set_type(call, "tensor", tensor);
    set_op(call, o.op, tensor);
    call.root = root_of(call.name, "dst", o.dst, o.group_dst, *call.group, -1);
    set_count_of(call, "tensor", tensor);
    if (is_root(call))
        set_target_in_place(call, tensor);
    else
        set_source(call, tensor);
    set_fingerprint(call, o.op.kind(), call.root);
}

void all_gather(Call& call, const TensorList& outputs, const ConstTensorView& tensor, const CollectiveOptions& o) {
    begin(call, "all_gather", Collective::all_gather, o);
    set_type(call, "tensor", tensor);
    check_list(call, "output_list", "an entry of output_list", outputs, call.dtype);
    check_count(call.name, "output_list's entry for this rank", outputs[static_cast<std::size_t>(call.group->rank())],
                count_of(tensor));
    call.set_counts(counts_of(outputs, call.receive_room));
    set_memory(call, tensor, outputs, OwnBlock::in_target);
    TUTTI_ASSERT(call.counts.empty() || call.counts.size() == outputs.size());
    set_fingerprint_of_blocks(call);
}

void all_gather_into_tensor(Call& call, const TensorView& output, const ConstTensorView& input,
                            const CollectiveOptions& o) {
    begin(call, "all_gather_into_tensor", Collective::all_gather, o);
    set_type(call, "input", input);
    check_dtype(call.name, "output", output, call.dtype, *call.group);
    check_blocks(call.name, "output", output, "input", input, *call.group);
    call.set_count(count_of(input));
    set_memory(call, input, output, OwnBlock::in_target);
    set_fingerprint(call);
}

void all_gather_v(Call& call, const TensorView& output, const ConstTensorView& input, const AllGatherVOptions& o) {
    begin(call, "all_gather_v", Collective::all_gather, o);
    set_type(call, "input", input);
    check_dtype(call.name, "output", output, call.dtype, *call.group);
    const int ranks = call.group->size();
    Blocks blocks;
    if (o.output_offsets.empty())
        blocks.counts = split_counts(call.name, "output", o.output_split_sizes, output, ranks, call.receive_room);
    else
        blocks = displaced_rows(call.name, o, output, ranks, {call.send_room, call.receive_room});
    check_count(call.name, "input", input, blocks.counts[static_cast<std::size_t>(call.group->rank())]);
    call.set_counts(blocks.counts);
    set_memory(call, input, output, OwnBlock::in_target);
    call.receive_offsets = blocks.offsets;
    if (!blocks.offsets.empty()) call.direct = false;  // its result moves there from a temporary
    TUTTI_ASSERT(call.counts.empty() || call.counts.size() == static_cast<std::size_t>(call.group->size()));
    set_fingerprint_of_blocks(call);
}

void gather(Call& call, const ConstTensorView& tensor, const TensorList& outputs, const GatherOptions& o) {
    begin(call, "gather", Collective::gather, o);
    set_type(call, "tensor", tensor);
    call.root = root_of(call.name, "dst", o.dst, o.group_dst, *call.group, 0);
    call.set_count(count_of(tensor));
    if (is_root(call)) {
        check_root_list(call, "gather_list", "an entry of gather_list", outputs);
        set_memory(call, tensor, outputs, OwnBlock::in_target);
    } else {
        if (!outputs.empty()) refuse_list(call, "gather_list");
        set_source(call, tensor);
    }
    set_fingerprint(call, ReduceOp::Kind::sum, call.root);
}

void scatter(Call& call, const TensorView& tensor, const ConstTensorList& inputs, const ScatterOptions& o) {
    begin(call, "scatter", Collective::scatter, o);
    set_type(call, "tensor", tensor);
    call.root = root_of(call.name, "src", o.src, o.group_src, *call.group, 0);
    call.set_count(count_of(tensor));
    if (is_root(call)) {
        check_root_list(call, "scatter_list", "an entry of scatter_list", inputs);
        set_memory(call, inputs, tensor, OwnBlock::in_source);
    } else {
        if (!inputs.empty()) refuse_list(call, "scatter_list");
        set_target(call, tensor);
    }
    set_fingerprint(call, ReduceOp::Kind::sum, call.root);
}

void gather_v(Call& call, const ConstTensorView& input, const TensorView& output, const GatherVOptions& o) {
    begin(call, "gather_v", Collective::gather_v, o);
    set_type(call, "input", input);
    call.root = root_of(call.name, "dst", o.dst, o.group_dst, *call.group, 0);
    const auto sent = only(call.root, count_of(input), call.group->size(), call.send_room);
    if (is_root(call)) {
        check_dtype(call.name, "output", output, call.dtype, *call.group);
        const Blocks blocks = gathered_blocks(call.group->size(), count_of(output), o, call.receive_room);
        check_count(call.name, "input", input, blocks.counts[static_cast<std::size_t>(call.root)]);
        call.set_blocks(sent, blocks.counts);
        call.receive_offsets = blocks.offsets;
        set_memory(call, input, output, OwnBlock::in_target);
    } else {
        call.set_blocks(sent, only(call.root, 0, call.group->size(), call.receive_room));
        set_source(call, input);
    }
    set_fingerprint_of_exchange(call);
}

void scatter_v(Call& call, const TensorView& output, const ConstTensorView& input, const ScatterVOptions& o) {
    begin(call, "scatter_v", Collective::scatter_v, o);
    set_type(call, "output", output);
    call.root = root_of(call.name, "src", o.src, o.group_src, *call.group, 0);
    const auto received = only(call.root, count_of(output), call.group->size(), call.receive_room);
    if (is_root(call)) {
        check_dtype(call.name, "input", input, call.dtype, *call.group);
        const Blocks blocks = scattered_blocks(call.group->size(), count_of(input), o, call.send_room);
        check_count(call.name, "output", output, blocks.counts[static_cast<std::size_t>(call.root)]);
        call.set_blocks(blocks.counts, received);
        call.send_offsets = blocks.offsets;
        set_memory(call, input, output, OwnBlock::in_source);
    } else {
        call.set_blocks(only(call.root, 0, call.group->size(), call.send_room), received);
        set_target(call, output);
    }
    set_fingerprint_of_exchange(call);
}

void reduce_scatter(Call& call, const TensorView& output, const ConstTensorList& inputs,
                    const ReduceScatterOptions& o) {
    begin(call, "reduce_scatter", Collective::reduce_scatter, o);
    set_type(call, "output", output);
    check_list(call, "input_list", "an entry of input_list", inputs, call.dtype);
    check_count(call.name, "input_list's entry for this rank", inputs[static_cast<std::size_t>(call.group->rank())],
                count_of(output));
    set_op(call, o.op, output);
    set_counts_of(call, "an entry of input_list", counts_of(inputs, call.send_room));
    TUTTI_ASSERT(call.counts.empty() || call.counts.size() == inputs.size());
    set_memory(call, inputs, output, OwnBlock::in_source);
    set_fingerprint_of_blocks(call, o.op.kind());
}

void reduce_scatter_tensor(Call& call, const TensorView& output, const ConstTensorView& input,
                           const ReduceScatterOptions& o) {
    begin(call, "reduce_scatter_tensor", Collective::reduce_scatter, o);
    set_type(call, "output", output);
    check_dtype(call.name, "input", input, call.dtype, *call.group);
    check_blocks(call.name, "input", input, "output", output, *call.group);
    set_op(call, o.op, output);
    set_count_of(call, "output", output);
    set_memory(call, input, output, OwnBlock::in_source);
    set_fingerprint(call, o.op.kind());
}

void reduce_scatter_v(Call& call, const TensorView& output, const ConstTensorView& input,
                      const ReduceScatterVOptions& o) {
    begin(call, "reduce_scatter_v", Collective::reduce_scatter, o);
    set_type(call, "output", output);
    check_dtype(call.name, "input", input, call.dtype, *call.group);
    const auto counts =
        split_counts(call.name, "input", o.input_split_sizes, input, call.group->size(), call.send_room);
    check_count(call.name, "output", output, counts[static_cast<std::size_t>(call.group->rank())]);
    set_op(call, o.op, output);
    set_counts_of(call, "a block of input", counts);
    set_memory(call, input, output, OwnBlock::in_source);
    TUTTI_ASSERT(call.counts.empty() || call.counts.size() == static_cast<std::size_t>(call.group->size()));
    set_fingerprint_of_blocks(call, o.op.kind());
}

void all_to_all_single(Call& call, const TensorView& output, const ConstTensorView& input,
                       const AllToAllSingleOptions& o) {
    begin(call, "all_to_all_single", Collective::all_to_all, o);
    set_type(call, "input", input);
    check_dtype(call.name, "output", output, call.dtype, *call.group);
    const int ranks = call.group->size();
    const auto me = static_cast<std::size_t>(call.group->rank());
    if (o.input_split_sizes.empty() && o.output_split_sizes.empty()) {
        call.set_count(even_count(call.name, "input", input, ranks));
        check_own_block(call.name, call.count, even_count(call.name, "output", output, ranks));
    } else {
        const auto sent = split_counts(call.name, "input", o.input_split_sizes, input, ranks, call.send_room);
        const auto received = split_counts(call.name, "output", o.output_split_sizes, output, ranks, call.receive_room);
        check_own_block(call.name, sent[me], received[me]);
        call.set_blocks(sent, received);
    }
    set_memory(call, input, output);
    set_fingerprint_of_exchange(call);
}

void all_to_all_v(Call& call, const TensorView& output, const ConstTensorView& input, const AllToAllVOptions& o) {
    begin(call, "all_to_all_v", Collective::all_to_all, o);
    set_type(call, "input", input);
    check_dtype(call.name, "output", output, call.dtype, *call.group);
    const DisplacedBlocks blocks =
        displaced_blocks(call.group->rank(), call.group->size(), {.input = count_of(input), .output = count_of(output)},
                         o, {call.send_room, call.receive_room});
    call.set_blocks(blocks.send.counts, blocks.receive.counts);
    call.send_offsets = blocks.send.offsets;
    call.receive_offsets = blocks.receive.offsets;
    TUTTI_ASSERT(call.send_counts.size() == call.receive_counts.size());
    set_memory(call, input, output);
    set_fingerprint_of_exchange(call);
}

void all_to_all(Call& call, const TensorList& outputs, const ConstTensorList& inputs, const CollectiveOptions& o) {
    begin(call, "all_to_all", Collective::all_to_all, o);
    check_length(call.name, "input_list", inputs.size(), *call.group);
    check_length(call.name, "output_list", outputs.size(), *call.group);
    call.dtype = inputs.front().dtype();
    check_list(call, "input_list", "an entry of input_list", inputs, call.dtype);
    check_list(call, "output_list", "an entry of output_list", outputs, call.dtype);
    const auto me = static_cast<std::size_t>(call.group->rank());
    check_count(call.name, "output_list's entry for this rank", outputs[me], count_of(inputs[me]));
    call.set_blocks(counts_of(inputs, call.send_room), counts_of(outputs, call.receive_room));
    TUTTI_ASSERT(call.send_counts.size() == call.receive_counts.size());
    set_memory(call, inputs, outputs);
    set_fingerprint_of_exchange(call);
}

// On a device: on the first that is named, in a group that serves devices.
void barrier(Call& call, const BarrierOptions& o) {
    begin(call, "barrier", Collective::barrier, o);
    call.direct = true;
    if (!o.device_ids.empty()) [[unlikely]] {
        const int index = o.device_ids.front();
        if (index < 0) refuse("barrier: device_ids has {}: expected zero or more", index);
        for (const auto& [device, name] : call.group->backends().names()) {
            if (device == Device::Type::cpu || call.device) continue;
            call.device = Device{device, index};
            call.direct = false;
        }
    }
    TUTTI_ASSERT(call.count == 0);
    set_fingerprint(call);
}

}  // namespace tutti::api::describe
