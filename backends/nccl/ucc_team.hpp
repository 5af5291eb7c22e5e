// UccTeam: a UCC team with a context of its own, and its operations under way.
//
// Threads: any; calls that start collectives, one at a time. UCC itself is called under the team's lock. The first
// collective of CUDA memory starts a thread that drives all of these.
#pragma once

#include "nccl/library.hpp"
#include "nccl/ucc_api.hpp"

#include <tutti/store.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {

class OwnStream;
class UccOob;

/// The library's functions, once for the process.
void resolve_ucc(Symbols& symbols);
int ucc_version();  ///< 10800 is 1.8.0; 0: it has no ucc_get_version
const char* ucc_status_text(ucc::Status status);

class UccTeam {
 public:
    /// Blocks until all ranks have come, or `given_up` is set. `store`: for this team alone.
    static ucc::Status make(UccTeam*& team, const Store& store, int rank, int ranks, const std::atomic<bool>& given_up);
    /// Frees it. UCC cannot cancel collectives: a team that has some under way stays as it is, without further calls.
    static ucc::Status end(UccTeam* team);

    int rank() const noexcept { return rank_; }
    std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(ranks_); }
    std::uint64_t index() const noexcept { return static_cast<std::uint64_t>(rank_); }
    ucc::Status error() noexcept;  ///< of a collective in a stream

    /// Runs a collective of memory that lies like `memory`. On the host it waits for the end, unless this thread has a
    /// group.
    ucc::Status start(ucc::CollArgs& args, const void* memory, void* stream);
    /// Copies on the host at once, otherwise in the stream.
    void copy(void* to, const void* from, std::size_t bytes, void* stream) const;

    /// A group of this thread's calls; groups may nest.
    static void begin_group();
    static ucc::Status end_group();

    UccTeam(const UccTeam&) = delete;
    UccTeam& operator=(const UccTeam&) = delete;

 private:
    struct Grouped;
    UccTeam(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
    ~UccTeam();

    static std::vector<Grouped>& group();
    ucc::Status connect(const Store& store, const std::atomic<bool>& given_up);
    ucc::Status post(ucc::CollArgs& args, ucc::Request*& request);
    ucc::Status finish(ucc::Request* request);
    ucc::Status trigger(ucc::CollArgs& args, void* stream);
    ucc::Status trigger_aside(ucc::CollArgs& args, void* stream);
    ucc::Status engine_of(void* stream, ucc::ExecutionEngine& engine);
    void drive();
    void look();
    bool stop() noexcept;

    const int rank_, ranks_;
    std::unique_ptr<UccOob> for_context_, for_team_;
    std::mutex mutex_;
    ucc::Context context_ = nullptr;
    ucc::Team team_ = nullptr;
    std::atomic<bool> over_{false};
    ucc::Status error_ = ucc::ok;
    int waiting_ = 0;  // calls of host memory that are not over

    // For CUDA memory.
    std::map<void*, ucc::ExecutionEngine> engines_;
    std::map<std::pair<std::uint64_t, std::int64_t>, std::unique_ptr<OwnStream>> streams_;  // of pairs within groups
    std::vector<ucc::Request*> under_way_;
    std::condition_variable changed_;
    std::thread driver_;
};

}  // namespace tutti::nccl
