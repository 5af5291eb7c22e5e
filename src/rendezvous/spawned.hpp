// Spawned: the rank, the size and the meeting file of a rank that spawn() has started, for programs that join a world
// without giving them.
//
// Threads: any. A process forked from a spawned process is not a spawned one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::rendezvous {

struct Spawned {
    int rank = 0;
    int size = 1;
    std::string file{};  ///< where the ranks meet; no other spawn uses it
    bool is_thread = false;
};

/// Marks this process as a rank of a spawn. Its current environment is its parent's: if the parent is a rank of a job,
/// read_job_environment() ignores the variables that the program does not change.
void be_spawned(Spawned spawned);
/// This thread is a rank of a spawn as long as the object lives.
class SpawnedThread {
 public:
    SpawnedThread(int rank, int size);
    ~SpawnedThread();
    SpawnedThread(const SpawnedThread&) = delete;
    SpawnedThread& operator=(const SpawnedThread&) = delete;
};
std::optional<Spawned> spawned();
/// Whether a variable with this value describes the parent's job, not this process's.
bool is_of_parents_job(std::string_view variable, std::string_view value);

}  // namespace tutti::rendezvous
