// SpawnContext::Ranks: the ranks that spawn() has started on one function, as processes or as threads. Threads: as
// SpawnContext.
#pragma once

#include <tutti/spawn.hpp>

#include <functional>
#include <memory>

namespace tutti {

class SpawnContext::Ranks {
 public:
    using Instant = std::chrono::steady_clock::time_point;
    virtual ~Ranks() = default;
    /// As SpawnContext::join, until `end`.
    virtual bool join(Instant end) = 0;
    virtual std::vector<int> pids() const { return {}; }
};

namespace launch {

using RankFunction = std::function<void(int, std::stop_token)>;
std::unique_ptr<SpawnContext::Ranks> spawn_processes(const RankFunction& fn, int count,
                                                     std::chrono::milliseconds grace_period);
std::unique_ptr<SpawnContext::Ranks> spawn_threads(RankFunction fn, int count);

}  // namespace launch
}  // namespace tutti
