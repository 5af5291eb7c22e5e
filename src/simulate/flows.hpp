// Flows: messages on their way. A link gives each message on it an equal share of its capacity; a message goes at the
// pace of the smallest share that it has, and no faster than one stream.
//
// Threads: one at a time.
#pragma once

#include "simulate/network.hpp"

#include <cstdint>
#include <vector>

namespace tutti::simulate {

class Flows {
 public:
    Flows(const Links& links, double stream_gbps);

    struct Change {
        std::uint32_t flow = 0, version = 0;
        double end_us = 0;  ///< when it will have passed, if nothing changes
    };
    /// Sets out.
    std::uint32_t begin(const Links::Way& way, double bytes, double now);
    /// Takes away a flow that has passed.
    void end(std::uint32_t flow, double now);
    /// To be called at the end of each moment in which flows began or ended: `changes` gets those whose pace changes.
    void settle(double now, std::vector<Change>& changes);
    bool unsettled() const noexcept { return !begun_.empty() || !touched_.empty(); }
    /// Whether the end of this version is the flow's end.
    bool is_current(std::uint32_t flow, std::uint32_t version) const {
        return flows_[flow].version == version && flows_[flow].active;
    }
    /// A link of its own between two hosts, of this share of a stream or card.
    int add_link(double gbps);

    struct Use {
        double bytes = 0, busy_us = 0;
    };
    const std::vector<Use>& uses() const noexcept { return uses_; }

 private:
    struct Flow {
        Links::Way way;
        double left = 0, pace = 0, since = 0;  // bytes, bytes per microsecond
        std::uint32_t version = 0;
        bool active = false;
    };
    void pace(std::uint32_t flow, double now, std::vector<Change>& changes);
    void touch(int link, std::size_t flows);

    std::vector<double> capacity_;  // bytes per microsecond, by link
    double stream_;
    std::vector<std::vector<std::uint32_t>> on_;  // by link
    std::vector<double> busy_since_;
    std::vector<Use> uses_;
    std::vector<Flow> flows_;
    std::vector<std::uint32_t> free_, begun_;  // flows
    std::vector<int> touched_;                 // links whose shares have changed
    std::vector<bool> is_touched_;             // by link
};

}  // namespace tutti::simulate
