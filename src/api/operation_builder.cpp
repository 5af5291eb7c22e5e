// Operations from calls: memory that is not in one piece goes through temporaries.
#include "api/call.hpp"
#include "core/assert.hpp"
#include "reduce/reduce.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

namespace tutti::api {
namespace {

template <class View>
std::uint64_t total_of(const std::vector<View>& list) {
    return std::accumulate(list.begin(), list.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const ConstTensorView& view) { return sum + count_of(view); });
}

class OperationBuilder {
 public:
    explicit OperationBuilder(const Call& call)
        : call_(call), group_(*call.group), operation_(std::make_shared<Operation>()) {
        operation_->name = call.name;
        operation_->timeout = call.timeout.count() > 0 ? call.timeout : group_.timeout();
        operation_->stream = call.stream;
        operation_->group = group_.shared_from_this();
        operation_->set_call(call);
        operation_->is_symmetric = group_.memory().uses_symmetric();
        TUTTI_ASSERT(operation_->timeout.count() > 0 && call.fingerprint != 0);
        if (call.device) put_on(*call.device);
    }

    PreparedOperation build() {
        set_memory();
        TUTTI_ASSERT(operation_->group != nullptr && !operation_->done());
        return std::move(operation_);
    }

 private:
    engine::CollectiveCall& made() { return operation_->call; }

    // For an operation without buffers.
    void put_on(Device device) {
        TUTTI_ASSERT(device.type != Device::Type::cpu);
        operation_->device = device;
        if (operation_->stream == Stream{}) operation_->stream = current_stream(device.type);
    }

    void set_memory() {
        const bool is_loaded = call_.collective != Collective::broadcast || group_.rank() == call_.root;
        const std::uint64_t read = source_count(), written = target_count();
        if (call_.source != nullptr) input_ = packed(*call_.source);
        if (call_.sources != nullptr) input_ = packed(*call_.sources);
        if (call_.target != nullptr) output_ = unpacked(*call_.target, call_.in_place && is_loaded);
        if (call_.targets != nullptr) output_ = unpacked(*call_.targets);
        separate(read * size_of(call_.dtype), written * size_of(call_.dtype));
        if (call_.scaling != nullptr) premultiply(*call_.scaling, call_.in_place ? written : read, written);
        made().input = made().in_place ? output_ : input_;
        made().output = output_;
    }
    std::uint64_t source_count() const {
        if (call_.source != nullptr) return count_of(*call_.source);
        return call_.sources != nullptr ? total_of(*call_.sources) : 0;
    }
    std::uint64_t target_count() const {
        if (call_.target != nullptr) return count_of(*call_.target);
        return call_.targets != nullptr ? total_of(*call_.targets) : 0;
    }

