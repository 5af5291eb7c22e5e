// Copying past the caches.
#pragma once

#include <cstddef>

namespace tutti {

/// As memcpy, by stores around the caches where the processor has them; later writes come after these.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace tutti
