#include "api/request.hpp"

#include "api/blocks.hpp"
#include "api/host_bytes.hpp"
#include "group/fingerprint.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tutti::api {
namespace {

using group::Fingerprint;
using Counts = std::vector<std::uint64_t>;

std::uint64_t count_of(const ConstTensorView& view) {
    return static_cast<std::uint64_t>(view.element_count());
}

void check_dtype(const char* operation, const char* argument, const ConstTensorView& view, DType dtype,
                 const Group& group) {
    check_device(operation, argument, view, group);
    if (view.dtype() != dtype) {
        throw InvalidArgument(fmt::format("{}: {} is {}: expected {}, as the other tensor", operation, argument,
                                          view.to_string(), to_string(dtype)));
    }
}
void check_count(const char* operation, const char* argument, const ConstTensorView& view, std::uint64_t count) {
    if (count_of(view) != count) {
        throw InvalidArgument(
            fmt::format("{}: {} has {} elements: expected {}", operation, argument, view.element_count(), count));
    }
}
template <class List>
void check_length(const char* operation, const char* argument, const List& list, const Group& group) {
    if (static_cast<int>(list.size()) != group.size()) {
        throw InvalidArgument(fmt::format("{}: {} has {} tensors: expected {}, one per rank", operation, argument,
                                          list.size(), group.size()));
    }
}
void check_op(const char* operation, ReduceOp op, DType dtype) {
    if (!is_supported(op.kind(), dtype)) {
        throw InvalidArgument(
            fmt::format("{}: op {} is not defined for {}", operation, to_string(op.kind()), to_string(dtype)));
    }
}

// An operation under construction. Memory that is not contiguous goes through temporaries.
class Maker {
 public:
    template <class Options>
    Maker(const char* name, Collective collective, const std::shared_ptr<Group>& group, const Options& options)
        : Maker(name, collective, group, options.timeout, options.stream) {}
    Maker(const char* name, Collective collective, const std::shared_ptr<Group>& group, milliseconds timeout,
          Stream stream)
        : operation_(std::make_shared<Operation>()), group_(group) {
        if (timeout < milliseconds::zero()) {
            throw InvalidArgument(
                fmt::format("{}: timeout {} ms: expected zero (the group's) or more", name, timeout.count()));
        }
        operation_->name = name;
        operation_->timeout = timeout.count() > 0 ? timeout : group->timeout();
        operation_->stream = stream;
        operation_->group = group;
        operation_->request.collective = collective;
        operation_->request.rank = group->rank();
        operation_->request.rank_order = group->determinism() == Determinism::layout_invariant;
        operation_->request.algorithm = group->planner().named(collective);
        operation_->request.symmetric = group->memory().uses_symmetric();
    }

    // For an operation without buffers.
    void put_on(Device device) {
        operation_->device = device;
        if (operation_->stream == Stream{}) operation_->stream = current_stream(device.type);
    }

    algorithm::Request& request() { return operation_->request; }
    engine::Operands& operands() { return operation_->operands; }

    void set_type(DType dtype) {
        operands().dtype = dtype;
        request().element_bytes = size_of(dtype);
    }
    void set_op(ReduceOp op) {
        operands().op = op.kind() == ReduceOp::Kind::premul_sum ? ReduceOp::Kind::sum : op.kind();
        operands().divisor = op.kind() == ReduceOp::Kind::avg ? static_cast<std::uint64_t>(group_->size()) : 1;
        request().single_rounding = is_low_precision(operands().dtype);
    }

