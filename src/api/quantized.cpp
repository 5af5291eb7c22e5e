#include "api/quantized.hpp"

#include "api/coalescing_internal.hpp"
#include "api/detail.hpp"
#include "core/suggestion.hpp"
#include "operation/fingerprint.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti {
namespace api {
namespace {

using algorithm::Quantizing;
using group::QuantizedTerms;
using quantize::Format;
using Counts = std::vector<std::uint64_t>;

struct Kind {
    const char* name;
    int operation;
    Collective collective;
    bool reduces, gathers;
};
constexpr Kind all_reduce_kind{"quantized_all_reduce", group::quantized_all_reduce, Collective::all_reduce, true, true};
constexpr Kind reduce_scatter_kind{"quantized_reduce_scatter", group::quantized_reduce_scatter,
                                   Collective::reduce_scatter, true, false};
constexpr Kind all_gather_kind{"quantized_all_gather", group::quantized_all_gather, Collective::all_gather, false,
                               true};

std::uint64_t elements_of(const ConstTensorView& view) {
    return static_cast<std::uint64_t>(view.element_count());
}
bool is_source(DType dtype) {
    return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16;
}

Format format_of(const char* name, QuantizedType type) {
    switch (type) {
        case QuantizedType::int8: return Format::int8;
        case QuantizedType::int4: return Format::int4;
        case QuantizedType::float8_e4m3fn: return Format::float8_e4m3fn;
        case QuantizedType::float8_e5m2: return Format::float8_e5m2;
    }
    throw InvalidArgument(
        fmt::format("{}: type {}: expected int8, int4, float8_e4m3fn or float8_e5m2", name, static_cast<int>(type)));
}

void check_scale(const char* name, const QuantizedOptions& o) {
    if (!o.scale) return;
    if (!std::isfinite(*o.scale) || *o.scale < quantize::smallest_scale)
        throw InvalidArgument(fmt::format("{}: scale {}: expected a finite number of at least 2^-126", name, *o.scale));
    if (o.scales == QuantizedScales::shared)
        throw InvalidArgument(fmt::format("{}: scale {} and shared scales: expected one of them", name, *o.scale));
}

void check_types(const Kind& kind, const ConstTensorView& output, const ConstTensorView& input,
                 const QuantizedOptions& o, const Group& group) {
    check_device(kind.name, "input", input, group);
    check_device(kind.name, "output", output, group);
    for (const auto& [what, view] : {std::pair("input", input), std::pair("output", output)}) {
        if (view.device().type != Device::Type::cpu)
            throw InvalidArgument(
                fmt::format("{}: {} is on {}: expected host memory", kind.name, what, to_string(view.device())));
    }
    if (input.dtype() == DType::int8) {
        if (!o.scale || o.type != QuantizedType::int8) {
            throw InvalidArgument(
                fmt::format("{}: input is {}: expected float32, float16 or bfloat16; or type int8 and a scale for what "
                            "is codes already",
                            kind.name, input.to_string()));
        }
    } else if (!is_source(input.dtype())) {
        throw InvalidArgument(fmt::format("{}: input is {}: expected float32, float16, bfloat16, or int8 with a scale",
                                          kind.name, input.to_string()));
    }
    if (!is_source(output.dtype())) {
        throw InvalidArgument(
            fmt::format("{}: output is {}: expected float32, float16 or bfloat16", kind.name, output.to_string()));
    }
}

void check_options(const Kind& kind, const QuantizedOptions& o, const Group& group) {
    if (o.timeout < milliseconds::zero()) {
        throw InvalidArgument(
            fmt::format("{}: timeout {} ms: expected zero (the group's) or more", kind.name, o.timeout.count()));
    }
    if (o.op != ReduceOp::sum && o.op != ReduceOp::avg)
        throw InvalidArgument(fmt::format("{}: op {}: expected sum or avg", kind.name, to_string(o.op.kind())));
    if (o.scales != QuantizedScales::per_rank && o.scales != QuantizedScales::shared)
        throw InvalidArgument(
            fmt::format("{}: scales {}: expected per_rank or shared", kind.name, static_cast<int>(o.scales)));
    if (o.rounding != QuantizedRounding::nearest && o.rounding != QuantizedRounding::stochastic)
        throw InvalidArgument(
            fmt::format("{}: rounding {}: expected nearest or stochastic", kind.name, static_cast<int>(o.rounding)));
    check_scale(kind.name, o);
    if (!kind.reduces && o.scales == QuantizedScales::shared)
        throw InvalidArgument(
            fmt::format("{}: shared scales: expected per_rank, since nothing is added up", kind.name));
    const auto native = group.backends().names().find(Device::Type::cpu);
    if (native == group.backends().names().end() || native->second != backend::native) {
        throw DistBackendError(fmt::format("{}: host memory of group \"{}\" is served by backend {}: expected native",
                                           kind.name, group.name(),
                                           native == group.backends().names().end() ? "none" : native->second));
    }
}

/// A block as ranks compare it, and its elements.
struct Block {
    std::uint64_t named, elements;
};

Block block_of(const Kind& kind, const ConstTensorView& input, const QuantizedOptions& o, const Counts& counts) {
    if (o.block == QuantizedOptions::per_row) {
        const auto row = input.shape().empty() ? 1 : input.shape()[input.shape().size() - 1];
        const auto elements = static_cast<std::uint64_t>(std::max<std::int64_t>(row, 1));
        const auto whole = [elements](std::uint64_t count) { return count % elements == 0; };
        const auto torn = std::ranges::find_if_not(counts, whole);
        if (!(kind.reduces && kind.gathers) && torn != counts.end()) {
            throw InvalidArgument(
                fmt::format("{}: rank {} has a piece of {} elements: expected whole rows of {}, for a "
                            "scale for each",
                            kind.name, torn - counts.begin(), *torn, elements));
        }
        return {QuantizedTerms::row, elements};
    }
    if (o.block == QuantizedOptions::per_tensor) {
        const std::uint64_t longest =
            kind.reduces ? elements_of(input) : *std::ranges::max_element(counts);  // pieces differ in size
        return {QuantizedTerms::tensor, std::max<std::uint64_t>(longest, 1)};
    }
    if (o.block < 32 || o.block > 1024 || o.block % 32 != 0) {
        throw InvalidArgument(fmt::format(
            "{}: block {}: expected a multiple of 32 from 32 to 1024, or one scale for a row or for the tensor",
            kind.name, o.block));
    }
    return {static_cast<std::uint64_t>(o.block), static_cast<std::uint64_t>(o.block)};
}

// Pieces that the caller gives, or equal ones of the tensor that has them all.
Counts pieces_of(const Kind& kind, const ConstTensorView& whole, const ConstTensorView& own, const QuantizedOptions& o,
                 const Group& group) {
    const char* whole_name = kind.reduces ? "input" : "output";
    const char* own_name = kind.reduces ? "output" : "input";
    const auto ranks = static_cast<std::size_t>(group.size());
    Counts counts(ranks, elements_of(own));
    if (!o.counts.empty()) {
        if (o.counts.size() != ranks) {
            throw InvalidArgument(
                fmt::format("{}: counts has {} entries: expected {}, one per rank", kind.name, o.counts.size(), ranks));
        }
        const std::int64_t most = whole.element_count();
        const auto wrong = std::ranges::find_if(o.counts, [most](std::int64_t n) { return n < 0 || n > most; });
        if (wrong != o.counts.end())
            throw InvalidArgument(fmt::format("{}: counts[{}] is {}: expected 0 to {}, the elements of {}", kind.name,
                                              wrong - o.counts.begin(), *wrong, most, whole_name));
        counts.assign(o.counts.begin(), o.counts.end());
    }
    const std::uint64_t mine = counts[static_cast<std::size_t>(group.rank())];
    if (elements_of(own) != mine)
        throw InvalidArgument(
            fmt::format("{}: {} has {} elements: expected {}", kind.name, own_name, own.element_count(), mine));
    const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    if (elements_of(whole) != all)
        throw InvalidArgument(
            fmt::format("{}: {} has {} elements: expected {}", kind.name, whole_name, whole.element_count(), all));
    return counts;
}

void refuse_counts(const Kind& kind, const QuantizedOptions& o) {
    if (!o.counts.empty())
        throw InvalidArgument(fmt::format("{}: counts [{}]: expected none, since every rank gets everything", kind.name,
                                          fmt::join(o.counts, ", ")));
}

/// Memory in one piece, as a schedule takes it.
struct Memory {
    std::byte* input;
    std::byte* output;
    bool in_place;
};

// The caller's, or a copy that is made at the beginning.
Memory memory_of(const Kind& kind, const PreparedOperation& operation, const TensorView& output,
                 const ConstTensorView& input) {
    const auto keep = [&](const Tensor& tensor) {
        operation->temporaries.push_back(tensor);
        return static_cast<std::byte*>(tensor.raw_data());
    };
    const auto [input_begin, input_end] = range_of(input);
    const auto [output_begin, output_end] = range_of(output);
    const bool apart = input.element_count() == 0 || output.element_count() == 0 || input_end <= output_begin ||
                       output_end <= input_begin;
    const bool same = !apart && kind.reduces && kind.gathers && input.data() == output.data() && input.contiguous() &&
                      output.contiguous() && input.dtype() == output.dtype();
    Memory memory{static_cast<std::byte*>(const_cast<void*>(input.data())), static_cast<std::byte*>(output.data()),
                  same};
    if (!input.contiguous() || (!apart && !same)) {
        const Tensor copied = empty(input.dtype(), input.shape());
        operation->begin = [copied, input] { copy(copied.view(), input); };
        memory.input = keep(copied);
    }
    if (!output.contiguous()) {
        const Tensor whole = empty(output.dtype(), output.shape());
        operation->finish = [whole, output] { copy(output, whole); };
        memory.output = keep(whole);
    }
    return memory;
}

// The bytes for the counters: of an all_reduce half of both legs, so that they compare with all_reduce's.
std::uint64_t counted_bytes(const Kind& kind, const Quantizing& q, std::uint64_t input, std::uint64_t output) {
    const std::uint64_t codes = schedule::CodeForm{q.format, q.block}.bytes(input);
    if (!(kind.reduces && kind.gathers)) return codes;
    const std::uint64_t results = q.gathers_codes ? codes : output * size_of(q.output_type);
    return (codes + results) / 2;
}

Quantizing quantizing_of(const Kind& kind, const ConstTensorView& output, const ConstTensorView& input,
                         const QuantizedOptions& o, const Block& block, const Group& group) {
    return {.format = format_of(kind.name, o.type),
            .scales = o.scale                               ? Quantizing::Scales::given
                      : o.scales == QuantizedScales::shared ? Quantizing::Scales::common
                                                            : Quantizing::Scales::own,
            .block = block.elements,
            .gathers_codes = kind.reduces && kind.gathers ? o.quantize_results : kind.gathers,
            .input_type = input.dtype(),
            .output_type = output.dtype(),
            .tile = algorithm::tile_elements(block.elements, group.planner().layout().one_host())};
}

std::uint64_t fingerprint_of(const Kind& kind, const Quantizing& q, const Block& block, const QuantizedOptions& o,
                             Counts compared) {
    if (block.named == QuantizedTerms::row || o.scale) {
        compared.push_back(block.named == QuantizedTerms::row ? block.elements : 0);
        compared.push_back(o.scale ? std::bit_cast<std::uint32_t>(*o.scale) : 0);
        compared.push_back(~std::uint64_t{0});  // unlike the others, so that all of them are looked at
    }
    return group::Fingerprint::pack({.operation = kind.operation,
                                     .input = q.input_type,
                                     .output = q.output_type,
                                     .averages = kind.reduces && o.op == ReduceOp::avg,
                                     .format = q.format,
                                     .scales = q.scales,
                                     .gathers_codes = q.gathers_codes,
                                     .block = block.named},
                                    compared);
}

PreparedOperation prepare(const Kind& kind, const std::shared_ptr<Group>& group, const TensorView& output,
                          const ConstTensorView& input, const QuantizedOptions& o, Counts pieces,
                          const Residuals* residuals = nullptr) {
    const bool whole = kind.reduces && kind.gathers;
    const Counts counts = whole ? Counts{elements_of(input)} : std::move(pieces);
    const Block block = block_of(kind, input, o, counts);
    const Quantizing q = quantizing_of(kind, output, input, o, block, *group);
    auto operation = std::make_shared<Operation>();
    const Memory memory = memory_of(kind, operation, output, input);
    operation->name = kind.name;
    operation->timeout = o.timeout.count() > 0 ? o.timeout : group->timeout();
    operation->group = group;
    operation->outputs.push_back(output);
    operation->path = detail::Path::schedule;
    operation->call.collective = Collective::all_reduce;
    operation->call.in_place = memory.in_place;
    operation->call.input = memory.input;
    operation->call.output = memory.output;
    operation->call.dtype = q.output_type;
    operation->call.divisor = kind.reduces && o.op == ReduceOp::avg ? static_cast<std::uint64_t>(group->size()) : 1;
    operation->call.fingerprint = fingerprint_of(kind, q, block, o, counts);
    engine::Coding coding{.scale = o.scale};
    if (o.rounding == QuantizedRounding::stochastic) coding.seed = o.seed;
    if (residuals != nullptr) {
        coding.residual = residuals->own.data<float>();
        if (q.gathers_codes) coding.result_residual = residuals->result.data<float>();
        operation->temporaries.insert(operation->temporaries.end(), {residuals->own, residuals->result});
        const Counts slices = algorithm::even_slices(elements_of(input), group->size(), q.block, q.tile);
        coding.first_result = std::accumulate(slices.begin(), slices.begin() + group->rank(), std::uint64_t{0});
    }
    algorithm::Request request{.collective = kind.collective,
                               .rank = group->rank(),
                               .element_bytes = size_of(q.input_type),
                               .dtype = q.output_type,
                               .in_place = memory.in_place,
                               .quantizing = q};
    if (whole)
        request.count = counts[0];
    else
        request.counts = counts;
    const std::uint64_t bytes = counted_bytes(kind, q, elements_of(input), elements_of(output));
    operation->quantized.reset(new detail::QuantizedCall{std::move(request), coding, bytes});
    return operation;
}

std::shared_ptr<Group> checked_group(const Kind& kind, const ConstTensorView& output, const ConstTensorView& input,
                                     const QuantizedOptions& o) {
    auto group = group_of(o.group, kind.name);
    check_types(kind, output, input, o, *group);
    check_options(kind, o, *group);
    return group;
}

}  // namespace

PreparedOperation quantized_all_reduce(TensorView output, ConstTensorView input, const QuantizedOptions& o,
                                       const Residuals* residuals) {
    const Kind& kind = all_reduce_kind;
    const auto group = checked_group(kind, output, input, o);
    refuse_counts(kind, o);
    if (elements_of(output) != elements_of(input)) {
        throw InvalidArgument(fmt::format("{}: output has {} elements: expected {}, as input", kind.name,
                                          output.element_count(), input.element_count()));
    }
    return prepare(kind, group, output, input, o, {}, residuals);
}
PreparedOperation quantized_all_reduce(TensorView output, ConstTensorView input, const QuantizedOptions& o) {
    return quantized_all_reduce(output, input, o, nullptr);
}

PreparedOperation quantized_reduce_scatter(TensorView output, ConstTensorView input, const QuantizedOptions& o) {
    const auto group = checked_group(reduce_scatter_kind, output, input, o);
    return prepare(reduce_scatter_kind, group, output, input, o,
                   pieces_of(reduce_scatter_kind, input, output, o, *group));
}

PreparedOperation quantized_all_gather(TensorView output, ConstTensorView input, const QuantizedOptions& o) {
    const auto group = checked_group(all_gather_kind, output, input, o);
    return prepare(all_gather_kind, group, output, input, o, pieces_of(all_gather_kind, output, input, o, *group));
}

std::uint64_t slice_elements(const ConstTensorView& input, const QuantizedOptions& o) {
    const auto group = group_of(o.group, all_reduce_kind.name);
    const std::uint64_t block = block_of(all_reduce_kind, input, o, {elements_of(input)}).elements;
    const std::uint64_t tile = algorithm::tile_elements(block, group->planner().layout().one_host());
    return algorithm::even_slices(elements_of(input), group->size(), block,
                                  tile)[static_cast<std::size_t>(group->rank())];
}

}  // namespace api

