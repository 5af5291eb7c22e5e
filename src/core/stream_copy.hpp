// A copy with non-temporal stores, which leave the caches as they are.
#pragma once

#include <cstddef>

namespace tutti {

/// As memcpy, by non-temporal stores where the processor has them; a store fence at the end orders later writes after
/// them.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace tutti