    // The memory of a read-only view in one piece.
    std::byte* packed(const ConstTensorView& view) {
        note_device(view);
        note_read(view);
        if (view.contiguous()) return static_cast<std::byte*>(const_cast<void*>(view.data()));
        Tensor copy_of = empty(view.dtype(), view.shape());
        at_begin([copy_of, view] { copy(copy_of.view(), view); });
        return keep(copy_of);
    }
    std::byte* packed(const ConstTensorList& list, DType dtype) {
        const bool adjoins = in_one_piece(list) != nullptr;
        for (const ConstTensorView& view : list) {
            note_device(view, adjoins || takes_blocks(view));
            note_read(view);
        }
        if (std::byte* whole = in_one_piece(list)) return whole;
        if (is_on_device()) {
            for (const ConstTensorView& view : list) operation_->input_blocks.push_back(view.data());
            return nullptr;
        }
        Tensor all =
            empty(dtype, Extents::of(std::accumulate(list.begin(), list.end(), std::int64_t{0},
                                                     [](auto sum, const auto& v) { return sum + v.element_count(); })));
        at_begin([all, list, dtype] {
            std::byte* at = static_cast<std::byte*>(all.raw_data());
            for (const ConstTensorView& view : list) {
                copy(TensorView(at, view.shape(), dtype), view);
                at += view.byte_count();
            }
        });
        return keep(all);
    }
    // Memory for results; a view that is not in one piece gets a copy back at the end.
    std::byte* unpacked(const TensorView& view, bool load) {
        note_device(view);
        operation_->outputs.push_back(view);
        if (view.contiguous()) return static_cast<std::byte*>(view.data());
        Tensor whole = empty(view.dtype(), view.shape());
        if (load) at_begin([whole, view] { copy(whole.view(), view); });
        at_end([whole, view] { copy(view, whole); });
        return keep(whole);
    }
    // The same where only some elements are results: the others keep the values that they have by then.
    std::byte* unpacked_blocks(const TensorView& view) {
        if (view.contiguous() || !leaves_gaps(request(), count_of(view))) return unpacked(view, false);
        note_device(view);
        operation_->outputs.push_back(view);
        const Tensor whole = empty(view.dtype(), view.shape()), results = empty(view.dtype(), view.shape());
        at_end([whole, results, view, counts = request().receive_counts, offsets = request().receive_offsets] {
            const std::size_t element = size_of(view.dtype());
            copy(whole.view(), view);
            for (std::size_t i = 0; i < counts.size(); ++i) {
                if (counts[i] == 0) continue;
                std::memcpy(static_cast<std::byte*>(whole.raw_data()) + offsets[i] * element,
                            static_cast<const std::byte*>(results.raw_data()) + offsets[i] * element,
                            counts[i] * element);
            }
            copy(view, whole);
        });
        return keep(results);
    }
    std::byte* unpacked(const TensorList& list, DType dtype) {
        operation_->outputs = list;
        ConstTensorList read(list.begin(), list.end());
        const bool adjoins = in_one_piece(read) != nullptr;
        for (const TensorView& view : list) note_device(view, adjoins || takes_blocks(view));
        if (std::byte* whole = in_one_piece(read)) return whole;
        if (is_on_device()) {
            for (const TensorView& view : list) operation_->output_blocks.push_back(view.data());
            return nullptr;
        }
        std::int64_t count = 0;
        for (const TensorView& view : list) count += view.element_count();
        Tensor all = empty(dtype, Extents::of(count));
        at_end([all, list, dtype] {
            std::byte* at = static_cast<std::byte*>(all.raw_data());
            for (const TensorView& view : list) {
                copy(view, ConstTensorView(at, view.shape(), dtype));
                at += view.byte_count();
            }
        });
        return keep(all);
    }
    // Steps assume that input and output do not overlap.
    void separate(std::size_t input_bytes, std::size_t output_bytes) {
        engine::Operands& o = operands();
        if (input_bytes == 0 || output_bytes == 0) return;
        if (o.input + input_bytes <= o.output || o.output + output_bytes <= o.input) return;
        if (is_on_device()) return check_own_block_in_place();
        Tensor copied = empty(uint8, Extents::of(static_cast<std::int64_t>(input_bytes)));
        at_begin([copied, from = o.input, input_bytes] { std::memcpy(copied.raw_data(), from, input_bytes); });
        o.input = keep(copied);
    }
    std::byte* keep(const Tensor& tensor) {
        operation_->temporaries.push_back(tensor);
        return static_cast<std::byte*>(tensor.raw_data());
    }
    // Functions run in the order in which they were added; for every run of a plan anew.
    void at_begin(std::function<void()> f) { add(operation_->begin, std::move(f)); }
    void at_end(std::function<void()> f) { add(operation_->finish, std::move(f)); }
    // premul_sum: the factor is applied to this rank's input, in the type of accumulation; the result is rounded once.
    void premultiply(ReduceOp op, std::uint64_t input_count, std::uint64_t output_count) {
        if (op.kind() != ReduceOp::Kind::premul_sum) return;
        if (is_on_device()) return void(operation_->premultiplied = op);
        engine::Operands& o = operands();
        const DType stored = o.dtype, wide = kernels::accumulation_dtype(stored);
        Tensor scaled = empty(wide, Extents::of(static_cast<std::int64_t>(input_count)));
        const std::byte* source = request().in_place ? o.output : o.input;
        at_begin([stored, scaled, source, factor = op.factor(), input_count] {
            kernels::premultiply(stored, scaled.raw_data(), source, factor, input_count);
        });
        o.input = keep(scaled);
        request().in_place = false;
        std::byte* result = o.output;
        if (wide != stored) {
            Tensor sums = empty(wide, Extents::of(static_cast<std::int64_t>(output_count)));
            o.output = keep(sums);
            auto round = [sums, result, stored, output_count] {
                kernels::round_to(stored, result, float32, sums.raw_data(), output_count);
            };
            operation_->finish = [after = std::move(operation_->finish), round] {
                round();
                if (after) after();
            };
            set_type(wide);
            request().single_rounding = false;
        }
    }
    Prepared finish(std::uint64_t fingerprint) {
        operands().fingerprint = fingerprint;
        return std::move(operation_);
    }

