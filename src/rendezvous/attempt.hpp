// Attempt: one of the worlds that meet under one name in a store, one after the other. Only the store tells them apart:
// a process may come with other ranks than before, in another number, again after a failure, or for the first time
// where others have met often. No process counts; the protocol is that of Meeting (meeting.hpp).
//
// Threads: one.
#pragma once

#include <tutti/meeting.hpp>
#include <tutti/store.hpp>

#include <cstdint>
#include <exception>
#include <string>

namespace tutti::rendezvous {

class Attempt {
 public:
    enum class Worlds {
        one,  ///< nobody else ever meets in the store: a second rank of one number is a mistake
        many
    };
    Attempt(Store store, std::string name, Worlds worlds);

    /// For the meeting of its ranks, which tells the others of this rank's failures from now on.
    MeetingTerms begin(int rank, int world_size);
    /// The ranks have met.
    void end(const Met& met);
    /// For all keys of this attempt's world; where there may be many, once its ranks have met.
    Store store() const;
    /// Before it has begun: tells the ranks that wait for this one, or will, that it cannot join. Best effort, within a
    /// second.
    void say_failed(int rank, int world_size, const std::exception& error) noexcept;

 private:
    MeetingTerms terms(int rank, int world_size) const;

    const Store whole_;
    const std::string name_;
    const Worlds worlds_;
    std::uint64_t number_ = 0;
    bool has_begun_ = false;
};

}  // namespace tutti::rendezvous
