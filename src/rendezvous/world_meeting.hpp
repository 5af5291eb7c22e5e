// WorldMeeting: a Meeting for the ranks of a world. It has error messages of its own, and tells each thread of a
// failure only once, even if the thread comes again as another rank.
//
// Threads: any; free functions.
#pragma once

#include "rendezvous/meeting.hpp"

#include <string>

namespace tutti::rendezvous {

Meeting world_meeting(const MeetingTerms& terms, Meeting::Caller caller);
/// Appended to the message of a rank that waited in vain: `process` was rank `rank` in an earlier world. Empty: "".
std::string worlds_before(const std::string& process, int rank);

}  // namespace tutti::rendezvous