 private:
    // All buffers of an operation are on one device; outside host memory nothing can be packed.
    void note_device(const ConstTensorView& view, bool in_place = true) {
        if (noted_ && view.device() != operation_->device) {
            throw InvalidArgument(fmt::format("{}: tensors are on {} and on {}: expected one device", operation_->name,
                                              to_string(operation_->device), to_string(view.device())));
        }
        noted_ = true;
        operation_->device = view.device();
        if (is_on_device() && operation_->stream == Stream{}) operation_->stream = current_stream(view.device().type);
        if (view.device().type != Device::Type::cpu && !(view.contiguous() && in_place)) {
            throw InvalidArgument(
                fmt::format("{}: a tensor on {} is not in one piece: expected contiguous memory, and "
                            "lists whose tensors adjoin",
                            operation_->name, to_string(view.device())));
        }
    }
    void note_read(const ConstTensorView& view) {
        if (view.element_count() == 0) return;
        Range& all = operation_->reads;
        const Range one = range_of(view);
        all = all.first == nullptr ? one : Range{std::min(all.first, one.first), std::max(all.second, one.second)};
    }
    bool is_on_device() const { return operation_->device.type != Device::Type::cpu; }
    bool takes_blocks(const ConstTensorView& view) const {
        return view.contiguous() && group_->backends().takes_blocks(view.device().type);
    }
    // On a device no copy can avoid an overlap: a rank's own block may lie where it is in the whole.
    void check_own_block_in_place() {
        const engine::Operands& o = operands();
        if (!operation_->input_blocks.empty() || !operation_->output_blocks.empty()) return;
        const auto before = [&] {
            const auto mine =
                request().counts.begin() + std::min<std::ptrdiff_t>(request().rank, std::ssize(request().counts));
            return std::accumulate(request().counts.begin(), mine, std::uint64_t{0}) * request().element_bytes;
        };
        const Collective c = request().collective;
        if ((c == Collective::all_gather || c == Collective::gather) && o.input == o.output + before()) return;
        if ((c == Collective::reduce_scatter || c == Collective::scatter) && o.output == o.input + before()) return;
        throw InvalidArgument(fmt::format(
            "{}: input and output overlap on {}: expected them apart, or the own block in its place in the whole",
            operation_->name, to_string(operation_->device)));
    }
    static void add(std::function<void()>& to, std::function<void()> f) {
        if (!to) return void(to = std::move(f));
        to = [before = std::move(to), after = std::move(f)] {
            before();
            after();
        };
    }
    static std::byte* in_one_piece(const ConstTensorList& list) {
        const std::byte* at = nullptr;
        for (const ConstTensorView& view : list) {
            if (!view.contiguous()) return nullptr;
            if (view.element_count() == 0) continue;
            const auto* data = static_cast<const std::byte*>(view.data());
            if (at != nullptr && data != at) return nullptr;
            at = data + view.byte_count();
        }
        for (const ConstTensorView& view : list) {
            if (view.element_count() > 0) return static_cast<std::byte*>(const_cast<void*>(view.data()));
        }
        return nullptr;
    }

