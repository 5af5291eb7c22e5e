// Scenarios: the library's protocols between ranks of one host, by the library's own code, in a size that can be
// explored to the end.
#pragma once

#include "explorer.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::memory_model {

/// Two ranks; the second changes a word twice and rings, the first sleeps until it has seen that. `left_to_sleeper`:
/// who rings makes no fence.
Scenario sleeping(bool left_to_sleeper);
/// The same once, while the third of all ranks says that it relies on the sleeper's fences, too.
Scenario sleeping_while_fences_are_given_up();
/// A stream's bytes, more than its ring holds.
Scenario bytes_in_ring();
/// A message, bytes, and the stream's end.
Scenario end_of_stream();
/// Short messages with and without a payload of their own in the ring, between bytes.
Scenario messages_in_ring();
/// More messages than there are slots.
Scenario messages_all_round();
/// A rank takes back a message that another may be reading where it lies. `waits_for_readers`: as for those that run.
Scenario withdrawing(bool waits_for_readers);
/// Publications on the staging area, more of them than slots.
Scenario staging(std::size_t ranks);
/// Two ranks for a schedule in place: one writes a word of the other's, which reads one of its.
Scenario in_place();
/// Two ranks for a schedule in place: each waits for a signal of the other, and takes what was written before it.
Scenario signals();
/// A rank meets another one for a schedule in place, gives the operation up, and uses the buffer otherwise.
/// `is_written`: the other writes there, else it reads.
Scenario revoking(bool is_written);
/// So many calls of a short collective, with `words` in a block (of an all_to_all one to three), by the engine's slots,
/// of which there are two. The root is rank 0.
Scenario in_slots(Collective collective, std::size_t ranks, std::uint64_t calls, std::size_t words);
/// What a rank notes of its collectives, read while it is written anew.
Scenario records();

}  // namespace tutti::memory_model
