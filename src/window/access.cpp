#include "window/access.hpp"

#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "window/atomics.hpp"
#include "window/signals.hpp"

#include <tutti/error.hpp>

#include <array>
#include <cstring>
#include <utility>

namespace tutti::window {
namespace {

using api::refuse;

void check(const Access& access) {
    const char* const name = access.name;
    check_target(name, access.state, access.target);
    check_tensor(name, access.tensor, access.state.memory().dtype());
    const std::int64_t all = access.state.memory().element_count(access.target);
    const std::int64_t count = access.tensor.element_count();
    if (access.offset < 0 || access.offset > all || count > all - access.offset) {
        refuse("{}: offset {} and {} elements: expected no more than the window's {} elements on rank {}", name,
               access.offset, count, all, access.target);
    }
    api::check_timeout(name, access.timeout);
    check_sound(access.state.group(), name);
    check_kept(name, access.state, access.target);
}

void check_operator(const char* name, AccumulateOp op, DType dtype) {
    if (!op.is_known()) {
        refuse("{}: op {}: expected sum, product, min, max, band, bor, bxor, replace or no_op", name,
               to_string(op.reduction()));
    }
    if (!is_supported(op, dtype))
        refuse("{}: op {}: not defined for {}, of which the window is", name, to_string(op.reduction()),
               to_string(dtype));
}

void copy_bytes(std::byte* to, const void* from, std::size_t bytes) {
    TUTTI_ASSERT(bytes == 0 || (to != nullptr && from != nullptr));
    if (bytes > 0) std::memmove(to, from, bytes);
}

}  // namespace

void check_target(const char* name, const WindowState& state, int target) {
    const int size = state.group().size();
    if (target < 0 || target >= size) [[unlikely]]
        refuse("{}: target {}: expected a rank of the group, 0 to {}", name, target, size - 1);
}

void check_kept(const char* name, const WindowState& state, int target) {
    if (state.was_let_go_by(target)) [[unlikely]]
        state.remote().refuse(name, target);
}

void check_signal(const char* name, const WindowState& state, int signal) {
    const int count = state.memory().signal_count();
    if (signal >= 0 && signal < count) return;
    if (count == 0) refuse("{}: signal {}: the window was made with no signals", name, signal);
    refuse("{}: signal {}: expected 0 to {}", name, signal, count - 1);
}

void check_tensor(const char* name, const ConstTensorView& tensor, DType dtype) {
    if (tensor.device().type != Device::Type::cpu)
        refuse("{}: tensor is on {}: expected host memory", name, to_string(tensor.device()));
    if (tensor.dtype() != dtype)
        refuse("{}: tensor is {}: expected {}, as the window", name, tensor.to_string(), to_string(dtype));
    if (!tensor.contiguous())
        refuse("{}: tensor {} is not in one piece: expected contiguous", name, tensor.to_string());
}

std::shared_ptr<Operation> put_to(const Access& access, const Raise& raise) {
    check(access);
    const auto& [signal, value] = raise;
    if (access.is_mapped()) {
        copy_bytes(access.there(), access.tensor.data(), access.tensor.byte_count());
        if (value != 0 && !access.state.memory().raise(access.target, signal, value))
            refuse("{}: value {}: it would raise signal {} of rank {}, which is {}, beyond 2^64 - 1", access.name,
                   value, signal, access.target, access.state.memory().value_of(access.target, signal));
        return nullptr;
    }
    Request request = access.request(Request::Kind::put);
    request.signal = static_cast<std::uint32_t>(signal);
    request.value = value;
    return access.state.remote().write(access.name, access.target, request, access.tensor.data(), access.limit());
}

std::shared_ptr<Operation> get_from(const Access& access, const TensorView& destination) {
    check(access);
    auto* const to = static_cast<std::byte*>(destination.data());
    if (access.is_mapped()) {
        copy_bytes(to, access.there(), destination.byte_count());
        return nullptr;
    }
    if (destination.byte_count() == 0) return nullptr;
    return access.state.remote().read(access.name, access.target, access.request(Request::Kind::get), nullptr,
                                      {to, destination.byte_count()}, access.limit());
}

std::shared_ptr<Operation> put_signal_to(const char* name, WindowState& state, const ConstTensorView& source,
                                         int target, const WindowSignalAccess& access) {
    check_signal(name, state, access.signal);
    return put_to({name, state, source, target, access.offset, access.timeout}, {access.signal, access.value});
}

std::shared_ptr<Operation> accumulate_to(const Access& access, AccumulateOp op) {
    check(access);
    const DType dtype = access.state.memory().dtype();
    check_operator(access.name, op, dtype);
    if (op == AccumulateOp::no_op)
        refuse("{}: op no_op: expected one that changes elements; get_accumulate reads them", access.name);
    const ConstTensorView& source = access.tensor;
    if (source.element_count() == 0) return nullptr;
    if (access.is_mapped()) {
        update(op, dtype, access.there(), source.data(), nullptr, static_cast<std::size_t>(source.element_count()));
        return nullptr;
    }
    Request request = access.request(Request::Kind::accumulate);
    request.op = op;
    return access.state.remote().write(access.name, access.target, request, source.data(), access.limit());
}

std::shared_ptr<Operation> get_accumulate_from(const Access& access, const ConstTensorView& source,
                                               const TensorView& before, AccumulateOp op) {
    check(access);
    const DType dtype = access.state.memory().dtype();
    check_operator(access.name, op, dtype);
    if (op != AccumulateOp::no_op) {
        check_tensor(access.name, source, dtype);
        if (source.element_count() != before.element_count())
            refuse("{}: before has {} elements: expected {}, as source", access.name, before.element_count(),
                   source.element_count());
    }
    if (before.element_count() == 0) return nullptr;
    if (access.is_mapped()) {
        update(op, dtype, access.there(), source.data(), before.data(),
               static_cast<std::size_t>(before.element_count()));
        return nullptr;
    }
    Request request = access.request(Request::Kind::get_accumulate);
    request.op = op;
    return access.state.remote().read(access.name, access.target, request, source.data(),
                                      {static_cast<std::byte*>(before.data()), before.byte_count()}, access.limit());
}

std::shared_ptr<Operation> compare_and_swap_at(const Access& access, const void* expected, const void* desired,
                                               const TensorView& before) {
    check(access);
    const DType dtype = access.state.memory().dtype();
    if (!has_one_value(dtype))
        refuse("{}: the window is of {}: expected a type of at most 8 bytes", access.name, to_string(dtype));
    if (access.is_mapped()) {
        compare_and_swap(dtype, access.there(), expected, desired, before.data());
        return nullptr;
    }
    std::array<std::byte, 2 * sizeof(std::uint64_t)> both{};
    std::memcpy(both.data(), expected, size_of(dtype));
    std::memcpy(both.data() + size_of(dtype), desired, size_of(dtype));
    return access.state.remote().read(access.name, access.target, access.request(Request::Kind::compare_and_swap),
                                      both.data(), {static_cast<std::byte*>(before.data()), before.byte_count()},
                                      access.limit());
}

}  // namespace tutti::window
