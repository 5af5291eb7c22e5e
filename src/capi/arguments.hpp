// Conversions of C arguments to C++ ones. All throw InvalidArgument that names the function, the argument, its value
// and the expected values.
//
// Threads: any; pure functions.
#pragma once

#include <tutti/tutti.h>
#include <tutti/distributed.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::capi {

[[noreturn]] void refuse_null(const char* function, const char* argument);
[[noreturn]] void refuse_handle(const char* function, const char* argument, const char* kind, const void* handle);

/// Returns the target of an output argument. Functions call it first, so that NULL is refused before anything happens.
template <class T>
T& out(const char* function, const char* argument, T* pointer) {
    if (pointer == nullptr) refuse_null(function, argument);
    return *pointer;
}

std::string text_of(const char* function, const char* argument, const char* text);
/// Empty for NULL.
std::string text_or_nothing(const char* text);
std::string_view bytes_of(const char* function, const char* argument, const void* data, std::size_t bytes);
std::vector<std::string> texts_of(const char* function, const char* argument, const char* const* texts,
                                  std::size_t count);
/// Converts milliseconds, which must not be negative; limits a time that would overflow a clock to 146 years.
std::chrono::milliseconds time_of(const char* function, const char* argument, std::int64_t ms);
/// A number from `min` to `max`.
int number_of(const char* function, const char* argument, std::int64_t value, std::int64_t min, std::int64_t max);

/// Overwrites members of `options`, which holds the defaults, with those that the caller's structure `given` has. NULL:
/// changes nothing.
void read_options(const char* function, const char* type, const void* given, void* options, std::size_t bytes);
template <class Options>
Options options_of(const char* function, const char* type, const Options* given, Options defaults) {
    read_options(function, type, given, &defaults, sizeof defaults);
    return defaults;
}

TransportKind transport_of(const char* function, std::int32_t transport);
Determinism determinism_of(const char* function, std::int32_t determinism);

TensorView tensor_of(const char* function, const char* argument, const tutti_tensor* tensor);
TensorList tensors_of(const char* function, const char* argument, const tutti_tensor* tensors, std::size_t count);
ConstTensorList const_tensors_of(const char* function, const char* argument, const tutti_tensor* tensors,
                                 std::size_t count);

}  // namespace tutti::capi
