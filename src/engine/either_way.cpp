// Values that their owner may publish in place or copy, whichever took less lately.
//
// Both sides work at the same time, so the slower one counts: the owner times what it copies or writes itself, and the
// readers leave in their control blocks how long their last reading took.
#include "engine/execution.hpp"

#include <algorithm>

namespace tutti::engine {

void Execution::choose_way() {
    const bool named = addresses_[static_cast<std::size_t>(schedule::Buffer::output)] != nullptr;
    const int owner = ground_.local_of[static_cast<std::size_t>(schedule_->either_way_owner)];
    chooses_ = named && ground_.copy_choice != nullptr && owner == ground_.local_rank;
    if (chooses_) way_ = ground_.copy_choice->next(schedule_->either_way * element_bytes_);
}

void Execution::tell_way() {
    if (!way_) return;
    const std::size_t bytes = schedule_->either_way * element_bytes_;
    const auto way = static_cast<std::size_t>(*way_);
    double ns = way_ns_ / static_cast<double>(bytes);
    if (!chooses_) {
        ground_.arena->control(ground_.local_rank).reading_ns[way].store(static_cast<float>(ns));
        return;
    }
    for (int r = 0; r < ground_.arena->layout().ranks; ++r) {
        if (r != ground_.local_rank)
            ns = std::max(ns, static_cast<double>(ground_.arena->control(r).reading_ns[way].load()));
    }
    ground_.copy_choice->took(*way_, bytes, ns * static_cast<double>(bytes));
}

}  // namespace tutti::engine
