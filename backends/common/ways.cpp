#include "common/ways.hpp"

namespace tutti::backends {
namespace {

std::array<std::atomic<std::uint64_t>, 3> counts{};

}  // namespace

void count(Way way) noexcept {
    counts[static_cast<std::size_t>(way)].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tutti::backends

void tutti_backend_ways(std::uint64_t (*result)[3]) {
    for (std::size_t i = 0; i < 3; ++i) (*result)[i] = tutti::backends::counts[i].load(std::memory_order_relaxed);
}
