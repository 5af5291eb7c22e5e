// Spawned: what a rank that spawn() has started knows of its world, where the program says nothing: its number, how
// many there are, and a file in which they meet.
//
// Threads: any. A fork of a spawned process is none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::rendezvous {

struct Spawned {
    int rank = 0;
    int size = 1;
    std::string file{};  ///< of the spawn alone
    bool is_thread = false;
};

/// This process is a rank of a spawn, from now on. The environment that it has now is its parent's: where that is
/// itself a rank of a job, read_job_environment() leaves out what the program does not change.
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
/// Whether a variable with this value is a fact about the job of this process's parent.
bool is_of_parents_job(std::string_view variable, std::string_view value);

}  // namespace tutti::rendezvous
