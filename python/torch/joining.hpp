// How the ranks of a torch group find each other in its store: they meet (tutti/meeting.hpp) under "tutti/MEMBERS",
// then join a world below the number of that meeting.
//
// A store outlives groups, and names of groups come again: groups of different members may be made in one place at
// once, and the same members may come again after a failure. Threads: any.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <tutti/process_group.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::torch {

struct Joining {
    int rank = 0;
    int size = 1;
    std::vector<std::uint64_t> members{};  ///< ranks among all, by rank; other than `size`: unknown
    std::string name{};                    ///< of the group; empty: the group of all ranks
    Milliseconds limit{0};
};

/// Returns what `make` makes in the store that it gets, once all ranks have come. Throws what went wrong, on all ranks
/// that wait. A rank that comes when the others have given up waits for them to come again.
ProcessGroup join(const c10::intrusive_ptr<c10d::Store>& store, const Joining& joining,
                  const std::function<ProcessGroup(const Store&)>& make);
/// For a rank that cannot even try: tells the ranks that wait for it. Takes a moment at most.
void say_cannot_join(const c10::intrusive_ptr<c10d::Store>& store, Joining joining, const std::string& why) noexcept;

}  // namespace tutti::torch
