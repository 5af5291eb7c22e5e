#include "schedule/dependencies.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::schedule {

IntervalMap<Dependencies::Use>& Dependencies::uses_of(const Chunk& chunk) {
    if (row(chunk.buffer) >= uses_.size()) uses_.resize(row(chunk.buffer) + 1);
    return uses_[row(chunk.buffer)];
}

void Dependencies::begin() {
    ++step_;
    waits_.clear();
    read_now_.clear();
    written_now_.clear();
}

void Dependencies::waits_for(std::int64_t step) {
    TUTTI_ASSERT(step >= -1 && step < step_);
    if (step >= 0) waits_.push_back(static_cast<std::uint32_t>(step));
}

void Dependencies::waits_for_all(std::int64_t first) {
    TUTTI_ASSERT(first >= 0 && first <= step_);
    for (std::int64_t i = first; i < step_; ++i) waits_for(i);
    touched_ += static_cast<std::uint64_t>(std::max<std::int64_t>(step_ - first, 0));
}

void Dependencies::reads(const Chunk& chunk) {
    TUTTI_ASSERT(step_ >= 0);
    TUTTI_ASSERT(chunk.offset + chunk.count >= chunk.offset);
    if (chunk.count == 0) return;
    read_now_.push_back(chunk);
    uses_of(chunk).update(chunk.offset, chunk.offset + chunk.count, {}, [&](const Use& use) {
        ++touched_;
        waits_for(use.writer);
    });
}

void Dependencies::writes(const Chunk& chunk) {
    TUTTI_ASSERT(step_ >= 0);
    TUTTI_ASSERT(chunk.offset + chunk.count >= chunk.offset);
    if (chunk.count == 0) return;
    written_now_.push_back(chunk);
    uses_of(chunk).update(chunk.offset, chunk.offset + chunk.count, {}, [&](const Use& use) {
        touched_ += 1 + use.readers.size();
        waits_for(use.writer);
        for (const std::uint32_t reader : use.readers) waits_for(reader);
    });
}

std::span<const std::uint32_t> Dependencies::end() {
    TUTTI_ASSERT(step_ >= 0);
    const auto step = static_cast<std::uint32_t>(step_);
    for (const Chunk& chunk : read_now_) {
        uses_of(chunk).update(chunk.offset, chunk.offset + chunk.count, {},
                              [&](Use& use) { use.readers.push_back(step); });
    }
    for (const Chunk& chunk : written_now_) uses_of(chunk).set(chunk.offset, chunk.offset + chunk.count, {step_, {}});
    std::ranges::sort(waits_);
    waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
    TUTTI_ASSERT(waits_.empty() || waits_.back() < step);
    return waits_;
}

}  // namespace tutti::schedule
