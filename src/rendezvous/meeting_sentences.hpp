// MeetingSentences: the error messages that users get when ranks do not meet; a caller of Meeting can override them.
// They name ranks by their numbers among all ranks of the place (MeetingTerms::members).
//
// Threads: any; it has no state.
#pragma once

#include "rendezvous/meeting_records.hpp"

#include <string>
#include <vector>

namespace tutti::rendezvous {

class MeetingSentences {
 public:
    /// What a rank knows when its timeout expires.
    struct Late {
        int rank = 0, size = 0;
        int first = 0;                 ///< the rank that gathers the cards
        std::vector<int> missing{};    ///< ranks without a card
        std::string process_before{};  ///< the process with this rank in an earlier attempt that met; empty: none known
    };

    virtual ~MeetingSentences() = default;
    /// `why` is empty if the rank has not said why.
    virtual std::string failed(int rank, const std::string& why) const;
    virtual std::string ended(int rank, const MeetingProcess& process) const;
    virtual std::string twice(int rank, const MeetingProcess& other, const MeetingProcess& own) const;
    /// The rank comes again to a meeting to which each rank may come only once.
    virtual std::string was_there(int rank, const std::string& meeting, const MeetingProcess& other,
                                  const MeetingProcess& own) const;
    virtual std::string late(const Late& late) const;
};

}  // namespace tutti::rendezvous
