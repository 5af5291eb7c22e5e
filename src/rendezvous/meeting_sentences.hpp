// MeetingSentences: what meet() says to users when ranks do not come together. A caller of Meeting with words of its
// own overrides them. Ranks are named by their numbers among all.
//
// Threads: any; it has no state.
#pragma once

#include "rendezvous/meeting_records.hpp"

#include <string>
#include <vector>

namespace tutti::rendezvous {

class MeetingSentences {
 public:
    /// What a rank knows when its time is over.
    struct Late {
        int rank = 0, size = 0;
        int first = 0;                 ///< the rank that gathers the cards
        std::vector<int> missing{};    ///< those without a card
        std::string process_before{};  ///< which had this rank in an attempt that has met; empty: none that is known
    };

    virtual ~MeetingSentences() = default;
    /// `why` may be empty: it has not said it.
    virtual std::string failed(int rank, const std::string& why) const;
    virtual std::string ended(int rank, const MeetingProcess& process) const;
    virtual std::string twice(int rank, const MeetingProcess& other, const MeetingProcess& own) const;
    /// It comes to a meeting that has taken place, and to which each rank comes once.
    virtual std::string was_there(int rank, const std::string& meeting, const MeetingProcess& other,
                                  const MeetingProcess& own) const;
    virtual std::string late(const Late& late) const;
};

}  // namespace tutti::rendezvous
