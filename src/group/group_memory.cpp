#include "group/group_memory.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace tutti::detail {
namespace {

// A part has no rings: messages go by the world's.
transport::ArenaLayout part_layout(int ranks, int group_size) {
    TUTTI_ASSERT(ranks >= 1 && ranks <= group_size);
    auto layout = transport::ArenaLayout::of(ranks, group_size);
    layout.ring_bytes = 0;
    return layout;
}

}  // namespace

GroupMemory::GroupMemory(const Ranks& ranks, const std::vector<int>& host_of, std::uint64_t offset,
                         const backend::Devices& backends, transport::Neighbours& neighbours, BiasedMutex& lock)
    : lock_(lock),
      is_part_(!ranks.are_all() && ranks.size() > 1),
      serves_bytes_beside_backends_(!backends.empty() && !backends.contains(Device::Type::cpu)),
      locals_(static_cast<std::size_t>(ranks.size()), -1),
      symmetric_(ranks.are_all() ? &neighbours.symmetric() : &own_symmetric_) {
    TUTTI_ASSERT(host_of.size() == static_cast<std::size_t>(ranks.size()));
    const int host = host_of[static_cast<std::size_t>(ranks.rank())];
    std::vector<int> doors;  // arena ranks in the world's
    for (int rank = 0; rank < ranks.size(); ++rank) {
        if (host_of[static_cast<std::size_t>(rank)] != host) continue;
        locals_[static_cast<std::size_t>(rank)] = static_cast<int>(ranks_here_.size());
        ranks_here_.push_back(rank);
        globals_here_.push_back(ranks.global(rank));
        doors.push_back(neighbours.local_of(ranks.global(rank)));
    }
    own_local_ = locals_[static_cast<std::size_t>(ranks.rank())];
    TUTTI_ASSERT(own_local_ >= 0 && !ranks_here_.empty() && globals_here_.size() == ranks_here_.size());
    const auto of_host = backends.find(Device::Type::cpu);
    const bool by_others = of_host != backends.end() && of_host->second != backend::native;
    if (by_others && (ranks.size() > 1 || !backend::is_transport(of_host->second))) return;
    if (ranks.are_all()) {
        arena_ = neighbours.arena();
    } else if (ranks.size() == 1) {  // alone: the staging area is this rank's own
        arena_ = transport::Arena::create_private(part_layout(1, 1));
    } else if (neighbours.arena() && doors.size() > 1) {
        const transport::ArenaLayout layout = part_layout(static_cast<int>(doors.size()), ranks.size());
        arena_ = transport::Arena::part(neighbours.arena(), offset, layout, std::move(doors));
    }
}

std::uint64_t GroupMemory::part_bytes(const std::vector<int>& host_of, std::span<const int> members) {
    TUTTI_ASSERT(!host_of.empty() && !members.empty());
    std::vector<int> on_host(static_cast<std::size_t>(std::ranges::max(host_of)) + 1);
    int most = 0;
    for (const int rank : members)
        most = std::max(most, ++on_host[static_cast<std::size_t>(host_of[static_cast<std::size_t>(rank)])]);
    TUTTI_ASSERT(most >= 1 && static_cast<std::size_t>(most) <= members.size());
    constexpr std::uint64_t unit = transport::Arena::part_alignment;
    return (part_layout(most, static_cast<int>(members.size())).total_bytes() + unit - 1) / unit * unit;
}

void GroupMemory::leave() noexcept {
    if (arena_ && is_part_ && !std::exchange(left_, true)) arena_->leave_part(own_local_);
}

bool GroupMemory::is_left_by(int rank) const noexcept {
    TUTTI_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < locals_.size());
    if (!is_part_ || !is_shared_with(rank)) return false;
    return arena_->control(locals_[static_cast<std::size_t>(rank)]).left.load(std::memory_order_acquire) != 0;
}

std::shared_ptr<transport::SymmetricSegment> GroupMemory::make_symmetric(std::size_t bytes, const PassOn& pass_on) {
    TUTTI_ASSERT(has_symmetric());
    using transport::SymmetricSegment;
    const std::uint64_t number = [&] {
        const std::lock_guard lock(lock_);
        return ++segments_;
    }();
    const int ranks = static_cast<int>(ranks_here_.size());
    UniqueFd fd;
    if (own_local_ == 0) fd = SymmetricSegment::create(ranks, bytes);
    pass_on(number, globals_here_, {&fd, 1});
    return std::make_shared<SymmetricSegment>(fd, number, ranks, own_local_, bytes);
}

void GroupMemory::add_symmetric(std::shared_ptr<transport::SymmetricSegment> segment) {
    TUTTI_ASSERT(segment != nullptr);
    const std::lock_guard lock(lock_);
    symmetric_->add(std::move(segment));
    if (is_of_all()) uses_symmetric_ = true;  // between hosts everything is staged
}

}  // namespace tutti::detail
