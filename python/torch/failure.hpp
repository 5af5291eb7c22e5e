// What tutti throws, as PyTorch's exceptions.
#pragma once

#include <exception>
#include <functional>

namespace tutti::torch {

/// The same failure as PyTorch knows it: DistBackendError (what ends a collective), DistStoreError, DistNetworkError,
/// or a plain c10::Error for an impossible request; Python sees RuntimeError or a class derived from it. Others
/// unchanged.
std::exception_ptr translated(std::exception_ptr error);

/// Runs `function`; what it throws arrives translated.
template <class Function>
decltype(auto) translating(Function&& function) {
    try {
        return function();
    } catch (...) {
        std::rethrow_exception(translated(std::current_exception()));
    }
}

}  // namespace tutti::torch
