#include "api/quick.hpp"

#include "api/coalescing_internal.hpp"
#include "api/request.hpp"
#include "group/fingerprint.hpp"
#include "group/group.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <tuple>

namespace tutti::api::quick {
namespace {

using detail::Group;
using engine::SlotCall;
using group::Fingerprint;

constexpr std::size_t counts_max = 64;

/// The group that an option names, or the default group; empty when there is none, or its calls are collected.
class Target {
 public:
    explicit Target(const ProcessGroup& named) : group_(group_unheld(named)) {
        if (open_scopes > 0 && group_ != nullptr && is_collected(*group_)) group_ = nullptr;
    }
    explicit operator bool() const noexcept { return group_ != nullptr; }
    Group* operator->() const noexcept { return group_; }
    Group& operator*() const noexcept { return *group_; }

 private:
    Group* group_;
};

bool plain(const ConstTensorView& view) {
    return view.contiguous() && view.device().type == Device::Type::cpu;
}
bool overlap(const std::byte* first, std::size_t first_bytes, const std::byte* second, std::size_t second_bytes) {
    return first < second + second_bytes && second < first + first_bytes;
}
bool overlap(const ConstTensorView& a, const ConstTensorView& b) {
    return overlap(static_cast<const std::byte*>(a.data()), a.byte_count(), static_cast<const std::byte*>(b.data()),
                   b.byte_count());
}
bool combines(ReduceOp op, DType dtype) {
    return op.kind() != ReduceOp::Kind::premul_sum && is_supported(op.kind(), dtype);
}

std::uint64_t count_of(const ConstTensorView& view) {
    return static_cast<std::uint64_t>(view.element_count());
}

// As for the ordinary way: of the count, or of the counts of all ranks' blocks.
std::uint64_t fingerprint(Collective c, DType dtype, ReduceOp op, int root, std::uint64_t count) {
    return Fingerprint::pack(static_cast<int>(c), dtype, op.kind(), root, count);
}
std::uint64_t fingerprint_of_blocks(Collective c, DType dtype, ReduceOp op, int ranks, std::uint64_t count) {
    std::array<std::uint64_t, counts_max> counts;
    const auto all = std::span(counts).first(static_cast<std::size_t>(ranks));
    std::ranges::fill(all, count);
    return Fingerprint::pack(static_cast<int>(c), dtype, op.kind(), -1, all);
}

SlotCall call_of(Collective collective, const ConstTensorView& in, const ConstTensorView& out, std::uint64_t count) {
    return {.collective = collective,
            .input = static_cast<const std::byte*>(in.data()),
            .output = static_cast<std::byte*>(const_cast<void*>(out.data())),
            .block_bytes = count * size_of(in.dtype()),
            .count = count,
            .dtype = in.dtype()};
}
void set_op(SlotCall& call, ReduceOp op, int ranks) {
    call.op = op.kind();
    call.divisor = op.kind() == ReduceOp::Kind::avg ? static_cast<std::uint64_t>(ranks) : 1;
}

/// A root that is named once and exists; -1 otherwise.
int root_of(std::optional<int> global, std::optional<int> in_group, int fallback, const Target& group) {
    if (global && in_group) return -1;
    const int root = in_group ? *in_group : group->rank_of(global.value_or(fallback));
    return root < group->size() ? root : -1;
}

/// Whether a list holds one block after the other, all like `block`.
template <class List>
bool adjoining(const List& list, const ConstTensorView& block, int ranks) {
    if (list.size() != static_cast<std::size_t>(ranks)) return false;
    const auto* at = static_cast<const std::byte*>(list.front().data());
    for (const auto& view : list) {
        if (!plain(view) || view.dtype() != block.dtype() || view.element_count() != block.element_count() ||
            static_cast<const std::byte*>(view.data()) != at)
            return false;
        at += view.byte_count();
    }
    return true;
}

/// The same of blocks of any length, whose element counts it writes down.
template <class List>
bool adjoining(const List& list, DType dtype, std::size_t ranks, std::uint64_t* counts) {
    if (list.size() != ranks) return false;
    const auto* at = static_cast<const std::byte*>(list.front().data());
    for (const auto& view : list) {
        if (!plain(view) || view.dtype() != dtype || static_cast<const std::byte*>(view.data()) != at) return false;
        at += view.byte_count();
        *counts++ = count_of(view);
    }
    return true;
}

/// One side's blocks of an all_to_all_v, as its caller gave them.
class Blocks {
 public:
    Blocks(const std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& offsets)
        : counts_(unsigned_of(counts)), offsets_(unsigned_of(offsets)) {}

