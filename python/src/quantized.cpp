// The quantised collectives on arrays, and QuantizedReducer.
#include "parts.hpp"
#include "plans.hpp"

#include <tutti/collectives.hpp>
#include <tutti/quantized.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

namespace tutti::python {
namespace {

template <class T>
T number_of(nb::handle value, const char* name, const char* argument, const char* expected) {
    try {
        return nb::cast<T>(value);
    } catch (const nb::cast_error&) {
        throw_type_error(name, argument, value, expected);
    }
}

std::int64_t block_of(nb::handle block, const char* name) {
    if (nb::isinstance<nb::str>(block)) {
        const auto text = nb::cast<std::string>(block);
        if (text == "row") return QuantizedOptions::per_row;
        if (text == "tensor") return QuantizedOptions::per_tensor;
        throw InvalidArgument(fmt::format("{}: block \"{}\": expected an integer, \"row\" or \"tensor\"", name, text));
    }
    const auto elements = number_of<std::int64_t>(block, name, "block", "an integer, \"row\" or \"tensor\"");
    if (elements < 0)
        throw InvalidArgument(fmt::format(
            "{}: block {}: expected a multiple of 32 from 32 to 1024, \"row\" or \"tensor\"", name, elements));
    return elements;
}

// The tuple that tutti.distributed makes: (type, block, scales, scale, quantize_results, rounding, seed).
QuantizedOptions options_of(nb::handle given, nb::handle op, nb::handle group, nb::handle timeout, const char* name) {
    const auto how = nb::borrow<nb::tuple>(given);
    const auto text = [&](std::size_t i, const char* argument) {
        return number_of<std::string>(how[i], name, argument, "a string");
    };
    QuantizedOptions o;
    o.type = quantized_type_from_string(text(0, "type"));
    o.block = block_of(how[1], name);
    o.scales = quantized_scales_from_string(text(2, "scales"));
    if (!how[3].is_none()) o.scale = number_of<float>(how[3], name, "scale", "a number");
    o.quantize_results = flag_of(how[4], name, "quantize_results");
    o.rounding = quantized_rounding_from_string(text(5, "rounding"));
    o.seed = number_of<std::uint64_t>(how[6], name, "seed", "an integer that is not negative");
    o.op = op_of(op, name);
    o.group = group_of(group, name);
    o.timeout = timeout_of(timeout, name);
    return o;
}

template <class Blocking, class Async>
OptionalWork run(std::vector<Array> arrays, nb::handle output, nb::handle async_op, const char* name, Blocking blocking,
                 Async asynchronous) {
    return now(async_op, name)(std::move(arrays), one(output), blocking, asynchronous, [] {});
}

std::vector<std::int64_t> counts_of(nb::handle counts, const char* name) {
    if (counts.is_none()) return {};
    return number_of<std::vector<std::int64_t>>(counts, name, "counts", "a list of integers, one per rank");
}

/// Defines a function for Python; `input_name` is for messages.
template <class Blocking, class Asynchronous>
void define(nb::module_& m, const char* name, const char* input_name, Blocking blocking, Asynchronous asynchronous) {
    using H = nb::handle;
    m.def(name, [=](H output, H input, H how, H counts, H op, H group, H async_op, H timeout) {
        auto arrays = list_of(Array(output, writes, name, "output"), Array(input, reads, name, input_name));
        const TensorView to = arrays[0].view();
        const ConstTensorView from = arrays[1].view();
        QuantizedOptions options = options_of(how, op, group, timeout, name);
        options.counts = counts_of(counts, name);
        if (is_outside(options.group, name)) return OptionalWork(nb::none());
        return run(
            std::move(arrays), output, async_op, name, [&] { blocking(to, from, options); },
            [&] { return asynchronous(to, from, options); });
    });
}

std::size_t bucket_of(nb::handle bucket) {
    return number_of<std::size_t>(bucket, "QuantizedReducer", "bucket", "an integer that is not negative");
}

}  // namespace

void bind_quantized(nb::module_& m) {
#define TUTTI_QUANTIZED_FUNCTION(name, number, collective, combines, torch, input)    \
    define(                                                                           \
        m, #name, input, [](const auto&... arguments) { tutti::name(arguments...); }, \
        [](const auto&... arguments) { return async::name(arguments...); });
#include <tutti/collectives.def>
    nb::class_<QuantizedReducer>(m, "QuantizedReducer", "tutti.distributed.QuantizedReducer's C++ part.")
        .def("__init__",
             [](QuantizedReducer* self, nb::handle how, nb::handle op, nb::handle group, nb::handle timeout) {
                 new (self) QuantizedReducer(options_of(how, op, group, timeout, "QuantizedReducer"));
             })
        .def("all_reduce",
             [](QuantizedReducer& self, nb::handle tensor, nb::handle bucket, nb::handle async_op) {
                 constexpr const char* name = "quantized_all_reduce";
                 auto arrays = list_of(Array(tensor, writes, name, "tensor"));
                 const TensorView view = arrays[0].view();
                 const std::size_t index = bucket_of(bucket);
                 if (is_outside(self.options().group, name)) return OptionalWork(nb::none());
                 return run(
                     std::move(arrays), tensor, async_op, name, [&] { self.all_reduce(view, index); },
                     [&] { return self.start_all_reduce(view, index); });
             })
        .def("residual",
             [](const QuantizedReducer& self, nb::handle bucket) { return to_numpy(self.residual(bucket_of(bucket))); })
        .def("reset", &QuantizedReducer::reset);
}

}  // namespace tutti::python
