#include "bench/collectives/bench.hpp"
#include "bench/collectives/contents.hpp"
#include "core/suggestion.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>
#include <tutti/plan.hpp>
#include <tutti/symmetric.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

namespace tutti::bench {
namespace {

double get(const Tensor& tensor, std::uint64_t i) {
    const void* data = tensor.raw_data();
    const auto of = [&]<class T>(T) { return static_cast<const T*>(data)[i]; };
    switch (tensor.dtype()) {
        case DType::boolean: return of(false) ? 1 : 0;
        case DType::uint8: return of(std::uint8_t{});
        case DType::uint16: return of(std::uint16_t{});
        case DType::uint32: return of(std::uint32_t{});
        case DType::uint64: return static_cast<double>(of(std::uint64_t{}));
        case DType::int8: return of(std::int8_t{});
        case DType::int16: return of(std::int16_t{});
        case DType::int32: return of(std::int32_t{});
        case DType::int64: return static_cast<double>(of(std::int64_t{}));
        case DType::float16: return static_cast<float>(of(Float16{}));
        case DType::bfloat16: return static_cast<float>(of(BFloat16{}));
        case DType::float32: return of(0.0F);
        case DType::float64: return of(0.0);
        case DType::complex64: return of(std::complex<float>{}).real();
        case DType::complex128: return of(std::complex<double>{}).real();
        case DType::float8_e4m3fn: return static_cast<float>(of(Float8E4M3FN{}));
        case DType::float8_e5m2: return static_cast<float>(of(Float8E5M2{}));
    }
    return 0;
}

double imaginary(const Tensor& tensor, std::uint64_t i) {
    const void* data = tensor.raw_data();
    if (tensor.dtype() == DType::complex64) return static_cast<const std::complex<float>*>(data)[i].imag();
    if (tensor.dtype() == DType::complex128) return static_cast<const std::complex<double>*>(data)[i].imag();
    return 0;
}

void set(Tensor& tensor, std::uint64_t i, double v) {
    void* data = tensor.raw_data();
    const auto as = [&]<class T>(T value) { static_cast<T*>(data)[i] = value; };
    const auto f = static_cast<float>(v);
    switch (tensor.dtype()) {
        case DType::boolean: return as(v != 0);
        case DType::uint8: return as(static_cast<std::uint8_t>(v));
        case DType::uint16: return as(static_cast<std::uint16_t>(v));
        case DType::uint32: return as(static_cast<std::uint32_t>(v));
        case DType::uint64: return as(static_cast<std::uint64_t>(v));
        case DType::int8: return as(static_cast<std::int8_t>(v));
        case DType::int16: return as(static_cast<std::int16_t>(v));
        case DType::int32: return as(static_cast<std::int32_t>(v));
        case DType::int64: return as(static_cast<std::int64_t>(v));
        case DType::float16: return as(Float16(f));
        case DType::bfloat16: return as(BFloat16(f));
        case DType::float32: return as(f);
        case DType::float64: return as(v);
        case DType::complex64: return as(std::complex<float>(f, 0));
        case DType::complex128: return as(std::complex<double>(v, 0));
        case DType::float8_e4m3fn: return as(Float8E4M3FN(f));
        case DType::float8_e5m2: return as(Float8E5M2(f));
    }
}

double low_of(DType dtype) {
    return dtype == DType::boolean ? 0 : 1;
}

Values<double> combined(ReduceOp op, int ranks, DType dtype) {
    const auto bits = [](double v) { return static_cast<unsigned>(v); };
    auto values = inputs_combined(ranks, low_of(dtype), [&](double value, double next) -> double {
        switch (op.kind()) {
            case ReduceOp::Kind::sum:
            case ReduceOp::Kind::avg:
            case ReduceOp::Kind::premul_sum: return value + next;
            case ReduceOp::Kind::product: return value * next;
            case ReduceOp::Kind::min: return std::min(value, next);
            case ReduceOp::Kind::max: return std::max(value, next);
            case ReduceOp::Kind::band: return bits(value) & bits(next);
            case ReduceOp::Kind::bor: return bits(value) | bits(next);
            case ReduceOp::Kind::bxor: return bits(value) ^ bits(next);
            case ReduceOp::Kind::user: break;  // the benchmark has none
        }
        return value;
    });
    for (double& value : values) {
        if (dtype == DType::boolean) {
            value = value != 0 ? 1 : 0;
            continue;
        }
        if (op.kind() == ReduceOp::Kind::avg) value /= ranks;
        if (!is_integral(dtype)) continue;
        value = std::floor(value);
        const double modulus = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)));
        if (size_of(dtype) < 8) value = std::fmod(value, modulus);
        const bool is_signed = dtype >= DType::int8;
        if (is_signed && value >= modulus / 2) value -= modulus;
    }
    return values;
}

