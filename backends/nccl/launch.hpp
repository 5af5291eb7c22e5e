// Launch: collectives of one device that begin together, from the caller's stream to the event that marks their end.
//
// Threads: one at a time.
#pragma once

#include "nccl/context.hpp"
#include "nccl/task.hpp"

#include <tutti/backend.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::nccl {

/// The communicator and streams of the collectives of one kind of device.
struct Channel {
    const Place* place = nullptr;
    std::shared_ptr<Communicator> communicator;
    Agreement agreed;
    std::unique_ptr<OwnStream> stream;
    std::unique_ptr<OwnStream> captured_stream{};  ///< for graphs; made on demand
    Memory scratch{};                              // for the operations in the stream, one after the other
    /// An empty list whose memory the next launch uses.
    std::vector<Task> spare_tasks{};
};

struct Job {
    const BackendRequest* request;
    BackendCompletion completion;
    std::shared_ptr<const BackendRequest> own{};  ///< `request`, where it is not the caller's
    /// Where values are combined: the library's reduction; none: it has none.
    std::optional<NativeReduction> reduction{};
    bool is_captured = false;  ///< into a graph, with its stream
};

class Launch {
 public:
    enum class May { block, not_block };
    enum class State { begun, waits };

    /// `jobs`: at least one, of one device.
    Launch(Context& context, Channel& channel, std::span<const Job> jobs);
    /// Begins its operations. `waits`: the library is at work in the background, and go(May::block) must be called.
    /// An exception has ended nothing.
    State go(May may);

 private:
    void prepare();
    bool is_issued();
    Result issue_cut(Comm comm);
    void finish();
    std::shared_ptr<Event> record_end();
    std::string what() const;

    Context& context_;
    Channel& channel_;
    const Driver& driver_;
    std::span<const Job> jobs_;  // stay where they are during the launch
    std::vector<Task> tasks_;
    std::vector<Memory> kept_;
    bool needs_group_ = false;
    const bool is_captured_;
    const Driver::StreamHandle stream_;
    bool prepared_ = false;
    Result pending_ = Result::success;  // of the last cut
    const char* call_ = "";             // the call of `pending_`
    std::size_t task_ = 0;              // where the next cut begins
    int unit_ = 0;
};

}  // namespace tutti::nccl
