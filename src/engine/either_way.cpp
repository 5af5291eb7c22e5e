// Values that their owner may publish in place or copy, whichever took less lately.
//
// Of one owner and its readers, who work at the same time, the slower one counts: the owner times what it copies or
// writes itself, and the readers leave in their control blocks how long their last reading took. Where everyone is an
// owner, each does both, one after the other, and waits for the others: a way is quick only if all take it. So the
// first rank of the host chooses for all, by what it takes itself, from when it has met another rank; the others follow
// with the next operation at the latest.
#include "engine/execution.hpp"

#include <algorithm>

namespace tutti::engine {

using schedule::Buffer;
using transport::CopyChoice;
using transport::CopyChoices;
using Way = CopyChoice::Way;

static_assert(CopyChoices::kinds > collective_count);

CopyChoice& Execution::copy_choice() const {
    return ground_.copy_choices->by_kind[static_cast<std::size_t>(schedule_->either_way_of)];
}

std::atomic<Way>& Execution::way_of_everyone() const {
    return ground_.arena->control(0).way_of_everyone[static_cast<std::size_t>(schedule_->either_way_of)]
                                                    [CopyChoice::size_class(either_way_bytes())];
}

void Execution::choose_way() {
    if (ground_.copy_choices == nullptr) return;
    leads_ = everyone_owns()
                 ? ground_.local_rank == 0
                 : ground_.local_of[static_cast<std::size_t>(schedule_->either_way_owner)] == ground_.local_rank;
    chooses_ = everyone_owns() || leads_;
    if (leads_) way_ = copy_choice().next(either_way_bytes());
    if (!everyone_owns()) return;
    if (leads_)
        way_of_everyone().store(way_, std::memory_order_relaxed);
    else
        way_ = way_of_everyone().load(std::memory_order_relaxed);
}

/// What cannot be named is staged, by all.
void Execution::see_whether_named() {
    const auto named = [&](Buffer buffer) {
        const auto index = static_cast<std::size_t>(buffer);
        return schedule_->published_end[index] == 0 || addresses_[index] != nullptr;
    };
    chooses_ = named(Buffer::input) && named(Buffer::output);
    if (!chooses_ && leads_ && everyone_owns()) way_of_everyone().store(Way::staging, std::memory_order_relaxed);
}

void Execution::tell_way() {
    const auto bytes = static_cast<double>(either_way_bytes());
    const auto way = static_cast<std::size_t>(way_);
    if (everyone_owns()) {
        // Where another rank has not followed yet, it took neither way.
        if (chooses_ && leads_ && reading_[way].bytes > 0 && reading_[1 - way].bytes == 0) {
            const std::chrono::duration<double, std::nano> since = Clock::now() - met_;
            copy_choice().took(way_, either_way_bytes(), own_ns_ + since.count());
        }
        return;
    }
    const auto told = [&](int rank, std::size_t by_way) -> std::atomic<float>& {
        return ground_.arena->control(rank).reading_ns[by_way];
    };
    for (std::size_t by_way = 0; by_way < reading_.size(); ++by_way) {
        const Reading& reading = reading_[by_way];
        if (reading.bytes > 0) told(ground_.local_rank, by_way).store(static_cast<float>(reading.ns / bytes));
    }
    if (!chooses_) return;
    double reading_ns = 0;
    for (int r = 0; r < ground_.arena->layout().ranks; ++r) {
        if (r != ground_.local_rank) reading_ns = std::max(reading_ns, static_cast<double>(told(r, way).load()));
    }
    copy_choice().took(way_, either_way_bytes(), std::max(own_ns_, reading_ns * bytes));
}

}  // namespace tutti::engine