    // The memory of a read-only view in one piece.
    std::byte* packed(const ConstTensorView& view) {
        note_device(view);
        note_read(view);
        if (view.contiguous()) return static_cast<std::byte*>(const_cast<void*>(view.data()));
        Tensor copy_of = empty(view.dtype(), view.shape());
        at_begin([copy_of, view] { copy(copy_of.view(), view); });
        TUTTI_ASSERT(copy_of.byte_count() == view.byte_count());
        return keep(copy_of);
    }
    std::byte* packed(const ConstTensorList& list) {
        std::byte* const whole = in_one_piece(list).value_or(nullptr);
        for (const ConstTensorView& view : list) {
            note_device(view, whole != nullptr || takes_blocks(view));
            note_read(view);
        }
        if (whole != nullptr) return whole;
        if (is_on_device()) {
            for (const ConstTensorView& view : list) operation_->on_device.input_blocks.push_back(view.data());
            return nullptr;
        }
        const Tensor all = empty(call_.dtype, Extents::of(static_cast<std::int64_t>(total_of(list))));
        at_begin([all, list] {
            std::byte* at = static_cast<std::byte*>(all.raw_data());
            for (const ConstTensorView& view : list) {
                copy(TensorView(at, view.shape(), all.dtype()), view);
                at += view.byte_count();
            }
        });
        return keep(all);
    }
    // Memory for results; a view that is not in one piece gets a copy back at the end. `load`: it is read, too.
    std::byte* unpacked(const TensorView& view, bool load) {
        note_device(view);
        operation_->outputs.push_back(view);
        if (is_displaced()) return unpacked_blocks(view);
        if (view.contiguous()) return static_cast<std::byte*>(view.data());
        if (leaves_gaps(view)) return unpacked_blocks(view);
        Tensor whole = empty(view.dtype(), view.shape());
        if (load) at_begin([whole, view] { copy(whole.view(), view); });
        at_end([whole, view] { copy(view, whole); });
        return keep(whole);
    }
    // Whether blocks of an exchange, which do not overlap, leave some elements untouched.
    bool leaves_gaps(const TensorView& view) const {
        if (!traits_of(call_.collective).exchanges()) return false;
        std::uint64_t left = view.byte_count();
        for (int peer = 0; peer < group_.size(); ++peer) left -= call_.received_from(peer);
        TUTTI_ASSERT(left <= view.byte_count());
        return left > 0;
    }
    // Whether blocks that adjoin in what the ranks exchange have other places in the output.
    bool is_displaced() const { return call_.collective == Collective::all_gather && !call_.receive_offsets.empty(); }
    // The same where only some elements are results: the others keep the values that they have by then.
    std::byte* unpacked_blocks(const TensorView& view) {
        TUTTI_ASSERT(!view.contiguous() || is_displaced());
        if (is_on_device()) {
            throw InvalidArgument(fmt::format("{}: output_offsets is given, and output is on {}: expected host memory",
                                              operation_->name, to_string(view.device())));
        }
        Tensor whole;
        if (!view.contiguous()) whole = empty(view.dtype(), view.shape());
        const Tensor results = empty(view.dtype(), view.shape());
        std::vector<std::uint64_t> places;  // by block, in bytes
        const std::vector<engine::Stretch> blocks = call_.output_parts(group_.rank(), group_.size());
        for (std::size_t i = 0; i < blocks.size(); ++i)
            places.push_back(is_displaced() ? call_.receive_offsets[i] * size_of(call_.dtype) : blocks[i].at);
        at_end([whole, results, view, blocks, places] {
            auto* const to = static_cast<std::byte*>(view.contiguous() ? view.data() : whole.raw_data());
            if (!view.contiguous()) copy(whole.view(), view);
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                if (blocks[i].bytes == 0) continue;
                std::memcpy(to + places[i], static_cast<const std::byte*>(results.raw_data()) + blocks[i].at,
                            blocks[i].bytes);
            }
            if (!view.contiguous()) copy(view, whole);
        });
        return keep(results);
    }
    std::byte* unpacked(const TensorList& list) {
        operation_->outputs = list;
        std::byte* const whole = in_one_piece(list).value_or(nullptr);
        for (const TensorView& view : list) note_device(view, whole != nullptr || takes_blocks(view));
        if (whole != nullptr) return whole;
        if (is_on_device()) {
            for (const TensorView& view : list) operation_->on_device.output_blocks.push_back(view.data());
            return nullptr;
        }
        const Tensor all = empty(call_.dtype, Extents::of(static_cast<std::int64_t>(total_of(list))));
        at_end([all, list] {
            std::byte* at = static_cast<std::byte*>(all.raw_data());
            for (const TensorView& view : list) {
                copy(view, ConstTensorView(at, view.shape(), all.dtype()));
                at += view.byte_count();
            }
        });
        return keep(all);
    }
    // Steps assume that input and output do not overlap.
    void separate(std::size_t input_bytes, std::size_t output_bytes) {
        if (input_bytes == 0 || output_bytes == 0) return;
        if (input_ + input_bytes <= output_ || output_ + output_bytes <= input_) return;
        if (is_on_device()) return check_own_block_in_place();
        Tensor copied = empty(uint8, Extents::of(static_cast<std::int64_t>(input_bytes)));
        at_begin([copied, from = input_, input_bytes] { std::memcpy(copied.raw_data(), from, input_bytes); });
        input_ = keep(copied);
    }
    std::byte* keep(const Tensor& tensor) {
        operation_->temporaries.push_back(tensor);
        TUTTI_ASSERT(tensor.raw_data() != nullptr || tensor.byte_count() == 0);
        return static_cast<std::byte*>(tensor.raw_data());
    }
    // Functions run in the order in which they were added; for every run of a plan anew.
    void at_begin(std::function<void()> f) { add(operation_->begin, std::move(f)); }
    void at_end(std::function<void()> f) { add(operation_->finish, std::move(f)); }
    static void add(std::function<void()>& to, std::function<void()> f) {
        TUTTI_ASSERT(f != nullptr);
        if (!to) return void(to = std::move(f));
        to = [before = std::move(to), after = std::move(f)] {
            before();
            after();
        };
    }

