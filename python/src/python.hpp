// nanobind, and the convention of all bindings: an argument of type nb::handle is any object, None included.
#pragma once

#include <nanobind/nanobind.h>

#include <type_traits>

template <>
struct nanobind::detail::has_arg_defaults<nanobind::handle> : std::true_type {};

namespace tutti::python {
namespace nb = nanobind;
}
