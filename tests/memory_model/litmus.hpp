// Small programs whose outcomes under weak memory are known: does the explorer find them all, and no others?
#pragma once

#include <atomic>
#include <set>
#include <vector>

namespace tutti::memory_model {

/// What the loads of a program gave, in all its executions.
using Outcomes = std::set<std::vector<int>>;

/// x = 1; r0 = y  ||  y = 1; r1 = x. With a seq_cst fence in between on both sides, on one, or on none.
Outcomes store_buffering(bool first_fences, bool second_fences);
/// x = 1; y = 1  ||  r0 = y; r1 = x, with these orders for y.
Outcomes message_passing(std::memory_order store, std::memory_order load);
/// The same by fences: release before the store of y, acquire after its load.
Outcomes message_passing_by_fences();
/// x = 1  ||  y = 1  ||  r0 = x; r1 = y  ||  r2 = y; r3 = x, all acquire and release; with seq_cst fences between
/// loads.
Outcomes independent_reads(bool fences);
/// x = 1; x = 2  ||  r0 = x; r1 = x, all relaxed.
Outcomes coherence();
/// x = 1; y += 1 (release)  ||  y += 1 (relaxed)  ||  r0 = y (acquire); r1 = x: a change goes on with a release.
Outcomes release_sequence();

}  // namespace tutti::memory_model
