// Few of them are worth a call of PyTorch's: such a call takes a microsecond, a loop over few numbers some nanoseconds.
// So the operations that IEEE 754 defines are loops over float and double; for other types and operations PyTorch's own
// are called.
#include "piece_steps.hpp"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include <tutti/error.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

namespace tutti::torch {
namespace {

using Run = std::function<void(std::span<const ConstTensorView>, std::span<const TensorView>)>;

// ---- PyTorch's

using T = at::Tensor;
using Unary = T& (*)(T&, const T&);
using Binary = T& (*)(T&, const T&, const T&);

constexpr std::array<std::pair<std::string_view, Unary>, 7> unary_operations{{
    {"abs", [](T& to, const T& x) -> T& { return at::abs_out(to, x); }},
    {"exp", [](T& to, const T& x) -> T& { return at::exp_out(to, x); }},
    {"neg", [](T& to, const T& x) -> T& { return at::neg_out(to, x); }},
    {"relu", [](T& to, const T& x) -> T& { return at::relu_out(to, x); }},
    {"sigmoid", [](T& to, const T& x) -> T& { return at::sigmoid_out(to, x); }},
    {"sqrt", [](T& to, const T& x) -> T& { return at::sqrt_out(to, x); }},
    {"tanh", [](T& to, const T& x) -> T& { return at::tanh_out(to, x); }},
}};
constexpr std::array<std::pair<std::string_view, Binary>, 6> binary_operations{{
    {"add", [](T& to, const T& x, const T& y) -> T& { return at::add_out(to, x, y); }},
    {"div", [](T& to, const T& x, const T& y) -> T& { return at::div_out(to, x, y); }},
    {"maximum", [](T& to, const T& x, const T& y) -> T& { return at::maximum_out(to, x, y); }},
    {"minimum", [](T& to, const T& x, const T& y) -> T& { return at::minimum_out(to, x, y); }},
    {"mul", [](T& to, const T& x, const T& y) -> T& { return at::mul_out(to, x, y); }},
    {"sub", [](T& to, const T& x, const T& y) -> T& { return at::sub_out(to, x, y); }},
}};

template <class Operations>
auto find(const Operations& operations, std::string_view name) {
    for (const auto& [known, run] : operations) {
        if (known == name) return run;
    }
    return decltype(operations.front().second){nullptr};
}

at::Tensor over(const ConstTensorView& view, at::ScalarType type) {
    return at::from_blob(const_cast<void*>(view.data()), {view.element_count()}, at::TensorOptions(type));
}

// ---- Loops

template <class Element, class Operation>
Run loop(Operation operation) {
    return [operation](std::span<const ConstTensorView> read, std::span<const TensorView> written) {
        const auto* x = static_cast<const Element*>(read[0].data());
        auto* to = static_cast<Element*>(written[0].data());
        for (std::int64_t i = 0; i < written[0].element_count(); ++i) to[i] = operation(x[i]);
    };
}
template <class Element, class Operation>
Run loop(Operation operation, const std::optional<c10::Scalar>& scalar) {
    if (scalar) return loop<Element>([operation, y = scalar->to<Element>()](Element x) { return operation(x, y); });
    return [operation](std::span<const ConstTensorView> read, std::span<const TensorView> written) {
        const auto *x = static_cast<const Element*>(read[0].data()), *y = static_cast<const Element*>(read[1].data());
        auto* to = static_cast<Element*>(written[0].data());
        for (std::int64_t i = 0; i < written[0].element_count(); ++i) to[i] = operation(x[i], y[i]);
    };
}

/// Empty for operations that take a library's functions. A maximum with something that is not a number is not a number.
template <class E>
Run loop_of(std::string_view name, const std::optional<c10::Scalar>& scalar) {
    if (name == "abs") return loop<E>([](E x) { return std::abs(x); });
    if (name == "neg") return loop<E>([](E x) { return -x; });
    if (name == "relu") return loop<E>([](E x) { return x < E{0} ? E{0} : x; });
    if (name == "sqrt") return loop<E>([](E x) { return std::sqrt(x); });
    if (name == "add") return loop<E>([](E x, E y) { return x + y; }, scalar);
    if (name == "sub") return loop<E>([](E x, E y) { return x - y; }, scalar);
    if (name == "mul") return loop<E>([](E x, E y) { return x * y; }, scalar);
    if (name == "div") return loop<E>([](E x, E y) { return x / y; }, scalar);
    if (name == "maximum") return loop<E>([](E x, E y) { return x > y || x != x ? x : y; }, scalar);
    if (name == "minimum") return loop<E>([](E x, E y) { return x < y || x != x ? x : y; }, scalar);
    return {};
}

}  // namespace

std::size_t reads_of_local_step(const std::string& name, bool has_scalar) {
    return find(binary_operations, name) != nullptr && !has_scalar ? 2 : 1;
}

Run local_step(const std::string& name, at::ScalarType type, const std::optional<c10::Scalar>& scalar) {
    if (name == "copy") {
        return [](std::span<const ConstTensorView> read, std::span<const TensorView> written) {
            std::memcpy(written[0].data(), read[0].data(), read[0].byte_count());
        };
    }
    Run run;
    if (type == at::kFloat) run = loop_of<float>(name, scalar);
    if (type == at::kDouble) run = loop_of<double>(name, scalar);
    if (run) return run;
    if (const Unary unary = find(unary_operations, name)) {
        return [unary, type](std::span<const ConstTensorView> read, std::span<const TensorView> written) {
            at::Tensor to = over(written[0], type);
            unary(to, over(read[0], type));
        };
    }
    if (const Binary binary = find(binary_operations, name)) {
        std::optional<at::Tensor> number;
        if (scalar) number = at::native::wrapped_scalar_tensor(*scalar);
        return [binary, type, number](std::span<const ConstTensorView> read, std::span<const TensorView> written) {
            at::Tensor to = over(written[0], type);
            binary(to, over(read[0], type), number ? *number : over(read[1], type));
        };
    }
    throw InvalidArgument("tutti_graph::replay_: nobody knows the step " + name);
}

}  // namespace tutti::torch
