// UserSchedule: an algorithm that a user wrote as a text of schedules (TUTTI_SCHEDULE), in addition to those of the
// table.
//
// It is proved before it runs. It serves calls of its collective among as many ranks as the text has, if their counts
// are a multiple of the text's. Besides local steps it has either messages, or in-place steps (get, put, signal, wait),
// for ranks of one host. It cannot use the staging area, since a text does not know the size of the area's slots. A
// value; threads: any.
#pragma once

#include "algorithm/request.hpp"
#include "schedule/budget.hpp"
#include "schedule/text.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::algorithm {

class UserSchedule {
 public:
    /// Properties that the prover has found.
    struct Proved {
        bool single_rounding = false;
        bool rank_order = false;
        friend bool operator==(const Proved&, const Proved&) = default;
    };

    /// Reads and proves a text; `where` names it in messages. Throws InvalidArgument with the first fault: it cannot be
    /// parsed (schedule::parse), its proof exceeds the budget, it has the name of one of the table's algorithms, it
    /// uses the staging area or `otherwise`, or it does not do what its collective promises.
    static UserSchedule proved(std::string text, std::string_view where);
    /// Reads a text that another rank has proved.
    UserSchedule(std::string text, Proved proved)
        : UserSchedule(std::move(text), proved, schedule::Budget::unlimited()) {}

    const std::string& name() const { return separate_.ranks.front().algorithm; }
    const std::string& text() const { return text_; }
    const Proved& what_is_proved() const { return proved_; }
    Collective collective() const { return separate_.contract.collective; }
    const schedule::Contract& contract() const { return separate_.contract; }
    int ranks() const { return static_cast<int>(separate_.ranks.size()); }
    /// Whether it is for this collective among this many ranks; serves() also checks the counts.
    bool is_for(Collective collective, int ranks) const {
        return collective == this->collective() && ranks == this->ranks();
    }

    bool serves(const Layout& layout, const Request& request) const { return times(layout, request).has_value(); }
    /// The schedule of request.rank, for a request that serves() accepts; in place it has no Schedule::otherwise.
    schedule::Schedule plan(const Layout& layout, const Request& request) const;

    friend bool operator==(const UserSchedule& a, const UserSchedule& b) { return a.text_ == b.text_; }

 private:
    UserSchedule(std::string text, Proved proved, schedule::Budget budget);
    /// The factor from the text's counts to the request's; nullopt: it does not serve the request.
    std::optional<std::uint64_t> times(const Layout& layout, const Request& request) const;

    std::string text_;
    Proved proved_;
    schedule::Recipe separate_;
    std::vector<schedule::Schedule> in_place_;  // of each rank, for outputs that hold the input
};

}  // namespace tutti::algorithm
