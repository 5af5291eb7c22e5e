#include "operation/ranks.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <utility>

namespace tutti::detail {

Ranks::Ranks(std::vector<int> in_world, int own, int world_size)
    : in_world_(std::move(in_world)),
      are_all_(in_world_.empty()),
      own_(own),
      size_(are_all_ ? world_size : static_cast<int>(in_world_.size())),
      rank_(rank_of(own)) {
    TUTTI_ASSERT(rank_ >= 0 && rank_ < size_);
    TUTTI_ASSERT(!are_all_ || size_ == world_size);
}

int Ranks::find(int global) const noexcept {
    const auto found = std::ranges::find(in_world_, global);
    return found == in_world_.end() ? -1 : static_cast<int>(found - in_world_.begin());
}

std::vector<int> Ranks::global(const std::vector<int>& ranks) const {
    std::vector<int> result;
    for (const int rank : ranks) result.push_back(global(rank));
    return result;
}

std::vector<int> Ranks::ranks_of(const std::vector<int>& globals) const {
    std::vector<int> result;
    for (const int global : globals) {
        if (const int rank = rank_of(global); rank >= 0) result.push_back(rank);
    }
    return result;
}

std::vector<int> Ranks::all() const {
    std::vector<int> result = in_world_;
    for (int rank = 0; are_all_ && rank < size_; ++rank) result.push_back(rank);
    return result;
}

}  // namespace tutti::detail