    Prepared operation_;
    std::shared_ptr<Group> group_;
    bool noted_ = false;  // the device
};

template <class List>
Counts counts_of(const List& list) {
    Counts counts;
    for (const auto& view : list) counts.push_back(count_of(view));
    return counts;
}
std::uint64_t sum(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

std::uint64_t pack(Collective c, DType d, ReduceOp op, int root, const Counts& counts) {
    return Fingerprint::pack(static_cast<int>(c), d, op.kind(), root, counts);
}
std::uint64_t pack(Collective c, DType d, ReduceOp op, int root, std::uint64_t count) {
    return Fingerprint::pack(static_cast<int>(c), d, op.kind(), root, count);
}

}  // namespace

void check_device(const char* operation, const char* argument, const ConstTensorView& view, const Group& group) {
    if (group.serves(view.device().type)) return;
    if (view.device().type == Device::Type::cpu && HostBytes::are_meant()) return;
    if (group.serves(Device::Type::cpu)) {
        throw InvalidArgument(
            fmt::format("{}: {} is on {}: expected host memory", operation, argument, to_string(view.device())));
    }
    std::string served;
    for (const auto& [device, backend] : group.backends().names())
        served += fmt::format("{}{}:{}", served.empty() ? "" : ",", name_of(device), backend);
    throw InvalidArgument(fmt::format("{}: {} is on {}: no backend of group \"{}\" serves it; expected one of {}",
                                      operation, argument, to_string(view.device()), group.name(), served));
}

std::shared_ptr<Group> group_of(const ProcessGroup& group, const char* operation) {
    if (group) return group.impl();
    if (group.is_non_member())
        throw InvalidArgument(fmt::format("{}: this rank is not in the group: expected a member", operation));
    if (const auto& standard = default_impl()) return standard;
    throw InvalidArgument(fmt::format("{}: there is no default group; call init_process_group first", operation), {},
                          ErrorCode::not_initialized);
}

int root_of(const char* operation, std::optional<int> global, std::optional<int> in_group, const Group& group,
            int fallback) {
    if (global && in_group)
        throw InvalidArgument(
            fmt::format("{}: both a global and a group rank are given for the root: expected one", operation));
    if (!global && !in_group && fallback < 0)
        throw InvalidArgument(fmt::format("{}: no root is given: expected src/dst or group_src/group_dst", operation));
    if (!global && !in_group) global = fallback;
    return rank_in(operation, "root", global, in_group, group);
}

int rank_in(const char* operation, const char* what, std::optional<int> global, std::optional<int> in_group,
            const Group& group) {
    const int rank = global ? group.rank_of(*global) : *in_group;
    if (rank >= 0 && rank < group.size()) return rank;
    if (!global || group.ranks().are_all()) {
        throw InvalidArgument(fmt::format("{}: {} {}: expected 0 to {}", operation, what, global ? *global : *in_group,
                                          group.size() - 1));
    }
    throw InvalidArgument(fmt::format("{}: {} {} is not in group \"{}\": expected one of its global ranks {}",
                                      operation, what, *global, group.name(), fmt::join(group.ranks().all(), ", ")));
}

Prepared all_reduce(TensorView tensor, const AllReduceOptions& o) {
    const auto& group = group_of(o.group, "all_reduce");
    check_device("all_reduce", "tensor", tensor, *group);
    check_op("all_reduce", o.op, tensor.dtype());
    Maker m("all_reduce", Collective::all_reduce, group, o);
    m.set_type(tensor.dtype());
    m.set_op(o.op);
    m.request().count = count_of(tensor);
    m.request().in_place = true;
    m.operands().output = m.unpacked(tensor, true);
    m.premultiply(o.op, count_of(tensor), count_of(tensor));
    return m.finish(pack(Collective::all_reduce, tensor.dtype(), o.op, -1, count_of(tensor)));
}

Prepared broadcast(TensorView tensor, const BroadcastOptions& o) {
    const auto& group = group_of(o.group, "broadcast");
    check_device("broadcast", "tensor", tensor, *group);
    Maker m("broadcast", Collective::broadcast, group, o);
    m.request().root = root_of("broadcast", o.src, o.group_src, *group, -1);
    m.set_type(tensor.dtype());
    m.request().count = count_of(tensor);
    m.operands().output = m.unpacked(tensor, group->rank() == m.request().root);
    return m.finish(pack(Collective::broadcast, tensor.dtype(), {}, m.request().root, count_of(tensor)));
}

Prepared reduce(TensorView tensor, const ReduceOptions& o) {
    const auto& group = group_of(o.group, "reduce");
    check_device("reduce", "tensor", tensor, *group);
    check_op("reduce", o.op, tensor.dtype());
    Maker m("reduce", Collective::reduce, group, o);
    const int root = m.request().root = root_of("reduce", o.dst, o.group_dst, *group, -1);
    m.set_type(tensor.dtype());
    m.set_op(o.op);
    m.request().count = count_of(tensor);
    if (group->rank() == root) {
        m.request().in_place = true;
        m.operands().output = m.unpacked(tensor, true);
    } else {
        m.operands().input = m.packed(tensor);
    }
    m.premultiply(o.op, count_of(tensor), group->rank() == root ? count_of(tensor) : 0);
    return m.finish(pack(Collective::reduce, tensor.dtype(), o.op, root, count_of(tensor)));
}

Prepared all_gather(const TensorList& outputs, ConstTensorView tensor, const CollectiveOptions& o) {
    const auto& group = group_of(o.group, "all_gather");
    check_device("all_gather", "tensor", tensor, *group);
    check_length("all_gather", "output_list", outputs, *group);
    for (const TensorView& view : outputs)
        check_dtype("all_gather", "an entry of output_list", view, tensor.dtype(), *group);
    check_count("all_gather", "output_list's entry for this rank", outputs[static_cast<std::size_t>(group->rank())],
                count_of(tensor));
    Maker m("all_gather", Collective::all_gather, group, o);
    m.set_type(tensor.dtype());
    m.request().counts = counts_of(outputs);
    m.operands().input = m.packed(tensor);
    m.operands().output = m.unpacked(outputs, tensor.dtype());
    m.separate(tensor.byte_count(), sum(m.request().counts) * size_of(tensor.dtype()));
    return m.finish(pack(Collective::all_gather, tensor.dtype(), {}, -1, m.request().counts));
}

Prepared all_gather_into_tensor(TensorView output, ConstTensorView input, const CollectiveOptions& o) {
    const auto& group = group_of(o.group, "all_gather_into_tensor");
    check_device("all_gather_into_tensor", "input", input, *group);
    check_dtype("all_gather_into_tensor", "output", output, input.dtype(), *group);
    check_count("all_gather_into_tensor", "output", output,
                count_of(input) * static_cast<std::uint64_t>(group->size()));
    Maker m("all_gather_into_tensor", Collective::all_gather, group, o);
    m.set_type(input.dtype());
    m.request().counts = Counts(static_cast<std::size_t>(group->size()), count_of(input));
    m.operands().input = m.packed(input);
    m.operands().output = m.unpacked(output, false);
    m.separate(input.byte_count(), output.byte_count());
    return m.finish(pack(Collective::all_gather, input.dtype(), {}, -1, m.request().counts));
}

Prepared all_gather_into_tensor_uneven(TensorView output, ConstTensorView input, const AllGatherUnevenOptions& o) {
    constexpr const char* name = "all_gather_into_tensor_uneven";
    const auto& group = group_of(o.group, name);
    check_device(name, "input", input, *group);
    check_dtype(name, "output", output, input.dtype(), *group);
    Maker m(name, Collective::all_gather, group, o);
    m.set_type(input.dtype());
    m.request().counts = split_counts(name, "output", o.output_split_sizes, output, group->size());
    check_count(name, "input", input, m.request().counts[static_cast<std::size_t>(group->rank())]);
    m.operands().input = m.packed(input);
    m.operands().output = m.unpacked(output, false);
    m.separate(input.byte_count(), output.byte_count());
    return m.finish(pack(Collective::all_gather, input.dtype(), {}, -1, m.request().counts));
}

Prepared gather(ConstTensorView tensor, const TensorList& outputs, const GatherOptions& o) {
    const auto& group = group_of(o.group, "gather");
    check_device("gather", "tensor", tensor, *group);
    const int root = root_of("gather", o.dst, o.group_dst, *group, 0);
    Maker m("gather", Collective::gather, group, o);
    m.request().root = root;
    m.set_type(tensor.dtype());
    m.request().counts = Counts(static_cast<std::size_t>(group->size()), count_of(tensor));
    m.operands().input = m.packed(tensor);
    if (group->rank() == root) {
        check_length("gather", "gather_list", outputs, *group);
        for (const TensorView& view : outputs) {
            check_dtype("gather", "an entry of gather_list", view, tensor.dtype(), *group);
            check_count("gather", "an entry of gather_list", view, count_of(tensor));
        }
        m.operands().output = m.unpacked(outputs, tensor.dtype());
        m.separate(tensor.byte_count(), tensor.byte_count() * static_cast<std::size_t>(group->size()));
    } else if (!outputs.empty()) {
        throw InvalidArgument(fmt::format(
            "gather: gather_list is given on rank {}: expected it only on the root, rank {}", group->rank(), root));
    }
    return m.finish(pack(Collective::gather, tensor.dtype(), {}, root, count_of(tensor)));
}

Prepared scatter(TensorView tensor, const ConstTensorList& inputs, const ScatterOptions& o) {
    const auto& group = group_of(o.group, "scatter");
    check_device("scatter", "tensor", tensor, *group);
    const int root = root_of("scatter", o.src, o.group_src, *group, 0);
    Maker m("scatter", Collective::scatter, group, o);
    m.request().root = root;
    m.set_type(tensor.dtype());
    m.request().counts = Counts(static_cast<std::size_t>(group->size()), count_of(tensor));
    m.operands().output = m.unpacked(tensor, false);
    if (group->rank() == root) {
        check_length("scatter", "scatter_list", inputs, *group);
        for (const ConstTensorView& view : inputs) {
            check_dtype("scatter", "an entry of scatter_list", view, tensor.dtype(), *group);
            check_count("scatter", "an entry of scatter_list", view, count_of(tensor));
        }
        m.operands().input = m.packed(inputs, tensor.dtype());
        m.separate(tensor.byte_count() * static_cast<std::size_t>(group->size()), tensor.byte_count());
    } else if (!inputs.empty()) {
        throw InvalidArgument(fmt::format(
            "scatter: scatter_list is given on rank {}: expected it only on the root, rank {}", group->rank(), root));
    }
    return m.finish(pack(Collective::scatter, tensor.dtype(), {}, root, count_of(tensor)));
}

namespace {
Prepared scatter_sums(const char* name, TensorView output, std::byte* (*input)(Maker&, const void*), const void* source,
                      const Counts& counts, const ReduceScatterOptions& o, const std::shared_ptr<Group>& group) {
    check_op(name, o.op, output.dtype());
    Maker m(name, Collective::reduce_scatter, group, o);
    m.set_type(output.dtype());
    m.set_op(o.op);
    m.request().counts = counts;
    m.operands().input = input(m, source);
    m.operands().output = m.unpacked(output, false);
    m.separate(sum(counts) * size_of(output.dtype()), output.byte_count());
    m.premultiply(o.op, sum(counts), count_of(output));
    return m.finish(pack(Collective::reduce_scatter, output.dtype(), o.op, -1, counts));
}
Prepared scatter_sums(const char* name, TensorView output, ConstTensorView input, const Counts& counts,
                      const ReduceScatterOptions& o, const std::shared_ptr<Group>& group) {
    return scatter_sums(
        name, output, [](Maker& m, const void* view) { return m.packed(*static_cast<const ConstTensorView*>(view)); },
        &input, counts, o, group);
}
}  // namespace

Prepared reduce_scatter(TensorView output, const ConstTensorList& inputs, const ReduceScatterOptions& o) {
    const auto& group = group_of(o.group, "reduce_scatter");
    check_device("reduce_scatter", "output", output, *group);
    check_length("reduce_scatter", "input_list", inputs, *group);
    for (const ConstTensorView& view : inputs)
        check_dtype("reduce_scatter", "an entry of input_list", view, output.dtype(), *group);
    check_count("reduce_scatter", "input_list's entry for this rank", inputs[static_cast<std::size_t>(group->rank())],
                count_of(output));
    return scatter_sums(
        "reduce_scatter", output,
        [](Maker& m, const void* list) {
            return m.packed(*static_cast<const ConstTensorList*>(list), m.operands().dtype);
        },
        &inputs, counts_of(inputs), o, group);
}

Prepared reduce_scatter_tensor(TensorView output, ConstTensorView input, const ReduceScatterOptions& o) {
    const auto& group = group_of(o.group, "reduce_scatter_tensor");
    check_device("reduce_scatter_tensor", "output", output, *group);
    check_dtype("reduce_scatter_tensor", "input", input, output.dtype(), *group);
    check_count("reduce_scatter_tensor", "input", input, count_of(output) * static_cast<std::uint64_t>(group->size()));
    return scatter_sums("reduce_scatter_tensor", output, input,
                        Counts(static_cast<std::size_t>(group->size()), count_of(output)), o, group);
}

Prepared reduce_scatter_tensor_uneven(TensorView output, ConstTensorView input, const ReduceScatterUnevenOptions& o) {
    constexpr const char* name = "reduce_scatter_tensor_uneven";
    const auto& group = group_of(o.group, name);
    check_device(name, "output", output, *group);
    check_dtype(name, "input", input, output.dtype(), *group);
    const Counts counts = split_counts(name, "input", o.input_split_sizes, input, group->size());
    check_count(name, "output", output, counts[static_cast<std::size_t>(group->rank())]);
    return scatter_sums(name, output, input, counts,
                        {.op = o.op, .group = o.group, .timeout = o.timeout, .stream = o.stream}, group);
}

namespace {
// `set_blocks(request, ranks)` says which blocks; `unpacked(maker)` where received ones go.
template <class SetBlocks, class Unpacked>
Prepared exchange(const char* name, TensorView output, ConstTensorView input, const CollectiveOptions& o,
                  const SetBlocks& set_blocks, const Unpacked& unpacked) {
    const auto& group = group_of(o.group, name);
    check_device(name, "input", input, *group);
    check_dtype(name, "output", output, input.dtype(), *group);
    Maker m(name, Collective::all_to_all, group, o);
    m.set_type(input.dtype());
    set_blocks(m.request(), group->size());
    m.operands().input = m.packed(input);
    m.operands().output = unpacked(m);
    m.separate(input.byte_count(), output.byte_count());
    return m.finish(pack(Collective::all_to_all, input.dtype(), {}, -1, 0));
}
}  // namespace

Prepared all_to_all_single(TensorView output, ConstTensorView input, const AllToAllSingleOptions& o) {
    return exchange(
        "all_to_all_single", output, input, {o.group, o.timeout, o.stream},
        [&](algorithm::Request& request, int ranks) { set_split_blocks(request, ranks, output, input, o); },
        [&](Maker& m) { return m.unpacked(output, false); });
}

Prepared all_to_all_v(TensorView output, ConstTensorView input, const AllToAllVOptions& o) {
    return exchange(
        "all_to_all_v", output, input, {o.group, o.timeout, o.stream},
        [&](algorithm::Request& request, int ranks) {
            set_displaced_blocks(request, ranks, count_of(output), count_of(input), o);
        },
        [&](Maker& m) { return m.unpacked_blocks(output); });
}

Prepared all_to_all(const TensorList& outputs, const ConstTensorList& inputs, const CollectiveOptions& o) {
    const auto& group = group_of(o.group, "all_to_all");
    check_length("all_to_all", "input_list", inputs, *group);
    check_length("all_to_all", "output_list", outputs, *group);
    const DType dtype = inputs[0].dtype();
    for (const ConstTensorView& view : inputs) check_dtype("all_to_all", "an entry of input_list", view, dtype, *group);
    for (const TensorView& view : outputs) check_dtype("all_to_all", "an entry of output_list", view, dtype, *group);
    const auto me = static_cast<std::size_t>(group->rank());
    check_count("all_to_all", "output_list's entry for this rank", outputs[me], count_of(inputs[me]));
    Maker m("all_to_all", Collective::all_to_all, group, o);
    m.set_type(dtype);
    set_adjoining_blocks(m.request(), counts_of(inputs), counts_of(outputs));
    m.operands().input = m.packed(inputs, dtype);
    m.operands().output = m.unpacked(outputs, dtype);
    m.separate(sum(m.request().send_counts) * size_of(dtype), sum(m.request().receive_counts) * size_of(dtype));
    return m.finish(pack(Collective::all_to_all, dtype, {}, -1, 0));
}

std::optional<Device> barrier_device(const BarrierOptions& o, const Group& group) {
    if (o.device_ids.empty()) return std::nullopt;
    const int index = o.device_ids.front();
    if (index < 0) throw InvalidArgument(fmt::format("barrier: device_ids has {}: expected zero or more", index));
    for (const auto& [device, name] : group.backends().names()) {
        if (device != Device::Type::cpu) return Device{device, index};
    }
    return std::nullopt;
}

Prepared barrier(const BarrierOptions& o) {
    const auto& group = group_of(o.group, "barrier");
    Maker m("barrier", Collective::barrier, group, o);
    if (const auto device = barrier_device(o, *group)) m.put_on(*device);
    return m.finish(pack(Collective::barrier, uint8, {}, -1, 0));
}

}  // namespace tutti::api
