// A connection that a forked child inherits stays open after its owner died, and the other end never learns of the
// death. Descriptors noted here are closed in every child that this process forks.
//
// Threads: any. Forget a descriptor before closing it.
#pragma once

namespace tutti::store {

void close_in_children(int fd);
void forget(int fd);
/// How often this process and its ancestors were forked since the first descriptor was noted: differs in a child.
unsigned generation() noexcept;

}  // namespace tutti::store
