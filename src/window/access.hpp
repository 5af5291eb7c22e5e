// What a call on a window does with elements of a target: where this rank maps them it copies or updates them at once,
// elsewhere it asks the target's service.
//
// Threads: any.
#pragma once

#include "core/assert.hpp"
#include "window/state.hpp"

#include <tutti/tensor.hpp>
#include <tutti/window.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::window {

using detail::Operation;
using detail::WindowState;

/// What a call does with elements of a target. `tensor`: as many elements as it is about.
struct Access {
    const char* name;
    WindowState& state;
    const ConstTensorView& tensor;
    int target;
    std::int64_t offset;
    std::chrono::milliseconds timeout;

    std::size_t offset_bytes() const {
        TUTTI_ASSERT(offset >= 0);
        return static_cast<std::size_t>(offset) * size_of(tensor.dtype());
    }
    bool is_mapped() const { return state.memory().is_mapped(target); }
    std::chrono::milliseconds limit() const { return timeout.count() > 0 ? timeout : state.group().timeout(); }
    Request request(Request::Kind kind) const {
        return {.kind = kind, .offset = offset_bytes(), .bytes = tensor.byte_count()};
    }
    std::byte* there() const {
        TUTTI_ASSERT(is_mapped() && offset >= 0);
        return state.memory().elements(target) + offset_bytes();
    }
};

void check_target(const char* name, const WindowState& state, int target);
/// The target has not closed the window.
void check_kept(const char* name, const WindowState& state, int target);
void check_signal(const char* name, const WindowState& state, int signal);
void check_tensor(const char* name, const ConstTensorView& tensor, DType dtype);

/// A signal that follows a put; value 0: none.
struct Raise {
    int signal = 0;
    std::uint64_t value = 0;
};

// Each checks its arguments, and throws InvalidArgument. A null operation: the call is done.

std::shared_ptr<Operation> put_to(const Access& access, const Raise& raise = {});
std::shared_ptr<Operation> put_signal_to(const char* name, WindowState& state, const ConstTensorView& source,
                                         int target, const WindowSignalAccess& access);
std::shared_ptr<Operation> get_from(const Access& access, const TensorView& destination);
std::shared_ptr<Operation> accumulate_to(const Access& access, AccumulateOp op);
/// `access` is about `before`.
std::shared_ptr<Operation> get_accumulate_from(const Access& access, const ConstTensorView& source,
                                               const TensorView& before, AccumulateOp op);
/// `access` is about `before`; the other two point to one element.
std::shared_ptr<Operation> compare_and_swap_at(const Access& access, const void* expected, const void* desired,
                                               const TensorView& before);

}  // namespace tutti::window
