// Symmetric memory of a group: the lowest rank of a host makes it and passes its descriptor to the others.
#include "group/group.hpp"

#include <fmt/format.h>

#include <utility>

namespace tutti::detail {

bool Group::has_symmetric_memory() const noexcept {
    return arena_ != nullptr && rank_of_local_.size() > 1;
}

std::shared_ptr<transport::SymmetricSegment> Group::make_symmetric(std::size_t bytes, const Deadline& deadline) {
    using transport::SymmetricSegment;
    const std::uint64_t id = [&] {
        const std::lock_guard lock(world_->flight().mutex());
        return ++symmetric_segments_;
    }();
    const int ranks = static_cast<int>(rank_of_local_.size());
    UniqueFd fd;
    if (context_.local_rank == 0) fd = SymmetricSegment::create(ranks, bytes);
    const std::vector<int> here = ranks_.global(rank_of_local_);
    world_->pass_on_host(fmt::format("symmetric-{}-{}", index_, id), here, {&fd, 1}, deadline);
    return std::make_shared<SymmetricSegment>(fd, id, ranks, context_.local_rank, bytes);
}

void Group::add_symmetric(std::shared_ptr<transport::SymmetricSegment> segment) {
    const std::lock_guard lock(world_->flight().mutex());
    symmetric_->add(std::move(segment));
    if (uses_shared_memory_only()) uses_symmetric_ = true;  // between hosts everything is staged
}

}  // namespace tutti::detail