// How far a correctly rounded result may lie from the exact one, relatively.
double tolerance(DType dtype) {
    switch (dtype) {
        case DType::float8_e5m2: return 0.126;
        case DType::float8_e4m3fn: return 0.063;
        case DType::bfloat16: return 0.004;
        case DType::float16: return 0.0006;
        case DType::float32:
        case DType::complex64: return 1e-6;
        default: return is_integral(dtype) ? 0 : 1e-12;
    }
}

// Elements as bits, by their size: two that have the same are equal.
template <class Visit>
auto with_bits(std::size_t element_bytes, Visit&& visit) {
    switch (element_bytes) {
        case 1: return visit(std::uint8_t{});
        case 2: return visit(std::uint16_t{});
        case 4: return visit(std::uint32_t{});
        case 8: return visit(std::uint64_t{});
        default: return visit(std::array<std::uint64_t, 2>{});
    }
}

template <class Bits>
Values<Bits> encoded(const Values<double>& values, DType dtype) {
    Tensor tensor = zeros(dtype, {static_cast<std::int64_t>(classes)});
    for (std::size_t c = 0; c < classes; ++c) set(tensor, c, values[c]);
    Values<Bits> bits;
    std::memcpy(bits.data(), tensor.raw_data(), sizeof bits);
    return bits;
}

void write(Tensor& tensor, const Run& run, const Values<double>& values) {
    with_bits(size_of(tensor.dtype()), [&]<class Bits>(Bits) {
        write_run(static_cast<Bits*>(tensor.raw_data()), run, encoded<Bits>(values, tensor.dtype()));
    });
}

struct Shape {
    DType dtype;
    ReduceOp op;
    ProcessGroup group;
    Counts counts;
    bool symmetric = false;
    int n() const { return group.size(); }
    int me() const { return group.rank(); }
};

// The blocks of a buffer that holds one of each rank.
template <class List>
List blocks_of(Tensor& tensor, const Shape& shape) {
    List parts;
    for (int r = 0; r < shape.n(); ++r) {
        auto* at = static_cast<std::byte*>(tensor.raw_data()) +
                   static_cast<std::uint64_t>(r) * shape.counts.block * size_of(shape.dtype);
        parts.push_back(view(at, {static_cast<std::int64_t>(shape.counts.block)}, shape.dtype));
    }
    return parts;
}

class Simple : public Case {
 public:
    using Call = void (*)(Simple&);
    using Planned = std::function<void()> (*)(Simple&);
    Simple(const Layout& its_layout, Shape its_shape, Call call, Planned plan)
        : layout(its_layout),
          shape(std::move(its_shape)),
          in(tensor(shape.counts.in)),
          out(tensor(shape.counts.out)),
          outcome_(outcome(layout, shape.me(), shape.n(), shape.counts)),
          call_(call),
          plan_(plan) {
        if (shape.me() == 0 && layout.collective == "gather") out_blocks = blocks_of<TensorList>(out, shape);
        if (shape.me() == 0 && layout.collective == "scatter") in_blocks = blocks_of<ConstTensorList>(in, shape);
        reduces = layout.reduces;
        bus_factor = layout.bus(shape.n());
    }
    void fill() override {
        const Values<double> own = inputs_of(shape.me(), low_of(shape.dtype));
        write(in, {0, shape.counts.in, shape.me(), 0}, own);
        if (layout.in_place) return write(out, {0, shape.counts.out, shape.me(), 0}, own);
        for (const Run& run : outcome_) {
            Values<double> other = wanted(run);
            for (double& value : other) value = value == 0 ? 1 : 0;
            write(out, run, other);
        }
    }
    void run() override { call_(*this); }
    std::function<void()> planned() override { return plan_(*this); }
    std::uint64_t wrong() const override {
        const double allowed = tolerance(shape.dtype);
        std::uint64_t wrong = 0;
        for (const Run& run : outcome_) {
            const Values<double> want = wanted(run);
            // Not "greater", so that NaN is wrong.
            const auto close = [&](std::uint64_t i, std::size_t c) {
                return std::abs(get(out, i) - want[c]) <= allowed * std::abs(want[c]) && imaginary(out, i) == 0;
            };
            wrong += with_bits(size_of(shape.dtype), [&]<class Bits>(Bits) {
                return count_wrong(static_cast<const Bits*>(out.raw_data()), run, encoded<Bits>(want, shape.dtype),
                                   close);
            });
        }
        return wrong;
    }
    Tensor& output() override { return out; }
    std::uint64_t bytes() const override { return shape.counts.whole * size_of(shape.dtype); }

