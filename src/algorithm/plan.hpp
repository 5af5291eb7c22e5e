// plan(): from a request to one rank's schedule. A pure function.
//
// A table chooses the algorithm for a request (select.hpp), unless the request names one.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/schedule.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::algorithm {

/// The schedule of `request.rank`. Every rank of the group gets matching schedules from matching requests.
schedule::Schedule plan(const Layout& layout, const Request& request);

/// plan() for many ranks of one call: what does not depend on the rank is found once. Not for several threads; a thread
/// has its own.
class Plans {
 public:
    /// `request.rank` does not count; the blocks of an exchange are even (Request::even). The layout outlives this.
    Plans(const Layout& layout, Request request);
    ~Plans();
    Plans(const Plans&) = delete;
    Plans& operator=(const Plans&) = delete;
    std::string_view algorithm() const noexcept;
    schedule::Schedule of(Rank rank);

 private:
    struct State;
    std::unique_ptr<State> state_;
};

struct Choice {
    std::string algorithm;
    std::string reason;  ///< one sentence, with the numbers that decided
};
/// The algorithm that plan() uses. Equal on all ranks, since it depends on nothing that differs between ranks.
/// all_to_all: largest_count alone decides, because a rank knows only its own counts.
Choice choose(const Layout& layout, const Request& request);

/// The predicted time of one algorithm.
struct Estimate {
    std::string algorithm;
    std::optional<double> us;  ///< microseconds; empty: it has no formula
};
/// The estimates of all algorithms that can serve this request, in the order of the table.
std::vector<Estimate> estimates(const Layout& layout, const Request& request, const CostModel& costs);

/// Names of the algorithms that can serve this request, best first.
std::vector<std::string> applicable(const Layout& layout, const Request& request);

}  // namespace tutti::algorithm
