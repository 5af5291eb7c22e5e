#include "launch/memory_kills.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace tutti::launch {
namespace {

std::optional<std::uint64_t> count_in(const std::filesystem::path& file) {
    TUTTI_ASSERT(!file.empty());
    std::ifstream in(file);
    std::string name;
    std::uint64_t value = 0;
    while (in >> name >> value) {
        if (name == "oom_kill") return value;
    }
    return std::nullopt;
}

bool lists(std::string_view controllers, std::string_view wanted) {
    return fmt::format(",{},", controllers).find(fmt::format(",{},", wanted)) != std::string::npos;
}

}  // namespace

// A container may see its own group at the root of the tree, though /proc/self/cgroup has its name on the host.
MemoryKills::MemoryKills(const std::filesystem::path& root) {
    const std::filesystem::path tree = root / "sys/fs/cgroup";
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // NUMBER:CONTROLLERS:/PATH
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
        if (controllers.empty()) {
            for (const auto& place : {tree / group, tree}) add(place / "memory.events", false);
        } else if (lists(controllers, "memory")) {
            for (const auto& place : {tree / "memory" / group, tree / "memory"})
                add(place / "memory.oom_control", false);
        }
    }
    add(root / "proc/vmstat", true);
}

void MemoryKills::add(const std::filesystem::path& file, bool on_host) {
    const bool is_known = std::ranges::any_of(counters_, [&](const Counter& c) { return c.on_host == on_host; });
    const auto now = count_in(file);
    if (now && !is_known) counters_.push_back({file, *now, on_host});
    TUTTI_ASSERT(counters_.size() <= 2);
}

MemoryKills::Found MemoryKills::since() const {
    for (const Counter& counter : counters_) {
        const std::uint64_t now = count_in(counter.file).value_or(0);
        if (now > counter.before) return {now - counter.before, counter.file, counter.on_host};
    }
    return {};
}

std::string in_words(const MemoryKills::Found& found) {
    if (found.count == 0) return {};
    TUTTI_ASSERT(!found.in.empty());
    return fmt::format("the kernel's out-of-memory killer has ended {} process{} of {} meanwhile (oom_kill in {})",
                       found.count, found.count == 1 ? "" : "es", found.on_host ? "this host" : "this control group",
                       found.in.string());
}

}  // namespace tutti::launch
