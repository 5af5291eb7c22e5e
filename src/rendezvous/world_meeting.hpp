// WorldMeeting: how the ranks of a world meet: with sentences of their own, and each thread hears of a failure once,
// also where it comes again as another rank.
//
// Threads: any; free functions.
#pragma once

#include "rendezvous/meeting.hpp"

#include <string>

namespace tutti::rendezvous {

Meeting world_meeting(const MeetingTerms& terms, Meeting::Caller caller);
/// Behind a sentence about a rank that waits in vain: `process` had its number in the world before; empty: nothing.
std::string worlds_before(const std::string& process, int rank);

}  // namespace tutti::rendezvous