    const Layout& layout;
    Shape shape;
    Tensor in, out;
    // Arguments are made once, as a peer's are: options, and the root's lists of all ranks' blocks.
    const CollectiveOptions plain{.group = shape.group};
    const AllReduceOptions reducing{.op = shape.op, .group = shape.group};
    const BroadcastOptions from_first{.src = 0, .group = shape.group};
    const ReduceOptions reducing_to_first{.dst = 0, .op = shape.op, .group = shape.group};
    const AllToAllSingleOptions even{.group = shape.group};
    const AllToAllVOptions uneven = uneven_blocks();
    const GatherVOptions to_first{.receive_counts = uneven.receive_counts, .dst = 0, .group = shape.group};
    const ScatterVOptions of_first{.send_counts = uneven.send_counts, .src = 0, .group = shape.group};
    const GatherOptions gathering{.dst = 0, .group = shape.group};
    const ScatterOptions scattering{.src = 0, .group = shape.group};
    const BarrierOptions meeting{.group = shape.group};
    const SendOptions sending{.group = shape.group};
    const RecvOptions receiving{.src = (shape.me() + shape.n() - 1) % shape.n(), .group = shape.group};
    int next() const { return (shape.me() + 1) % shape.n(); }
    TensorList out_blocks;
    ConstTensorList in_blocks;

 private:
    Tensor tensor(std::uint64_t count) const {
        const Extents extents{static_cast<std::int64_t>(count)};
        if (!shape.symmetric) return zeros(shape.dtype, extents);
        // Ranks may need different counts; untouched pages take no memory.
        const auto whole = std::make_shared<Tensor>(
            empty_symmetric(shape.dtype, {static_cast<std::int64_t>(most())}, {.group = shape.group}));
        return Tensor(TensorView(whole->raw_data(), extents, shape.dtype), whole);
    }
    // Of any rank's buffers.
    std::uint64_t most() const {
        std::uint64_t most = shape.counts.whole;
        for (int rank = 0; rank < shape.n(); ++rank) {
            const Counts counts = counts_of(layout, rank, shape.n(), shape.counts.whole);
            most = std::max({most, counts.in, counts.out});
        }
        return most;
    }
    AllToAllVOptions uneven_blocks() const {
        AllToAllVOptions options{.group = shape.group};
        for (int peer = 0; layout.pattern != nullptr && peer < shape.n(); ++peer) {
            const auto block = [&](int from, int to) {
                return static_cast<std::int64_t>(layout.pattern(shape.counts.whole, from, to, shape.n()));
            };
            options.send_counts.push_back(block(shape.me(), peer));
            options.receive_counts.push_back(block(peer, shape.me()));
        }
        return options;
    }
    Values<double> wanted(const Run& run) const {
        return run.rank == all_ranks ? combined(shape.op, run.combined(shape.n()), shape.dtype)
                                     : inputs_of(run.rank, low_of(shape.dtype));
    }
    std::vector<Run> outcome_;
    Call call_;
    Planned plan_;
};

std::function<void()> runs(Plan plan) {
    return [plan = std::make_shared<Plan>(std::move(plan))] { plan->run(); };
}

void exchange_blocks(Simple& c) {
    all_to_all_v(c.out, c.in, c.uneven);
}
std::function<void()> plan_exchange_of_blocks(Simple& c) {
    return runs(plan::all_to_all_v(c.out, c.in, c.uneven));
}

struct Entry {
    std::string_view collective;
    Simple::Call call;
    Simple::Planned plan;
};