    std::span<const std::uint64_t> counts() const noexcept { return counts_; }
    std::span<const std::uint64_t> offsets() const noexcept { return offsets_; }

    /// Whether there is one for each rank, within so many elements. Negative numbers are far beyond them.
    bool lie_in(std::uint64_t elements, std::size_t ranks) const noexcept {
        if (counts_.size() != ranks || (!offsets_.empty() && offsets_.size() != ranks)) return false;
        std::uint64_t end = 0;
        for (std::size_t i = 0; i < ranks; ++i) {
            if (counts_[i] == 0) continue;  // it is nowhere
            const std::uint64_t begin = offsets_.empty() ? end : offsets_[i];
            if (counts_[i] > elements || begin > elements - counts_[i]) return false;
            end = begin + counts_[i];
        }
        return true;
    }
    bool are_disjoint() const noexcept {
        for (std::size_t i = 1; i < offsets_.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                const bool apart = offsets_[i] >= offsets_[j] + counts_[j] || offsets_[j] >= offsets_[i] + counts_[i];
                if (!apart && counts_[i] > 0 && counts_[j] > 0) return false;
            }
        }
        return true;
    }

 private:
    static std::span<const std::uint64_t> unsigned_of(const std::vector<std::int64_t>& numbers) {
        return {reinterpret_cast<const std::uint64_t*>(numbers.data()), numbers.size()};
    }
    std::span<const std::uint64_t> counts_, offsets_;
};

/// The operation with which the call goes on where it is not short for others: as the ordinary way makes it.
template <class Arguments, auto make>
detail::OrdinaryCall ordinary(const Arguments& arguments) {
    return {[](const void* given) { return std::apply(make, *static_cast<const Arguments*>(given)); }, &arguments};
}

}  // namespace

bool all_reduce(const TensorView& tensor, const AllReduceOptions& o) {
    const Target group(o.group);
    if (!group || !plain(tensor) || !combines(o.op, tensor.dtype()) || o.timeout.count() < 0) return false;
    const std::uint64_t count = count_of(tensor);
    SlotCall call = call_of(Collective::all_reduce, tensor, tensor, count);
    if (!group->collectives().is_short(call.collective, call.block_bytes)) return false;
    set_op(call, o.op, group->size());
    call.fingerprint = fingerprint(call.collective, call.dtype, o.op, -1, count);
    return group->run_short("all_reduce", call, o.timeout);
}

bool broadcast(const TensorView& tensor, const BroadcastOptions& o) {
    const Target group(o.group);
    if (!group || !plain(tensor) || o.timeout.count() < 0) return false;
    SlotCall call = call_of(Collective::broadcast, tensor, tensor, count_of(tensor));
    call.root = root_of(o.src, o.group_src, -1, group);
    if (call.root < 0 || !group->collectives().is_short(call.collective, call.block_bytes)) return false;
    call.fingerprint = fingerprint(call.collective, call.dtype, {}, call.root, call.count);
    return group->run_short("broadcast", call, o.timeout);
}

bool reduce(const TensorView& tensor, const ReduceOptions& o) {
    const Target group(o.group);
    if (!group || !plain(tensor) || !combines(o.op, tensor.dtype()) || o.timeout.count() < 0) return false;
    SlotCall call = call_of(Collective::reduce, tensor, tensor, count_of(tensor));
    call.root = root_of(o.dst, o.group_dst, -1, group);
    if (call.root < 0 || !group->collectives().is_short(call.collective, call.block_bytes)) return false;
    set_op(call, o.op, group->size());
    call.fingerprint = fingerprint(call.collective, call.dtype, o.op, call.root, call.count);
    return group->run_short("reduce", call, o.timeout);
}

