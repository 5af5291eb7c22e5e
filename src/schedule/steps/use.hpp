// The line "use" of a text: a collective among some of the text's ranks, which becomes ordinary steps of each of them
// (schedule/part.hpp).
//
//     use COLLECTIVE ALGORITHM RANKS [root RANK] [TARGET] [SOURCE] [finish] [counts N...]
//
// Threads: one at a time.
#pragma once

#include "schedule/part.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/steps/line.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::schedule {

/// All "use" lines of a text.
class Uses {
 public:
    /// `parts`: null: the text may have no such line.
    explicit Uses(const PartMaker* parts) : parts_(parts) {}

    /// Reads the words behind "use", and adds the steps to the rank's schedule.
    void read(Line& line, Reading& reading);
    /// Checks that the k-th "use" lines for a list of ranks match on all of these ranks.
    void check() const;

 private:
    struct Use {
        Line line;  // for messages
        std::vector<Rank> ranks;
        std::size_t alternative = 0;
        Part part;
        std::string algorithm;
        bool finishes = false;
        bool meets(const Use& other) const;
    };
    using Lines = std::vector<const Use*>;
    static void check(const Lines& uses, const Lines& others, Rank other);
    void put(Line& line, Reading& reading, const Use& use, const Chunk& target, const Chunk& source);

    const PartMaker* parts_;
    std::vector<Use> all_;
    std::size_t steps_ = 0;
};

}  // namespace tutti::schedule
