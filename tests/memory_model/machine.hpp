// What the hooks tell the explorer: the operations of the code that is checked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti::memory_model {

/// Whether an access belongs to the scenario that is running.
bool is_shared(const volatile void* at) noexcept;
/// Whether memcpy there stands for what the kernel copies.
bool is_by_kernel(const volatile void* at) noexcept;

std::uint64_t load(const volatile void* at, std::size_t bytes, std::memory_order order);
void store(volatile void* at, std::size_t bytes, std::uint64_t value, std::memory_order order);
/// Returns the value that was there. `change` says what is stored, or that nothing is (false).
std::uint64_t modify(volatile void* at, std::size_t bytes, std::memory_order order,
                     const std::function<bool(std::uint64_t& value)>& change);
/// `from`: the instruction that asks for it.
void fence(std::memory_order order, const void* from);
void access(const volatile void* at, std::size_t bytes, bool writes);

/// Whether a scenario is running, so that system calls are the model's.
bool exploring() noexcept;
/// futex(2): whether the thread has slept.
bool futex_wait(const volatile void* at, std::uint32_t expected);
void futex_wake(const volatile void* at);
/// membarrier(2): every thread makes a fence, wherever it is.
void fence_for_all();
/// The thread has nothing to do until the place that it loaded last has another value.
void wait_for_last_load();

}  // namespace tutti::memory_model
