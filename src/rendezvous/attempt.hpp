// Attempt: one of the worlds that meet under one name in a store, one after the other. Only the store tells them apart:
// a process may join with other ranks than before, with another number of ranks, again after a failure, or as a
// newcomer after many earlier worlds. So no process counts the worlds. The protocol is that of Meeting (meeting.hpp).
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
        one,  ///< only this world ever meets in the store: a second process with the same rank is an error
        many
    };
    Attempt(Store store, std::string name, Worlds worlds);

    /// Returns the terms of this world's meeting. From now on the meeting reports this rank's failures to the others.
    MeetingTerms begin(int rank, int world_size);
    /// Call it once the ranks have met.
    void end(const Met& met);
    /// The store for all keys of this attempt's world. With Worlds::many: only after end().
    Store store() const;
    /// Before begin() only: tells the ranks that wait for this one, now or later, that it cannot join. Best effort,
    /// within a second.
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