bool all_gather_into_tensor(const TensorView& output, const ConstTensorView& input, const CollectiveOptions& o) {
    const Target group(o.group);
    if (!group || !plain(input) || !plain(output) || input.dtype() != output.dtype() || o.timeout.count() < 0)
        return false;
    const auto n = static_cast<std::uint64_t>(group->size());
    SlotCall call = call_of(Collective::all_gather, input, output, count_of(input));
    if (n > counts_max || count_of(output) != call.count * n || overlap(input, output)) return false;
    if (!group->collectives().is_short(call.collective, call.block_bytes)) return false;
    call.fingerprint = fingerprint_of_blocks(call.collective, call.dtype, {}, group->size(), call.count);
    return group->run_short("all_gather_into_tensor", call, o.timeout);
}

bool gather(const ConstTensorView& tensor, const TensorList& outputs, const GatherOptions& o) {
    const Target group(o.group);
    if (!group || !plain(tensor) || o.timeout.count() < 0) return false;
    SlotCall call = call_of(Collective::gather, tensor, tensor, count_of(tensor));
    call.root = root_of(o.dst, o.group_dst, 0, group);
    if (call.root < 0 || !group->collectives().is_short(call.collective, call.block_bytes)) return false;
    if (group->rank() == call.root) {
        if (!adjoining(outputs, tensor, group->size())) return false;
        for (const TensorView& output : outputs) {
            if (overlap(tensor, output)) return false;
        }
        call.output = static_cast<std::byte*>(outputs.front().data());
    } else if (!outputs.empty()) {
        return false;
    }
    call.fingerprint = fingerprint(call.collective, call.dtype, {}, call.root, call.count);
    return group->run_short("gather", call, o.timeout);
}

bool scatter(const TensorView& tensor, const ConstTensorList& inputs, const ScatterOptions& o) {
    const Target group(o.group);
    if (!group || !plain(tensor) || o.timeout.count() < 0) return false;
    SlotCall call = call_of(Collective::scatter, tensor, tensor, count_of(tensor));
    call.root = root_of(o.src, o.group_src, 0, group);
    if (call.root < 0 || !group->collectives().is_short(call.collective, call.block_bytes)) return false;
    if (group->rank() == call.root) {
        if (!adjoining(inputs, tensor, group->size())) return false;
        call.input = static_cast<const std::byte*>(inputs.front().data());
    } else if (!inputs.empty()) {
        return false;
    }
    call.fingerprint = fingerprint(call.collective, call.dtype, {}, call.root, call.count);
    return group->run_short("scatter", call, o.timeout);
}

bool reduce_scatter_tensor(const TensorView& output, const ConstTensorView& input, const ReduceScatterOptions& o) {
    const Target group(o.group);
    if (!group || !plain(input) || !plain(output) || input.dtype() != output.dtype() || o.timeout.count() < 0)
        return false;
    const auto n = static_cast<std::uint64_t>(group->size());
    SlotCall call = call_of(Collective::reduce_scatter, input, output, count_of(output));
    if (n > counts_max || count_of(input) != call.count * n || !combines(o.op, input.dtype())) return false;
    if (!group->collectives().is_short(call.collective, call.block_bytes)) return false;
    set_op(call, o.op, group->size());
    call.fingerprint = fingerprint_of_blocks(call.collective, call.dtype, o.op, group->size(), call.count);
    return group->run_short("reduce_scatter_tensor", call, o.timeout);
}

bool all_to_all_single(const TensorView& output, const ConstTensorView& input, const AllToAllSingleOptions& o) {
    const Target group(o.group);
    if (!group || !o.input_split_sizes.empty() || !o.output_split_sizes.empty() || o.timeout.count() < 0) return false;
    if (!plain(input) || !plain(output) || input.dtype() != output.dtype() || overlap(input, output)) return false;
    const std::uint64_t count = count_of(input);
    if (count > UINT32_MAX || count_of(output) != count) return false;
    // Divisions of 32 bits take half the time of others.
    const std::uint32_t n = static_cast<std::uint32_t>(group->size()), block = static_cast<std::uint32_t>(count) / n;
    const auto splits = [n](const Extents& shape) {
        return shape.size() == 1 || (!shape.empty() && static_cast<std::uint64_t>(shape[0]) % n == 0);
    };
    if (block * n != count || !splits(input.shape()) || !splits(output.shape())) return false;
    SlotCall call = call_of(Collective::all_to_all, input, output, block);
    if (!group->collectives().blocks_fit(call)) return false;
    call.fingerprint = fingerprint(call.collective, call.dtype, {}, -1, 0);
    using Arguments = std::tuple<const TensorView&, const ConstTensorView&, const AllToAllSingleOptions&>;
    const Arguments arguments(output, input, o);
    return group->run_short("all_to_all_single", call, o.timeout,
                            ordinary<Arguments, api::all_to_all_single>(arguments));
}

