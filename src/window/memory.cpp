#include "window/memory.hpp"

#include "api/symmetric.hpp"
#include "group/group_memory.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

namespace tutti::window {
namespace {

// Throws InvalidArgument for a shape that is none.
std::vector<std::int64_t> counts_of(DType dtype, const std::vector<Extents>& shapes) {
    std::vector<std::int64_t> counts;
    for (const Extents& shape : shapes) counts.push_back(ConstTensorView(&shape, shape, dtype).element_count());
    return counts;
}

}  // namespace

Memory::Memory(Group& group, DType dtype, std::vector<Extents> shapes, int signals, const Deadline& deadline)
    : group_(group),
      dtype_(dtype),
      shapes_(std::move(shapes)),
      counts_(counts_of(dtype_, shapes_)),
      signals_(signals),
      head_bytes_((static_cast<std::size_t>(signals + 1) * signal_bytes + page - 1) / page * page),
      parts_(static_cast<std::size_t>(group.size())) {
    TUTTI_ASSERT(shapes_.size() == static_cast<std::size_t>(group.size()));
    const detail::GroupMemory& memory = group.memory();
    std::size_t bytes = head_bytes_ + byte_count(group.rank());
    if (memory.has_symmetric()) {
        for (const int rank : memory.ranks_here()) bytes = std::max(bytes, head_bytes_ + byte_count(rank));
    }
    const auto most = static_cast<std::uint64_t>(std::ranges::max(counts_));
    own_ = api::symmetric_bytes(group.shared_from_this(), bytes, dtype_, most, deadline);
    auto* const own = static_cast<std::byte*>(own_.raw_data());
    parts_[static_cast<std::size_t>(group.rank())] = own;
    if (memory.symmetric() == nullptr) return;
    const std::lock_guard lock(group.world().flight().mutex());
    const transport::Place place = memory.symmetric()->find(own, bytes);
    for (const int rank : memory.ranks_here()) {
        auto*& part = parts_[static_cast<std::size_t>(rank)];
        part = memory.symmetric()->address(place, memory.locals()[static_cast<std::size_t>(rank)], bytes);
        if (part == nullptr) throw InternalError("Window: the memory of a rank of this host is not mapped");
    }
}

bool Memory::is_mapped_by_all() const noexcept {
    return std::ranges::none_of(parts_, [](const std::byte* part) { return part == nullptr; });
}

Tensor Memory::tensor(int rank) const {
    return {TensorView(elements(rank), shape(rank), dtype_), std::make_shared<Tensor>(own_)};
}

bool Memory::raise(int rank, int signal, std::uint64_t value) const noexcept {
    std::atomic<std::uint64_t>& word = this->word(rank, signal);
    std::uint64_t before = word.load(std::memory_order_relaxed);
    bool fits = true;
    do {
        fits = value <= std::numeric_limits<std::uint64_t>::max() - before;
    } while (fits &&
             !word.compare_exchange_weak(before, before + value, std::memory_order_release, std::memory_order_relaxed));
    if (!fits) overflow_word(rank, signal).store(1, std::memory_order_release);
    const detail::GroupMemory& memory = group_.memory();
    if (memory.is_shared_with(rank)) memory.arena()->ring_doorbell(memory.locals()[static_cast<std::size_t>(rank)]);
    return fits;
}

void Memory::check_overflow(const char* name, int signal) const {
    const int rank = group_.rank();
    if (overflow_word(rank, signal).load(std::memory_order_acquire) == 0) return;
    throw InvalidArgument(
        fmt::format("{}: signal {} of rank {} is {}, and a rank tried to raise it beyond 2^64 - 1, in the {}", name,
                    signal, rank, value_of(rank, signal), title()),
        {.operation = name, .group = group_.name(), .rank = group_.ranks().own_global()});
}

std::string Memory::title() const {
    return fmt::format("window of {} {} with {} signals in group \"{}\" ({} ranks)", to_string(dtype_),
                       shape(group_.rank()).to_string(), signals_, group_.name(), group_.size());
}

}  // namespace tutti::window