namespace {

void run_quantized(const api::PreparedOperation& operation) {
    api::refuse_if_recorded(operation->name);
    if (api::in_detail()) api::verify(operation->name, {&operation, 1});
    detail::group_of(*operation).run(operation);
}
Work start_quantized(api::PreparedOperation operation) {
    api::refuse_if_recorded(operation->name);
    if (api::in_detail()) api::verify(operation->name, {&operation, 1});
    detail::group_of(*operation).submit(operation, true);
    return Work(std::move(operation));
}

}  // namespace

#define TUTTI_QUANTIZED(name)                                                                     \
    void name(TensorView output, ConstTensorView input, const QuantizedOptions& options) {        \
        if (api::is_outside(options.group, #name)) return;                                        \
        const record::PublicCall public_call(#name);                                              \
        run_quantized(api::name(output, input, options));                                         \
    }                                                                                             \
    Work async::name(TensorView output, ConstTensorView input, const QuantizedOptions& options) { \
        if (api::is_outside(options.group, #name)) return {};                                     \
        const record::PublicCall public_call(#name);                                              \
        return start_quantized(api::name(output, input, options));                                \
    }

TUTTI_QUANTIZED(quantized_all_reduce)
TUTTI_QUANTIZED(quantized_reduce_scatter)
TUTTI_QUANTIZED(quantized_all_gather)

#undef TUTTI_QUANTIZED

void quantized_all_reduce(TensorView tensor, const QuantizedOptions& options) {
    quantized_all_reduce(tensor, tensor, options);
}
Work async::quantized_all_reduce(TensorView tensor, const QuantizedOptions& options) {
    return async::quantized_all_reduce(tensor, tensor, options);
}

// ---- Names

namespace {

template <class T, std::size_t count>
T named(const char* what, std::string_view name, const std::array<const char*, count>& names) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
        throw InvalidArgument(fmt::format("{} \"{}\": expected one of {}{}", what, name, fmt::join(names, ", "),
                                          did_you_mean(name, names)));
    return static_cast<T>(found - names.begin());
}

}  // namespace

QuantizedType quantized_type_from_string(std::string_view name) {
    static constexpr std::array names{"int8", "int4", "float8_e4m3fn", "float8_e5m2"};
    return named<QuantizedType>("type", name, names);
}
QuantizedScales quantized_scales_from_string(std::string_view name) {
    static constexpr std::array names{"per_rank", "shared"};
    return named<QuantizedScales>("scales", name, names);
}
QuantizedRounding quantized_rounding_from_string(std::string_view name) {
    static constexpr std::array names{"nearest", "stochastic"};
    return named<QuantizedRounding>("rounding", name, names);
}

// ---- Error feedback

namespace {
constexpr const char* name_of_all_reduce = "quantized_all_reduce";
}

struct QuantizedReducer::State {
    struct Bucket {
        api::Residuals residuals;
        std::uint64_t calls = 0;
        Work last;
    };
    QuantizedOptions options;
    std::map<std::size_t, Bucket> buckets;

    api::PreparedOperation prepare(const TensorView& tensor, std::size_t index) {
        Bucket& bucket = buckets[index];
        if (bucket.last && !bucket.last.is_completed()) {
            throw InvalidArgument(fmt::format(
                "QuantizedReducer.all_reduce: the last call of bucket {} has not finished; wait for its Work first",
                index));
        }
        QuantizedOptions o = options;
        // Neighbouring numbers make keys that have nothing in common.
        o.seed = (o.seed + bucket.calls + 1) * 0x9e3779b97f4a7c15ULL ^ index;
        api::Residuals& residuals = bucket.residuals;
        if (residuals.own.element_count() != tensor.element_count() || bucket.calls == 0) {
            api::quantized_all_reduce(tensor, tensor, o);  // throws for faulty arguments
            const auto slice = static_cast<std::int64_t>(api::slice_elements(tensor, o));
            residuals = {zeros(float32, Extents::of(tensor.element_count())), zeros(float32, Extents::of(slice))};
        }
        api::PreparedOperation operation = api::quantized_all_reduce(tensor, tensor, o, &residuals);
        ++bucket.calls;
        return operation;
    }
};

QuantizedReducer::QuantizedReducer(QuantizedOptions options) : state_(new State{std::move(options), {}}) {}
QuantizedReducer::QuantizedReducer(QuantizedReducer&& other) noexcept = default;
QuantizedReducer& QuantizedReducer::operator=(QuantizedReducer&& other) noexcept = default;
QuantizedReducer::~QuantizedReducer() = default;

QuantizedReducer::State& QuantizedReducer::checked(const char* method) const {
    if (state_) return *state_;
    throw InvalidArgument(fmt::format("QuantizedReducer.{}: it has been moved from: expected an object", method));
}

void QuantizedReducer::all_reduce(TensorView tensor, std::size_t bucket) {
    State& state = checked("all_reduce");
    if (api::is_outside(state.options.group, name_of_all_reduce)) return;
    const record::PublicCall public_call(name_of_all_reduce);
    run_quantized(state.prepare(tensor, bucket));
}

Work QuantizedReducer::start_all_reduce(TensorView tensor, std::size_t bucket) {
    State& state = checked("start_all_reduce");
    if (api::is_outside(state.options.group, name_of_all_reduce)) return {};
    const record::PublicCall public_call(name_of_all_reduce);
    Work work = start_quantized(state.prepare(tensor, bucket));
    state.buckets[bucket].last = work;
    return work;
}

Tensor QuantizedReducer::residual(std::size_t bucket) const {
    const State& state = checked("residual");
    const auto found = state.buckets.find(bucket);
    return found == state.buckets.end() ? Tensor() : found->second.residuals.own.clone();
}

void QuantizedReducer::reset() {
    checked("reset").buckets.clear();
}

const QuantizedOptions& QuantizedReducer::options() const {
    return checked("options").options;
}

}  // namespace tutti
