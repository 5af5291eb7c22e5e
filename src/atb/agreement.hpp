// Agreement: before anything moves, the ranks of a call tell each other whether each may make it, and whether both
// sides of each pair mean the same block. So an error that only one rank can detect is thrown on all of them, in the
// same call, and their group stays usable.
//
// Both ranks of a pair hash their block; the sender adds its hash, the receiver subtracts its own. A sum of zero over
// all ranks means that they agree (by chance if not, once in 2^64 times); this costs one all_reduce of 16 bytes.
// Otherwise the ranks exchange all their counts.
//
// Threads: as collectives of the group.
#pragma once

#include "atb/inputs.hpp"

#include <tutti/atb.hpp>

namespace tutti::atb {

/// All ranks call it. Throws on every rank: Error if a rank was refused; CollectiveMismatch that names a pair.
void agree(const ProcessGroup& group, DType dtype, const AllToAllVOptions& blocks);
/// For a rank that cannot make the call, instead of agree(): the others' calls throw an Error with `error`'s code and
/// message. Waits until they call.
void tell_refused(const ProcessGroup& group, const Error& error) noexcept;

}  // namespace tutti::atb