bool all_to_all(const TensorList& outputs, const ConstTensorList& inputs, const CollectiveOptions& o) {
    const Target group(o.group);
    if (!group || inputs.empty() || o.timeout.count() < 0) return false;
    const auto n = static_cast<std::size_t>(group->size());
    std::array<std::uint64_t, counts_max> send, receive;
    if (n > counts_max || !adjoining(inputs, inputs.front().dtype(), n, send.data()) ||
        !adjoining(outputs, inputs.front().dtype(), n, receive.data()))
        return false;
    SlotCall call = call_of(Collective::all_to_all, inputs.front(), outputs.front(), 0);
    call.set_blocks(std::span(send).first(n), std::span(receive).first(n));
    const std::size_t element = size_of(call.dtype);
    const auto me = static_cast<std::size_t>(group->rank());
    const std::uint64_t sent = std::accumulate(send.begin(), send.begin() + group->size(), std::uint64_t{0});
    const std::uint64_t received = std::accumulate(receive.begin(), receive.begin() + group->size(), std::uint64_t{0});
    if (send[me] != receive[me] || overlap(call.input, sent * element, call.output, received * element)) return false;
    if (!group->collectives().blocks_fit(call)) return false;
    call.fingerprint = fingerprint(call.collective, call.dtype, {}, -1, 0);
    using Arguments = std::tuple<const TensorList&, const ConstTensorList&, const CollectiveOptions&>;
    const Arguments arguments(outputs, inputs, o);
    return group->run_short("all_to_all", call, o.timeout, ordinary<Arguments, api::all_to_all>(arguments));
}

bool all_to_all_v(const TensorView& output, const ConstTensorView& input, const AllToAllVOptions& o) {
    const Target group(o.group);
    if (!group || !plain(input) || !plain(output) || input.dtype() != output.dtype() || o.timeout.count() < 0)
        return false;
    const auto n = static_cast<std::size_t>(group->size()), me = static_cast<std::size_t>(group->rank());
    const Blocks sent(o.send_counts, o.send_offsets), received(o.receive_counts, o.receive_offsets);
    if (n > counts_max || !sent.lie_in(count_of(input), n) || !received.lie_in(count_of(output), n) ||
        !received.are_disjoint() || sent.counts()[me] != received.counts()[me] || overlap(input, output))
        return false;
    SlotCall call = call_of(Collective::all_to_all, input, output, 0);
    call.set_blocks(sent.counts(), received.counts());
    call.send_offsets = sent.offsets();
    call.receive_offsets = received.offsets();
    if (!group->collectives().blocks_fit(call)) return false;
    call.fingerprint = fingerprint(call.collective, call.dtype, {}, -1, 0);
    using Arguments = std::tuple<const TensorView&, const ConstTensorView&, const AllToAllVOptions&>;
    const Arguments arguments(output, input, o);
    return group->run_short("all_to_all_v", call, o.timeout, ordinary<Arguments, api::all_to_all_v>(arguments));
}

bool barrier(const BarrierOptions& o) {
    const Target group(o.group);
    if (!group || o.timeout.count() < 0 || !group->collectives().is_short(Collective::barrier, 0)) return false;
    if (!o.device_ids.empty() && api::barrier_device(o, *group)) return false;
    SlotCall call{.collective = Collective::barrier};
    call.fingerprint = fingerprint(call.collective, DType::uint8, {}, -1, 0);
    return group->run_short("barrier", call, o.timeout);
}

}  // namespace tutti::api::quick
