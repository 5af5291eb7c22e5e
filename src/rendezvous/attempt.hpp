// Attempt: one of the worlds that meet under one name in a store, one after the other. Only the store tells them apart:
// a process may join with other ranks than before, with another number of ranks, again after a failure, or as a
// newcomer after many earlier worlds. So processes count no worlds, but take the number from the store, by the protocol
// of Meeting (meeting.hpp).
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

    /// Returns the arguments of Meeting for this world. From now on Meeting, not say_failed(), tells the other ranks
    /// when this rank fails.
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
