// COMM_MULTI_THREAD: the ranks are threads of this process. The first ones wait for the others in a store in its
// memory; when all are there the next ones begin another meeting.
#include "atb/meeting.hpp"
#include "core/fork_guard.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace tutti::atb {
namespace {

struct Gathering {
    HashStore store;
    int size = 0;
    int come = 0;  ///< each rank comes once: Domain::of lets one thread of a rank in
};
using GatheringKey = std::pair<unsigned, std::string>;  // a forked child has none of its parent's threads

std::mutex& mutex() {
    static std::mutex instance;
    return instance;
}
std::map<GatheringKey, std::shared_ptr<Gathering>>& gatherings() {
    static auto& instance = *new std::map<GatheringKey, std::shared_ptr<Gathering>>();  // threads may outlive main()
    return instance;
}

GatheringKey key_of(const AllToAllVV2Param& p) {
    return {fork_guard::generation(), p.commDomain};
}

void forget(const GatheringKey& key, const std::shared_ptr<Gathering>& gathering) {
    const std::lock_guard lock(mutex());
    const auto found = gatherings().find(key);
    if (found != gatherings().end() && found->second == gathering) gatherings().erase(found);
}

std::shared_ptr<Gathering> come(const AllToAllVV2Param& p, const GatheringKey& key) {
    const std::lock_guard lock(mutex());
    std::shared_ptr<Gathering>& gathering = gatherings()[key];
    if (!gathering) {
        gathering = std::make_shared<Gathering>();
        gathering->size = p.rankSize;
    }
    if (gathering->size != p.rankSize) {
        throw Error(ERROR_INVALID_PARAM,
                    fmt::format("AllToAllVV2Param: rankSize is {} in this thread and {} in another: "
                                "expected one for all of domain \"{}\"",
                                p.rankSize, gathering->size, p.commDomain));
    }
    const auto mine = gathering;
    if (++mine->come == mine->size) gatherings().erase(key);
    return mine;
}

}  // namespace

ProcessGroup meet_among_threads(const AllToAllVV2Param& p) {
    const GatheringKey key = key_of(p);
    const auto gathering = come(p, key);
    try {
        return join(p, gathering->store);
    } catch (const DistError&) {
        forget(key, gathering);
        throw;
    }
}

void tell_threads(const AllToAllVV2Param& p, const std::exception& error) {
    std::shared_ptr<Gathering> gathering;
    {
        const std::lock_guard lock(mutex());
        const auto found = gatherings().find(key_of(p));
        if (found == gatherings().end()) return;
        gathering = found->second;
        gatherings().erase(found);
    }
    say_failed(gathering->store, p, error);
}

}  // namespace tutti::atb
