// Agreement: the ranks of a call tell each other, before anything moves, whether each may make it, and whether both
// sides of each pair mean the same block. So an error that one rank alone can know is raised on all of them, in the
// same call, and their group stays as it is.
//
// Both ranks of a pair hash their block; the sender's hash is added, the receiver's subtracted. If the sum over all
// ranks is zero they agree (or chance wills it, once in 2^64 times), which costs one all_reduce of 16 bytes. Only
// otherwise do they tell each other everything.
//
// Threads: as collectives of the group.
#pragma once

#include "atb/inputs.hpp"

#include <tutti/atb.hpp>

namespace tutti::atb {

/// Throws on every rank: Error, for a rank that was refused; CollectiveMismatch that names a pair.
void agree(const ProcessGroup& group, DType dtype, const AllToAllVOptions& blocks);
/// The same for a rank that cannot make the call: the others' calls throw an Error with its code and sentence. Waits
/// until they call.
void tell_refused(const ProcessGroup& group, const Error& error) noexcept;

}  // namespace tutti::atb
