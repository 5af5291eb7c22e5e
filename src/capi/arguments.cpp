#include "capi/arguments.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

namespace tutti::capi {
namespace {

constexpr std::size_t largest_options = 4096;
constexpr std::int32_t most_dimensions = 64;

// Reads both forms of a tensor list into `to`.
template <class List>
List list_of(const char* function, const char* argument, const tutti_tensor* tensors, std::size_t count) {
    if (tensors == nullptr && count > 0) refuse_null(function, argument);
    List list;
    for (std::size_t i = 0; i < count; ++i) {
        list.push_back(tensor_of(function, fmt::format("{}[{}]", argument, i).c_str(), &tensors[i]));
    }
    TUTTI_ASSERT(list.size() == count);
    return list;
}

Extents extents_of(const char* function, const char* argument, const char* member, const tutti_tensor& tensor,
                   const std::int64_t* values) {
    TUTTI_ASSERT(tensor.ndim >= 0 && tensor.ndim <= most_dimensions);
    if (tensor.ndim > 0 && values == nullptr) refuse_null(function, fmt::format("{}.{}", argument, member).c_str());
    return Extents(std::span(values, static_cast<std::size_t>(tensor.ndim)));
}

}  // namespace

void refuse_null(const char* function, const char* argument) {
    throw InvalidArgument(fmt::format("{}: {}: NULL: expected a pointer", function, argument));
}

void refuse_handle(const char* function, const char* argument, const char* kind, const void* handle) {
    if (handle == nullptr) throw InvalidArgument(fmt::format("{}: {}: NULL: expected a {}", function, argument, kind));
    throw InvalidArgument(fmt::format("{}: {}: {}: expected a {}: this is none, or it has been given back", function,
                                      argument, handle, kind));
}

std::string text_of(const char* function, const char* argument, const char* text) {
    if (text == nullptr) refuse_null(function, argument);
    return text;
}

std::string text_or_nothing(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
}

std::string_view bytes_of(const char* function, const char* argument, const void* data, std::size_t bytes) {
    if (data == nullptr && bytes > 0) refuse_null(function, argument);
    return bytes == 0 ? std::string_view() : std::string_view(static_cast<const char*>(data), bytes);
}

std::vector<std::string> texts_of(const char* function, const char* argument, const char* const* texts,
                                  std::size_t count) {
    if (texts == nullptr && count > 0) refuse_null(function, argument);
    std::vector<std::string> list;
    for (std::size_t i = 0; i < count; ++i) {
        list.push_back(text_of(function, fmt::format("{}[{}]", argument, i).c_str(), texts[i]));
    }
    TUTTI_ASSERT(list.size() == count);
    return list;
}

std::chrono::milliseconds time_of(const char* function, const char* argument, std::int64_t ms) {
    if (ms < 0) throw InvalidArgument(fmt::format("{}: {}: {} ms: expected 0 or more", function, argument, ms));
    return std::chrono::milliseconds(std::min(ms, std::numeric_limits<std::int64_t>::max() / 2'000'000));
}

int number_of(const char* function, const char* argument, std::int64_t value, std::int64_t min, std::int64_t max) {
    TUTTI_ASSERT(min <= max && min >= INT32_MIN && max <= INT32_MAX);
    if (value < min || value > max) {
        throw InvalidArgument(fmt::format("{}: {}: {}: expected {} to {}", function, argument, value, min, max));
    }
    return static_cast<int>(value);
}

void read_options(const char* function, const char* type, const void* given, void* options, std::size_t bytes) {
    TUTTI_ASSERT(options != nullptr && bytes > sizeof(std::size_t) && bytes <= largest_options);
    if (given == nullptr) return;
    std::size_t size = 0;
    std::memcpy(&size, given, sizeof size);
    if (size <= sizeof size || size > largest_options) {
        throw InvalidArgument(
            fmt::format("{}: options.size: {}: expected {}, the size of {}: begin with its initialiser", function, size,
                        bytes, type));
    }
    const std::span<const unsigned char> all(static_cast<const unsigned char*>(given), size);
    if (size > bytes && std::ranges::any_of(all.subspan(bytes), [](unsigned char byte) { return byte != 0; })) {
        throw InvalidArgument(fmt::format(
            "{}: options.size: {}: this version of tutti knows the first {} bytes of {}, and the others are "
            "set: expected a newer library",
            function, size, bytes, type));
    }
    TUTTI_ASSERT(size > sizeof size && size <= largest_options);
    std::memcpy(options, given, std::min(size, bytes));
}

TransportKind transport_of(const char* function, std::int32_t transport) {
    return static_cast<TransportKind>(number_of(function, "options.transport", transport, 0, TUTTI_TRANSPORT_TCP));
}

Determinism determinism_of(const char* function, std::int32_t determinism) {
    return static_cast<Determinism>(number_of(function, "options.determinism", determinism, 0, TUTTI_LAYOUT_INVARIANT));
}

TensorView tensor_of(const char* function, const char* argument, const tutti_tensor* tensor) {
    if (tensor == nullptr) refuse_null(function, argument);
    const auto member = [argument](const char* name) { return fmt::format("{}.{}", argument, name); };
    const int dtype = number_of(function, member("dtype").c_str(), tensor->dtype, 0, dtype_count - 1);
    number_of(function, member("ndim").c_str(), tensor->ndim, 0, most_dimensions);
    const Extents shape = extents_of(function, argument, "shape", *tensor, tensor->shape);
    const Extents strides =
        tensor->strides == nullptr ? Extents() : extents_of(function, argument, "strides", *tensor, tensor->strides);
    try {
        return {tensor->data, shape, static_cast<DType>(dtype), strides};
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: {}: {}", function, argument, error.what()));
    }
}

TensorList tensors_of(const char* function, const char* argument, const tutti_tensor* tensors, std::size_t count) {
    return list_of<TensorList>(function, argument, tensors, count);
}

ConstTensorList const_tensors_of(const char* function, const char* argument, const tutti_tensor* tensors,
                                 std::size_t count) {
    return list_of<ConstTensorList>(function, argument, tensors, count);
}

}  // namespace tutti::capi
