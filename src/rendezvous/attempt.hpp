// Attempt: one of the worlds that meet under one name in a store, one after the other. Only the store tells them apart:
// a process may come with other ranks than before, in another number, again after a failure, or for the first time
// where others have met often. No process counts.
//
// The key "newest" holds the number of the attempt that ranks join now, and each attempt has keys of its own below its
// number. An attempt is over once its table stands (table.hpp), with a world in it or with a failure. A rank that finds
// it over, because a rank of its number has been there or because the world has no place for it, opens the next.
//
// Threads: one.
#pragma once

#include <tutti/store.hpp>

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

    /// For all keys of this attempt's world.
    const Store& store();
    /// Where its ranks meet in that store: cards and the table.
    Store meeting();
    bool may_have_next() const noexcept { return worlds_ == Worlds::many; }
    /// This attempt is over: from now on this is a newer one.
    void next();
    /// This rank has said in the meeting that it is there. Its failure is this attempt's from now on.
    void note_entered() noexcept { entered_ = true; }
    /// Tells the ranks that wait for this one, or will, that it cannot join: in the attempt that it has entered, or in
    /// the one that it would enter now. Best effort, within a second.
    void say_failed(int rank, int world_size, const std::exception& error) noexcept;

 private:
    void be(const std::string& number);

    Store whole_, place_, store_;
    std::string name_, number_;
    Worlds worlds_;
    bool entered_ = false;
};

}  // namespace tutti::rendezvous
