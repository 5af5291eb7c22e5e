#include "cli/bench/bench.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>
#include <tutti/symmetric.hpp>

#include <array>
#include <cmath>
#include <complex>
#include <functional>
#include <memory>

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

// Inputs are 1 and 2, so that every type holds them, a product stays small for long, and neighbours differ; 0 and 1 of
// booleans. They depend on the element's class only.
constexpr std::size_t classes = 5;
std::size_t class_of(std::uint64_t i) {
    return static_cast<std::size_t>((i * 7 + (i >> 9)) % classes);
}
double input_of_class(DType dtype, int rank, std::size_t c) {
    const bool high = (c + static_cast<std::size_t>(rank) * 3) % classes % 2 != 0;
    return (high ? 1 : 0) + (dtype == DType::boolean ? 0 : 1);
}
double input(DType dtype, int rank, std::uint64_t i) {
    return input_of_class(dtype, rank, class_of(i));
}

double combined_of_class(ReduceOp op, int ranks, std::size_t c, DType dtype) {
    double value = input_of_class(dtype, 0, c);
    const auto bits = [](double v) { return static_cast<unsigned>(v); };
    for (int r = 1; r < ranks; ++r) {
        const double next = input_of_class(dtype, r, c);
        switch (op.kind()) {
            case ReduceOp::Kind::sum:
            case ReduceOp::Kind::avg:
            case ReduceOp::Kind::premul_sum: value += next; break;
            case ReduceOp::Kind::product: value *= next; break;
            case ReduceOp::Kind::min: value = std::min(value, next); break;
            case ReduceOp::Kind::max: value = std::max(value, next); break;
            case ReduceOp::Kind::band: value = bits(value) & bits(next); break;
            case ReduceOp::Kind::bor: value = bits(value) | bits(next); break;
            case ReduceOp::Kind::bxor: value = bits(value) ^ bits(next); break;
        }
    }
    if (dtype == DType::boolean) return value != 0 ? 1 : 0;
    if (op.kind() == ReduceOp::Kind::avg) value /= ranks;
    if (is_integral(dtype)) {
        value = std::floor(value);
        const double modulus = std::ldexp(1.0, static_cast<int>(8 * size_of(dtype)));
        if (size_of(dtype) < 8) value = std::fmod(value, modulus);
        const bool is_signed = dtype >= DType::int8;
        if (is_signed && value >= modulus / 2) value -= modulus;
    }
    return value;
}

std::function<double(std::uint64_t)> combined(ReduceOp op, int ranks, DType dtype) {
    std::array<double, classes> values;
    for (std::size_t c = 0; c < classes; ++c) values[c] = combined_of_class(op, ranks, c, dtype);
    return [values](std::uint64_t i) { return values[class_of(i)]; };
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

struct Shape {
    DType dtype;
    ReduceOp op;
    ProcessGroup group;
    std::uint64_t block = 0;  // elements of a rank's block, where there are blocks
    bool symmetric = false;
    int n() const { return group.size(); }
    int me() const { return group.rank(); }
    std::uint64_t all() const { return block * static_cast<std::uint64_t>(n()); }
};

// The collectives differ in five things: both buffers' sizes, their first contents, the call, and what comes out.
class Simple : public Case {
 public:
    using Value = std::function<double(std::uint64_t)>;
    Simple(Shape shape, std::uint64_t in, std::uint64_t out) : shape_(std::move(shape)) {
        const auto tensor = [&](std::uint64_t count) {
            const Extents extents{static_cast<std::int64_t>(count)};
            if (!shape_.symmetric) return zeros(shape_.dtype, extents);
            // Ranks may need different counts; what nobody touches takes no memory.
            const auto whole = std::make_shared<Tensor>(
                empty_symmetric(shape_.dtype, {static_cast<std::int64_t>(shape_.all())}, {.group = shape_.group}));
            return Tensor(TensorView(whole->raw_data(), extents, shape_.dtype), whole);
        };
        in_ = tensor(in);
        out_ = tensor(out);
        size_ = std::max(in, out);
    }
    void fill() override {
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(in_.element_count()); ++i)
            set(in_, i, input(shape_.dtype, shape_.me(), i));
        const bool in_place = static_cast<bool>(first);
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(out_.element_count()); ++i)
            set(out_, i, in_place ? first(i) : expected && expected(i) == 0 ? 1 : 0);
    }
    void run() override { call(); }
    std::uint64_t wrong() const override {
        const double allowed = tolerance(shape_.dtype);
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; expected && i < static_cast<std::uint64_t>(out_.element_count()); ++i) {
            const double want = expected(i);
            // Not "greater", so that NaN is wrong.
            if (!(std::abs(get(out_, i) - want) <= allowed * std::abs(want)) || imaginary(out_, i) != 0) ++wrong;
        }
        return wrong;
    }
    Tensor& output() override { return out_; }
    std::uint64_t bytes() const override { return size_ * size_of(shape_.dtype); }
    std::uint64_t count() const override { return size_; }

    Value first;     ///< of the output, where the call works in place
    Value expected;  ///< of the output afterwards; empty: there is none on this rank
    std::function<void()> call;
    Shape shape_;
    Tensor in_, out_;

 private:
    std::uint64_t size_ = 0;
};