const Entry entries[] = {
    {"all_reduce", [](Simple& c) { all_reduce(c.out, c.reducing); },
     [](Simple& c) { return runs(plan::all_reduce(c.out, c.reducing)); }},
    {"scan", [](Simple& c) { scan(c.out, c.reducing); }, [](Simple& c) { return runs(plan::scan(c.out, c.reducing)); }},
    {"exscan", [](Simple& c) { exscan(c.out, c.reducing); },
     [](Simple& c) { return runs(plan::exscan(c.out, c.reducing)); }},
    {"broadcast", [](Simple& c) { broadcast(c.out, c.from_first); },
     [](Simple& c) { return runs(plan::broadcast(c.out, c.from_first)); }},
    {"reduce", [](Simple& c) { reduce(c.out, c.reducing_to_first); },
     [](Simple& c) { return runs(plan::reduce(c.out, c.reducing_to_first)); }},
    {"all_gather", [](Simple& c) { all_gather_into_tensor(c.out, c.in, c.plain); },
     [](Simple& c) { return runs(plan::all_gather_into_tensor(c.out, c.in, c.plain)); }},
    {"reduce_scatter", [](Simple& c) { reduce_scatter_tensor(c.out, c.in, c.reducing); },
     [](Simple& c) { return runs(plan::reduce_scatter_tensor(c.out, c.in, c.reducing)); }},
    {"all_to_all", [](Simple& c) { all_to_all_single(c.out, c.in, c.even); },
     [](Simple& c) { return runs(plan::all_to_all_single(c.out, c.in, c.even)); }},
    {"all_to_all_v", exchange_blocks, plan_exchange_of_blocks},
    {"all_to_all_v_sparse", exchange_blocks, plan_exchange_of_blocks},
    {"all_to_all_v_skewed", exchange_blocks, plan_exchange_of_blocks},
    {"gather_v", [](Simple& c) { gather_v(c.in, c.out, c.to_first); },
     [](Simple& c) { return runs(plan::gather_v(c.in, c.out, c.to_first)); }},
    {"scatter_v", [](Simple& c) { scatter_v(c.out, c.in, c.of_first); },
     [](Simple& c) { return runs(plan::scatter_v(c.out, c.in, c.of_first)); }},
    {"gather", [](Simple& c) { gather(c.in, c.out_blocks, c.gathering); },
     [](Simple& c) { return runs(plan::gather(c.in, c.out_blocks, c.gathering)); }},
    {"scatter", [](Simple& c) { scatter(c.out, c.in_blocks, c.scattering); },
     [](Simple& c) { return runs(plan::scatter(c.out, c.in_blocks, c.scattering)); }},
    {"sendrecv",
     [](Simple& c) {
         Work sent = isend(c.in, c.next(), c.sending);
         recv(c.out, c.receiving);
         sent.wait();
     },
     [](Simple& c) -> std::function<void()> {
         const auto out = std::make_shared<Plan>(plan::send(c.in, c.next(), c.sending));
         const auto in = std::make_shared<Plan>(plan::recv(c.out, c.receiving));
         return [out, in] {
             Work sent = out->start();
             in->run();
             sent.wait();
         };
     }},
    {"barrier", [](Simple& c) { barrier(c.meeting); }, [](Simple& c) { return runs(plan::barrier(c.meeting)); }},
};

}  // namespace

std::vector<std::string> collective_names() {
    std::vector<std::string> names;
    for (const Layout& layout : layouts) names.emplace_back(layout.collective);
    return names;
}

std::vector<std::uint64_t> sizes_of(const Options& options) {
    if (!options.sizes.empty()) return options.sizes;
    std::vector<std::uint64_t> sizes;
    for (auto size = static_cast<double>(options.min_bytes); size <= static_cast<double>(options.max_bytes);
         size *= options.factor) {
        sizes.push_back(static_cast<std::uint64_t>(size));
    }
    return sizes;
}

std::unique_ptr<Case> make_case(const std::string& collective, std::uint64_t bytes, DType dtype, ReduceOp op,
                                const ProcessGroup& group, bool symmetric) {
    const Layout* const layout = find_layout(collective);
    const auto* const entry = std::ranges::find(entries, std::string_view(collective), &Entry::collective);
    if (layout == nullptr || entry == std::end(entries)) {
        throw InvalidArgument("bench: unknown collective \"" + collective + "\"");
    }
    const Counts counts = counts_of(*layout, group.rank(), group.size(), bytes / size_of(dtype));
    return std::make_unique<Simple>(*layout, Shape{dtype, op, group, counts, symmetric}, entry->call, entry->plan);
}

std::vector<std::string> op_names() {
    return {"sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premul_sum"};
}

ReduceOp op_from_string(const std::string& name) {
    const std::pair<const char*, ReduceOp> known[] = {
        {"sum", ReduceOp::sum},      {"avg", ReduceOp::avg},
        {"prod", ReduceOp::product}, {"product", ReduceOp::product},
        {"min", ReduceOp::min},      {"max", ReduceOp::max},
        {"band", ReduceOp::band},    {"bor", ReduceOp::bor},
        {"bxor", ReduceOp::bxor},    {"premul_sum", ReduceOp::premul_sum(1.0)}};
    for (const auto& [text, op] : known) {
        if (name == text) return op;
    }
    throw InvalidArgument(
        fmt::format("--op \"{}\": expected {}{}", name, fmt::join(op_names(), ", "), did_you_mean(name, op_names())));
}

}  // namespace tutti::bench
