#include "record/replays.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace tutti::record {
namespace {

/// Of a graph that is gone; its groups' dumps show it.
struct Gone {
    std::vector<const Recorder*> groups;
    ReplayedGraph graph;
};
struct Replays {
    std::mutex mutex;
    std::vector<const ReplayRecord*> all;
    std::vector<Gone> gone;  // at most dump_graphs_max
};
Replays& replay_register() {
    static Replays* const instance = new Replays;  // records may outlive static objects
    return *instance;
}

bool is_one_of(const std::vector<const Recorder*>& groups, const Recorder& group) {
    return groups.empty() || std::ranges::find(groups, &group) != groups.end();
}

std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> ids{0};
    return ++ids;
}

}  // namespace

ReplayTimes::ReplayTimes(std::size_t nodes)
    : nodes_(std::min(nodes, replayed_nodes_max)),
      count_(std::clamp<std::size_t>(times_max / std::max<std::size_t>(nodes_, 1), 2, replays_of_graph_max)),
      slots_(std::make_unique<Slot[]>(count_)),
      at_(std::make_unique<std::atomic<std::uint64_t>[]>(count_ * nodes_)) {
    TUTTI_ASSERT(nodes_ <= replayed_nodes_max && count_ >= 2 && count_ <= replays_of_graph_max);
}

// A reader that finds the same number before and after has read what belongs to it (a sequence lock).
void ReplayTimes::begin(std::uint64_t number) noexcept {
    TUTTI_ASSERT(number > 0);
    slot_ = &slots_[number % count_];
    slot_->number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    slot_->ended.store(0, std::memory_order_relaxed);
    slot_->begun.store(0, std::memory_order_relaxed);
    slot_->number.store(number, std::memory_order_release);
}

void ReplayTimes::next() noexcept {
    TUTTI_ASSERT(slot_ != nullptr);
    const std::size_t node = slot_->begun.load(std::memory_order_relaxed);
    if (node >= nodes_) return;
    at_[static_cast<std::size_t>(slot_ - slots_.get()) * nodes_ + node].store(ticks(), std::memory_order_relaxed);
    slot_->begun.store(node + 1, std::memory_order_release);
}

void ReplayTimes::end() noexcept {
    TUTTI_ASSERT(slot_ != nullptr);
    slot_->ended.store(ticks(), std::memory_order_release);
}

std::vector<Replay> ReplayTimes::read(const TickScale& scale) const {
    std::vector<Replay> replays;
    for (std::size_t i = 0; i < count_; ++i) {
        const Slot& slot = slots_[i];
        Replay replay{.number = slot.number.load(std::memory_order_acquire)};
        if (replay.number == 0) continue;
        replay.ended_ns = scale.unix_ns(slot.ended.load(std::memory_order_acquire));
        const std::size_t begun = slot.begun.load(std::memory_order_acquire);
        TUTTI_ASSERT(begun <= nodes_);
        for (std::size_t node = 0; node < begun; ++node)
            replay.began_ns.push_back(scale.unix_ns(at_[i * nodes_ + node].load(std::memory_order_relaxed)));
        std::atomic_thread_fence(std::memory_order_acquire);
        if (slot.number.load(std::memory_order_relaxed) == replay.number) replays.push_back(std::move(replay));
    }
    std::ranges::sort(replays, {}, &Replay::number);
    return replays;
}

ReplayRecord::ReplayRecord(std::vector<std::string> nodes, std::vector<const Recorder*> groups)
    : id_(next_id()), nodes_(std::move(nodes)), groups_(std::move(groups)), times_(nodes_.size()) {
    begin_ticks();
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    r.all.push_back(this);
}

ReplayRecord::~ReplayRecord() {
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    std::erase(r.all, this);
    if (number_.load(std::memory_order_relaxed) == 0 || groups_.empty()) return;
    if (r.gone.size() >= dump_graphs_max) r.gone.erase(r.gone.begin());
    r.gone.push_back({groups_, replayed(TickScale())});
    TUTTI_ASSERT(r.gone.size() <= dump_graphs_max);
}

ReplayedGraph ReplayRecord::replayed(const TickScale& scale) const {
    const std::size_t count = std::min(nodes_.size(), replayed_nodes_max);
    return {.id = id_,
            .nodes = {nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(count)},
            .replays = times_.read(scale)};
}

std::string ReplayRecord::text() const {
    const std::size_t node = node_.load(std::memory_order_relaxed);
    if (node >= nodes_.size()) return {};
    return fmt::format("graph replay #{} at node {} of {}: {}", number_.load(std::memory_order_relaxed), node + 1,
                       nodes_.size(), nodes_[node]);
}

bool ReplayRecord::concerns(const Recorder& group) const {
    return is_one_of(groups_, group);
}

std::vector<std::string> replays_under_way(const Recorder& group) {
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    std::vector<std::string> texts;
    for (const ReplayRecord* record : r.all) {
        if (!record->concerns(group)) continue;
        if (std::string text = record->text(); !text.empty()) texts.push_back(std::move(text));
    }
    return texts;
}

std::vector<ReplayedGraph> replayed_graphs(const Recorder& group, const TickScale& scale) {
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    std::vector<ReplayedGraph> graphs;
    for (const Gone& gone : r.gone) {
        if (is_one_of(gone.groups, group)) graphs.push_back(gone.graph);
    }
    for (const ReplayRecord* record : r.all) {
        if (!record->concerns(group)) continue;
        if (ReplayedGraph graph = record->replayed(scale); !graph.replays.empty()) graphs.push_back(std::move(graph));
    }
    if (graphs.size() > dump_graphs_max)
        graphs.erase(graphs.begin(), graphs.end() - static_cast<std::ptrdiff_t>(dump_graphs_max));
    TUTTI_ASSERT(graphs.size() <= dump_graphs_max);
    return graphs;
}

void forget_replays(const Recorder& group) noexcept {
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    std::erase_if(r.gone, [&](Gone& gone) { return std::erase(gone.groups, &group) > 0 && gone.groups.empty(); });
}

}  // namespace tutti::record
