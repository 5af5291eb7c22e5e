// Atomic operations on elements of a window that this rank maps: lock-free, by the CPU's instructions or a loop of
// compare-and-swap, so ranks of a host and the services that act for ranks of other hosts mix safely.
//
// Each is an acquire and a release. An element of complex128 is two float64, each of which is atomic by itself.
//
// Threads: any.
#pragma once

#include <tutti/dtype.hpp>
#include <tutti/window.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tutti::window {

/// Whether the operator is defined for the type.
bool is_supported(AccumulateOp op, DType dtype) noexcept;
/// Whether compare_and_swap() and calls that return one value are.
bool has_one_value(DType dtype) noexcept;

/// elements[i] = elements[i] op values[i], for i < `count`. `before`: gets the old values; null: nobody wants them.
/// `values` may be null for no_op. The elements are aligned to their size; values and `before` need not be.
/// Precondition: is_supported().
void update(AccumulateOp op, DType dtype, std::byte* elements, const void* values, void* before, std::size_t count);

/// The same for one integer of 4 or 8 bytes and a sum, without a look at anything else; false, and nothing is done, for
/// others.
inline bool add_at_once(AccumulateOp op, DType dtype, std::byte* element, const void* value, void* before) {
    const auto add = [&]<class Word>(Word) {
        Word number;
        std::memcpy(&number, value, sizeof number);
        number = std::atomic_ref<Word>(*reinterpret_cast<Word*>(element)).fetch_add(number, std::memory_order_acq_rel);
        std::memcpy(before, &number, sizeof number);
        return true;
    };
    if (op.kind() != AccumulateOp::Kind::sum) return false;
    if (dtype == int64 || dtype == uint64) return add(std::uint64_t{});
    return (dtype == int32 || dtype == uint32) && add(std::uint32_t{});
}

/// The element becomes `desired` if it has the bits of `expected`; `before` gets its old value. Precondition:
/// has_one_value().
void compare_and_swap(DType dtype, std::byte* element, const void* expected, const void* desired, void* before);

}  // namespace tutti::window