    // premul_sum: the factor is applied to this rank's input, in the type of accumulation; the result is rounded once.
    void premultiply(ReduceOp op, std::uint64_t input_count, std::uint64_t output_count) {
        TUTTI_ASSERT(op.kind() == ReduceOp::Kind::premul_sum);
        if (is_on_device()) return void(operation_->on_device.premultiplied = op);
        const DType stored = call_.dtype, wide = kernels::accumulation_dtype(stored);
        Tensor scaled = empty(wide, Extents::of(static_cast<std::int64_t>(input_count)));
        const std::byte* source = made().in_place ? output_ : input_;
        at_begin([stored, scaled, source, factor = op.factor(), input_count] {
            kernels::premultiply(stored, scaled.raw_data(), source, factor, input_count);
        });
        input_ = keep(scaled);
        made().in_place = false;
        if (wide == stored) return;
        std::byte* result = output_;
        Tensor sums = empty(wide, Extents::of(static_cast<std::int64_t>(output_count)));
        output_ = keep(sums);
        operation_->finish = [sums, result, stored, output_count, after = std::move(operation_->finish)] {
            kernels::round_to(stored, result, float32, sums.raw_data(), output_count);
            if (after) after();
        };
        set_wide_type(wide);
    }
    void set_wide_type(DType wide) {
        TUTTI_ASSERT(size_of(wide) >= size_of(call_.dtype));
        made().dtype = wide;
        if (made().counts.empty()) made().set_count(made().count);
    }

    // ---- On a device

    bool is_on_device() const { return operation_->device.type != Device::Type::cpu; }
    bool takes_blocks(const ConstTensorView& view) const {
        return view.contiguous() && group_.backends().takes_blocks(view.device().type);
    }
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
    // On a device no copy can avoid an overlap: a rank's own block may lie where it is in the whole.
    void check_own_block_in_place() {
        TUTTI_ASSERT(is_on_device());
        if (!operation_->on_device.input_blocks.empty() || !operation_->on_device.output_blocks.empty()) return;
        const auto place = [&](const std::vector<engine::Stretch>& blocks) {
            return blocks[static_cast<std::size_t>(group_.rank())].at;
        };
        const CollectiveTraits& traits = traits_of(call_.collective);
        const int rank = group_.rank(), ranks = group_.size();
        const bool gathers =
            traits.output == CollectiveTraits::Extent::all_blocks || call_.collective == Collective::gather_v;
        const bool scatters =
            traits.input == CollectiveTraits::Extent::all_blocks || call_.collective == Collective::scatter_v;
        if (gathers && input_ == output_ + place(call_.output_parts(rank, ranks))) return;
        if (scatters && output_ == input_ + place(call_.input_parts(rank, ranks))) return;
        throw InvalidArgument(fmt::format(
            "{}: input and output overlap on {}: expected them apart, or the own block in its place in the whole",
            operation_->name, to_string(operation_->device)));
    }

    const Call& call_;
    Group& group_;
    PreparedOperation operation_;
    std::byte *input_ = nullptr, *output_ = nullptr;  // in one piece
    bool noted_ = false;                              // the device
};

}  // namespace

PreparedOperation prepare(const Call& call) {
    TUTTI_ASSERT(call.group != nullptr);
    return OperationBuilder(call).build();
}

}  // namespace tutti::api