using Maker = std::unique_ptr<Simple> (*)(const Shape&);
struct Entry {
    const char* name;
    bool reduces;
    bool blocks;  // the size is divided among the ranks
    double (*bus)(double n);
    Maker make;
};

double once(double) {
    return 1;
}
double others(double n) {
    return (n - 1) / n;
}

std::unique_ptr<Simple> in_place(const Shape& s, std::uint64_t count) {
    auto c = std::make_unique<Simple>(s, 0, count);
    c->first = [dtype = s.dtype, me = s.me()](std::uint64_t i) { return input(dtype, me, i); };
    return c;
}

const Entry entries[] = {
    {"all_reduce", true, false, [](double n) { return 2 * (n - 1) / n; },
     [](const Shape& s) {
         auto c = in_place(s, s.block);
         c->expected = combined(s.op, s.n(), s.dtype);
         c->call = [c = c.get()] { all_reduce(c->out_, {.op = c->shape_.op, .group = c->shape_.group}); };
         return c;
     }},
    {"broadcast", false, false, once,
     [](const Shape& s) {
         auto c = in_place(s, s.block);
         c->expected = [dtype = s.dtype](std::uint64_t i) { return input(dtype, 0, i); };
         c->call = [c = c.get()] { broadcast(c->out_, {.src = 0, .group = c->shape_.group}); };
         return c;
     }},
    {"reduce", true, false, once,
     [](const Shape& s) {
         auto c = in_place(s, s.block);
         c->expected = s.me() == 0 ? combined(s.op, s.n(), s.dtype) : c->first;
         c->call = [c = c.get()] { reduce(c->out_, {.dst = 0, .op = c->shape_.op, .group = c->shape_.group}); };
         return c;
     }},
    {"all_gather", false, true, others,
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, s.block, s.all());
         c->expected = [s](std::uint64_t i) { return input(s.dtype, static_cast<int>(i / s.block), i % s.block); };
         c->call = [c = c.get()] { all_gather_into_tensor(c->out_, c->in_, {.group = c->shape_.group}); };
         return c;
     }},
    {"reduce_scatter", true, true, others,
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, s.all(), s.block);
         const std::uint64_t mine = static_cast<std::uint64_t>(s.me()) * s.block;
         c->expected = [mine, result = combined(s.op, s.n(), s.dtype)](std::uint64_t i) { return result(mine + i); };
         c->call = [c = c.get()] {
             reduce_scatter_tensor(c->out_, c->in_, {.op = c->shape_.op, .group = c->shape_.group});
         };
         return c;
     }},
    {"all_to_all", false, true, others,
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, s.all(), s.all());
         const std::uint64_t mine = static_cast<std::uint64_t>(s.me()) * s.block;
         c->expected = [s, mine](std::uint64_t i) {
             return input(s.dtype, static_cast<int>(i / s.block), mine + i % s.block);
         };
         c->call = [c = c.get()] { all_to_all_single(c->out_, c->in_, {.group = c->shape_.group}); };
         return c;
     }},
    {"gather", false, true, others,
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, s.block, s.me() == 0 ? s.all() : 0);
         c->expected = [s](std::uint64_t i) { return input(s.dtype, static_cast<int>(i / s.block), i % s.block); };
         c->call = [c = c.get()] {
             const Shape& shape = c->shape_;
             TensorList parts;
             for (int r = 0; shape.me() == 0 && r < shape.n(); ++r) {
                 auto* at = static_cast<std::byte*>(c->out_.raw_data()) +
                            static_cast<std::uint64_t>(r) * shape.block * size_of(shape.dtype);
                 parts.push_back(view(at, {static_cast<std::int64_t>(shape.block)}, shape.dtype));
             }
             gather(c->in_, parts, {.dst = 0, .group = shape.group});
         };
         return c;
     }},
    {"scatter", false, true, others,
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, s.me() == 0 ? s.all() : 0, s.block);
         const std::uint64_t mine = static_cast<std::uint64_t>(s.me()) * s.block;
         c->expected = [dtype = s.dtype, mine](std::uint64_t i) { return input(dtype, 0, mine + i); };
         c->call = [c = c.get()] {
             const Shape& shape = c->shape_;
             ConstTensorList parts;
             for (int r = 0; shape.me() == 0 && r < shape.n(); ++r) {
                 const auto* at = static_cast<const std::byte*>(c->in_.raw_data()) +
                                  static_cast<std::uint64_t>(r) * shape.block * size_of(shape.dtype);
                 parts.push_back(view(at, {static_cast<std::int64_t>(shape.block)}, shape.dtype));
             }
             scatter(c->out_, parts, {.src = 0, .group = shape.group});
         };
         return c;
     }},
    {"sendrecv", false, false, once,
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, s.block, s.block);
         c->expected = [s](std::uint64_t i) { return input(s.dtype, (s.me() + s.n() - 1) % s.n(), i); };
         c->call = [c = c.get()] {
             const Shape& shape = c->shape_;
             const P2POptions options{.group = shape.group};
             for (Work& work :
                  batch_isend_irecv({isend_op(c->in_, (shape.me() + 1) % shape.n(), options),
                                     irecv_op(c->out_, (shape.me() + shape.n() - 1) % shape.n(), options)})) {
                 work.wait();
             }
         };
         return c;
     }},
    {"barrier", false, false, [](double) { return 0.0; },
     [](const Shape& s) {
         auto c = std::make_unique<Simple>(s, 0, 0);
         c->call = [c = c.get()] { barrier({.group = c->shape_.group}); };
         return c;
     }},
};

}  // namespace

std::vector<std::string> collective_names() {
    std::vector<std::string> names;
    for (const Entry& entry : entries) names.emplace_back(entry.name);
    return names;
}

std::unique_ptr<Case> make_case(const std::string& collective, std::uint64_t bytes, DType dtype, ReduceOp op,
                                const ProcessGroup& group, bool symmetric) {
    for (const Entry& entry : entries) {
        if (collective != entry.name) continue;
        const auto n = static_cast<std::uint64_t>(group.size());
        Shape shape{dtype, op, group, bytes / size_of(dtype), symmetric};
        if (entry.blocks) shape.block = std::max<std::uint64_t>(1, shape.block / n);
        auto made = entry.make(shape);
        made->reduces = entry.reduces;
        made->bus_factor = entry.bus(static_cast<double>(n));
        return made;
    }
    throw InvalidArgument("bench: unknown collective \"" + collective + "\"");
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
    throw InvalidArgument("--op \"" + name + "\": expected sum, avg, prod, min, max, band, bor, bxor or premul_sum");
}

}  // namespace tutti::bench
