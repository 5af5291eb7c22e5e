// Values that their owner may publish in place or copy, whichever took less lately.
//
// The owner times what it copies or writes itself, and the readers leave in their control blocks how long their last
// reading took. One owner and its readers work at the same time, so the slower one counts. Where everyone is an owner,
// each does both, one after the other.
#include "engine/execution.hpp"

#include <algorithm>

namespace tutti::engine {

using schedule::Buffer;

void Execution::choose_way() {
    const bool everyone = schedule_->either_way_owner == schedule::everyone;
    const auto can_name = [&](Buffer buffer) {
        const auto index = static_cast<std::size_t>(buffer);
        return schedule_->published_end[index] == 0 || addresses_[index] != nullptr;
    };
    const bool owns =
        everyone || ground_.local_of[static_cast<std::size_t>(schedule_->either_way_owner)] == ground_.local_rank;
    chooses_ = owns && ground_.copy_choices != nullptr && can_name(Buffer::input) && can_name(Buffer::output);
    if (!chooses_) return;
    auto& choice = everyone ? ground_.copy_choices->of_everyone : ground_.copy_choices->of_one;
    way_ = choice.next(schedule_->either_way * element_bytes_);
}

void Execution::tell_way() {
    const bool everyone = schedule_->either_way_owner == schedule::everyone;
    const auto bytes = static_cast<double>(schedule_->either_way * element_bytes_);
    const auto told = [&](int rank, std::size_t way) -> std::atomic<float>& {
        auto& control = ground_.arena->control(rank);
        return everyone ? control.reading_ns_of_everyone[way] : control.reading_ns_of_one[way];
    };
    for (std::size_t way = 0; way < reading_.size(); ++way) {
        const Reading& reading = reading_[way];
        if (reading.bytes == 0) continue;
        told(ground_.local_rank, way).store(static_cast<float>(reading.ns / (everyone ? reading.bytes : bytes)));
    }
    if (!chooses_) return;
    double reading_ns = 0;
    for (int r = 0; r < ground_.arena->layout().ranks; ++r) {
        if (r != ground_.local_rank)
            reading_ns = std::max(reading_ns, static_cast<double>(told(r, static_cast<std::size_t>(way_)).load()));
    }
    if (everyone && reading_ns == 0) return;  // nobody has told yet
    const double ns = everyone ? own_ns_ + reading_ns * bytes : std::max(own_ns_, reading_ns * bytes);
    auto& choice = everyone ? ground_.copy_choices->of_everyone : ground_.copy_choices->of_one;
    choice.took(way_, schedule_->either_way * element_bytes_, ns);
}

}  // namespace tutti::engine
