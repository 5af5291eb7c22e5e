#include "window/atomics.hpp"

#include "core/assert.hpp"
#include "reduce/reduce.hpp"

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

namespace tutti::window {
namespace {

using Kind = AccumulateOp::Kind;
using std::memory_order_acq_rel;
using std::memory_order_acquire;

template <class Word>
std::atomic_ref<Word> element_at(std::byte* at) {
    static_assert(std::atomic_ref<Word>::is_always_lock_free, "ranks share it");
    TUTTI_ASSERT(reinterpret_cast<std::uintptr_t>(at) % sizeof(Word) == 0);
    return std::atomic_ref<Word>(*reinterpret_cast<Word*>(at));
}

template <class Word>
Word value_at(const void* from, std::size_t i) {
    Word value;
    std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof value, sizeof value);
    return value;
}

// `step` changes an element by a value, and returns what it was.
template <class Word, class Step>
void each(std::byte* elements, const void* values, void* before, std::size_t count, Step step) {
    for (std::size_t i = 0; i < count; ++i) {
        const Word value = values == nullptr ? Word{} : value_at<Word>(values, i);
        const Word old = step(element_at<Word>(elements + i * sizeof(Word)), value);
        if (before != nullptr) std::memcpy(static_cast<std::byte*>(before) + i * sizeof old, &old, sizeof old);
    }
}

bool has_instruction(Kind kind, DType dtype) {
    if (kind == Kind::replace || kind == Kind::no_op) return true;
    if (!is_integral(dtype) || dtype == boolean) return false;  // any byte but 0 is true
    return kind == Kind::sum || kind == Kind::band || kind == Kind::bor || kind == Kind::bxor;
}

// Not by a kernel: integers of either sign, as words without one.
template <class Word>
void update_by_instruction(Kind kind, std::byte* elements, const void* values, void* before, std::size_t count) {
    TUTTI_ASSERT(kind != Kind::product && kind != Kind::min && kind != Kind::max);
    switch (kind) {
        case Kind::sum:
            return each<Word>(elements, values, before, count,
                              [](auto element, Word v) { return element.fetch_add(v, memory_order_acq_rel); });
        case Kind::band:
            return each<Word>(elements, values, before, count,
                              [](auto element, Word v) { return element.fetch_and(v, memory_order_acq_rel); });
        case Kind::bor:
            return each<Word>(elements, values, before, count,
                              [](auto element, Word v) { return element.fetch_or(v, memory_order_acq_rel); });
        case Kind::bxor:
            return each<Word>(elements, values, before, count,
                              [](auto element, Word v) { return element.fetch_xor(v, memory_order_acq_rel); });
        case Kind::replace:
            return each<Word>(elements, values, before, count,
                              [](auto element, Word v) { return element.exchange(v, memory_order_acq_rel); });
        case Kind::no_op:
            return each<Word>(elements, nullptr, before, count,
                              [](auto element, Word) { return element.load(memory_order_acquire); });
        case Kind::product:
        case Kind::min:
        case Kind::max: break;
    }
}

template <class T, class Word>
Word sum_of(Word a, Word b) {
    return std::bit_cast<Word>(std::bit_cast<T>(a) + std::bit_cast<T>(b));
}

// A step that replaces an element by what `combine` makes of it and the value.
template <class Combine>
auto by_loop(Combine combine) {
    return [combine]<class Word>(std::atomic_ref<Word> element, Word value) {
        Word old = element.load(memory_order_acquire);
        while (!element.compare_exchange_weak(old, combine(old, value), memory_order_acq_rel, memory_order_acquire)) {
        }
        return old;
    };
}

template <class Word>
void update_words(AccumulateOp op, DType dtype, std::byte* elements, const void* values, void* before,
                  std::size_t count) {
    if (has_instruction(op.kind(), dtype))
        return update_by_instruction<Word>(op.kind(), elements, values, before, count);
    if constexpr (sizeof(Word) == sizeof(float)) {
        if (op.kind() == Kind::sum && dtype == float32)
            return each<Word>(elements, values, before, count, by_loop(sum_of<float, Word>));
    }
    if constexpr (sizeof(Word) == sizeof(double)) {
        if (op.kind() == Kind::sum && dtype == float64)
            return each<Word>(elements, values, before, count, by_loop(sum_of<double, Word>));
    }
    each<Word>(elements, values, before, count, by_loop([kind = op.reduction(), dtype](Word old, Word value) {
                   const void* const both[] = {&old, &value};
                   Word result{};
                   kernels::combine(kind, dtype, &result, both, 1);
                   return result;
               }));
}

template <class Word>
void compare_and_swap_word(std::byte* element, const void* expected, const void* desired, void* before) {
    auto old = value_at<Word>(expected, 0);
    element_at<Word>(element).compare_exchange_strong(old, value_at<Word>(desired, 0), memory_order_acq_rel,
                                                      memory_order_acquire);
    std::memcpy(before, &old, sizeof old);
}

}  // namespace

bool is_supported(AccumulateOp op, DType dtype) noexcept {
    if (op.kind() == Kind::replace || op.kind() == Kind::no_op) return true;
    // Its bytes may have come from another rank.
    return op.is_known() && AccumulateOp(op.reduction()) == op && tutti::is_supported(op.reduction(), dtype);
}

bool has_one_value(DType dtype) noexcept {
    return size_of(dtype) <= sizeof(std::uint64_t);
}

void update(AccumulateOp op, DType dtype, std::byte* elements, const void* values, void* before, std::size_t count) {
    TUTTI_ASSERT(is_supported(op, dtype));
    TUTTI_ASSERT(count == 0 || elements != nullptr);
    TUTTI_ASSERT(count == 0 || values != nullptr || op.kind() == Kind::no_op);
    switch (size_of(dtype)) {
        case 1: return update_words<std::uint8_t>(op, dtype, elements, values, before, count);
        case 2: return update_words<std::uint16_t>(op, dtype, elements, values, before, count);
        case 4: return update_words<std::uint32_t>(op, dtype, elements, values, before, count);
        case 8: return update_words<std::uint64_t>(op, dtype, elements, values, before, count);
        default:
            TUTTI_ASSERT(dtype == complex128);  // which has sums alone, and those go part by part
            return update_words<std::uint64_t>(op, float64, elements, values, before, 2 * count);
    }
}

void compare_and_swap(DType dtype, std::byte* element, const void* expected, const void* desired, void* before) {
    TUTTI_ASSERT(has_one_value(dtype));
    TUTTI_ASSERT(element != nullptr && expected != nullptr && desired != nullptr && before != nullptr);
    switch (size_of(dtype)) {
        case 1: return compare_and_swap_word<std::uint8_t>(element, expected, desired, before);
        case 2: return compare_and_swap_word<std::uint16_t>(element, expected, desired, before);
        case 4: return compare_and_swap_word<std::uint32_t>(element, expected, desired, before);
        default: return compare_and_swap_word<std::uint64_t>(element, expected, desired, before);
    }
}

}  // namespace tutti::window
