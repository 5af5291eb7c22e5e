#include "rendezvous/meeting_sentences.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::rendezvous {

std::string MeetingSentences::failed(int rank, const std::string& why) const {
    return why.empty() ? fmt::format("rank {} cannot come, and has not said why", rank)
                       : fmt::format("rank {} cannot come: {}", rank, why);
}

std::string MeetingSentences::ended(int rank, const MeetingProcess& process) const {
    return fmt::format("rank {} is gone: {} ended before all had come", rank, process.in_words);
}

std::string MeetingSentences::twice(int rank, const MeetingProcess& other, const MeetingProcess& own) const {
    return fmt::format("two say that they are rank {}, {} and {}: expected each rank once", rank, other.in_words,
                       own.in_words);
}

std::string MeetingSentences::was_there(int rank, const std::string& meeting, const MeetingProcess& /*other*/,
                                        const MeetingProcess& /*own*/) const {
    return fmt::format("rank {} has been at the meeting \"{}\" before: expected each rank once", rank, meeting);
}

std::string MeetingSentences::late(const Late& late) const {
    if (late.missing.empty())
        return fmt::format("timed out on rank {}; rank {} has not answered", late.rank, late.first);
    return fmt::format("timed out on rank {}; not there: {}", late.rank, fmt::join(late.missing, ", "));
}

}  // namespace tutti::rendezvous
