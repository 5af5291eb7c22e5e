#include "record/replays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace tutti::record {
namespace {

struct Replays {
    std::mutex mutex;
    std::vector<const ReplayRecord*> all;
};
Replays& replay_register() {
    static Replays* const instance = new Replays;  // records may outlive static objects
    return *instance;
}

}  // namespace

ReplayRecord::ReplayRecord(std::vector<std::string> nodes, std::vector<const Recorder*> groups)
    : nodes_(std::move(nodes)), groups_(std::move(groups)) {
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    r.all.push_back(this);
}

ReplayRecord::~ReplayRecord() {
    Replays& r = replay_register();
    const std::lock_guard lock(r.mutex);
    std::erase(r.all, this);
}

std::string ReplayRecord::text() const {
    const std::size_t node = node_.load(std::memory_order_relaxed);
    if (node >= nodes_.size()) return {};
    return fmt::format("graph replay #{} at node {} of {}: {}", number_.load(std::memory_order_relaxed), node + 1,
                       nodes_.size(), nodes_[node]);
}

bool ReplayRecord::concerns(const Recorder& group) const {
    return groups_.empty() || std::ranges::find(groups_, &group) != groups_.end();
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

}  // namespace tutti::record
