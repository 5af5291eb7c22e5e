#include "launch.hpp"

#include "background.hpp"
#include "faults.hpp"
#include "process_mutex.hpp"
#include "streams.hpp"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace tutti::nccl_library {
namespace {

// A batch that is under way: begin() when its communicator's turn has come, then finish(). Of a graph that runs it
// takes no turn: turns are taken at the calls.
class Run {
 public:
    explicit Run(Batch batch, std::optional<std::uint64_t> turn = {}) : batch_(std::move(batch)), turn_(turn) {}
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    ~Run() { end(); }

    const std::shared_ptr<Communicator>& communicator() const noexcept { return batch_.communicator; }
    const std::vector<Operation>& operations() const noexcept { return batch_.operations; }

    void begin() noexcept {
        try {
            await_turn();
            for (const Operation& operation : batch_.operations) {
                if (!suffers(operation)) started_.push_back(start(operation, *communicator()));
                if (hanging_ != nullptr) return;
            }
        } catch (...) {
            note(as_failure(std::current_exception()));
        }
    }

    /// In place of both, for a launch that has nothing else.
    void carry_out_alone(bool until_abort) noexcept {
        const Operation& operation = batch_.operations.front();
        try {
            await_turn();
            if (!suffers(operation)) carry_out(operation, *communicator());
        } catch (...) {
            note_of(operation, as_failure(std::current_exception()));
        }
        finish(until_abort);
    }

    /// Waits for all; passes the turn. `until_abort`: an operation that a fault holds holds its stream, too, whether or
    /// not the communicator has its error already.
    void finish(bool until_abort) noexcept {
        for (std::size_t i = 0; i < started_.size(); ++i) {
            try {
                started_[i].wait();
            } catch (...) {
                note_of(batch_.operations[i], as_failure(std::current_exception()));
            }
        }
        try {
            if (hanging_ != nullptr && (until_abort || !failure_)) communicator()->hang(hanging_);
        } catch (...) {
            note(as_failure(std::current_exception()));
        }
        end();
    }

    /// It will not be begun.
    void cancel(const Failure& failure) noexcept {
        note(failure);
        end();
    }

    const std::optional<Failure>& failure() const noexcept { return failure_; }

    void wait_for_end() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ended_; });
    }

 private:
    // Whether a fault holds it. The communicator gets its error now; the operation ends with the communicator.
    bool suffers(const Operation& operation) {
        const Fault* fault = communicator()->next_fault();
        if (fault == nullptr) return false;
        hanging_ = name_of(operation.call);
        if (fault->kind == Fault::Kind::error) {
            note({fault->code,
                  text("TUTTI_NCCL_FAULTS gives ", communicator()->describe(), " the asynchronous error ",
                       ncclGetErrorString(fault->code), " in ", hanging_, ", after ", fault->after, " operations")});
        }
        return true;
    }
    void await_turn() { turn_ ? communicator()->await_turn(*turn_) : communicator()->check_group(); }
    // What tutti says knows nothing of NCCL's names.
    void note_of(const Operation& operation, const Failure& failure) noexcept {
        const std::string known = communicator()->sentence();
        if (failure.sentence() == known) return note(failure);
        note({failure.code(),
              text(name_of(operation.call), ": ", communicator()->describe(), ": ", failure.sentence())});
    }
    void note(const Failure& failure) noexcept {
        if (failure_) return;
        failure_ = failure;
        communicator()->become_failed(failure);
    }
    void end() noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (ended_) return;
            ended_ = true;
            changed_.notify_all();
        }
        if (turn_) communicator()->pass_turn(*turn_);
    }

    Batch batch_;
    std::optional<std::uint64_t> turn_;
    std::vector<Started> started_;
    std::optional<Failure> failure_;
    const char* hanging_ = nullptr;  // the operation that a fault holds
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
};

using Runs = std::vector<std::shared_ptr<Run>>;

// All at once, so that two threads that launch on the same communicators do so in one order on all of them.
Runs take_turns(std::vector<Batch> batches) {
    static auto* const mutex = new ProcessMutex;
    const std::lock_guard lock(*mutex);
    Runs runs;
    for (Batch& batch : batches) {
        const std::uint64_t turn = batch.communicator->take_turn();
        runs.push_back(std::make_shared<Run>(std::move(batch), turn));
    }
    return runs;
}

void carry_out(const Runs& runs, bool until_abort) noexcept {
    if (runs.size() == 1 && runs.front()->operations().size() == 1) return runs.front()->carry_out_alone(until_abort);
    for (const auto& run : runs) run->begin();
    for (const auto& run : runs) run->finish(until_abort);
}

// ---- In streams -----------------------------------------------------------------------------------------------------

std::vector<ncclStream_t> streams_of(const Run& run) {
    std::vector<ncclStream_t> streams;
    for (const Operation& operation : run.operations()) {
        const bool known = std::ranges::find(streams, operation.stream) != streams.end();
        if (is_ordered(operation.stream) && !known) streams.push_back(operation.stream);
    }
    return streams;
}

// How many of a launch's streams its operations must still wait for.
class Arrivals {
 public:
    void expect() {
        const std::lock_guard lock(mutex_);
        ++missing_;
    }
    void arrive() {
        const std::lock_guard lock(mutex_);
        --missing_;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return missing_ == 0; });
    }

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int missing_ = 0;
};

// The runs whose first stream is this one, and the other streams of these, which wait for their end.
void launch_in_stream(ncclStream_t stream, const Runs& runs) {
    const auto arrivals = std::make_shared<Arrivals>();
    try {
        for (const auto& run : runs) {
            for (const ncclStream_t other : streams_of(*run)) {
                if (other == stream) continue;
                arrivals->expect();
                run_in_stream(other, [arrivals, run] {
                    arrivals->arrive();
                    run->wait_for_end();
                });
            }
        }
        run_in_stream(stream, [arrivals, runs] {
            arrivals->wait();
            carry_out(runs, true);
        });
    } catch (...) {
        const Failure failure = as_failure(std::current_exception());
        for (const auto& run : runs) run->cancel(failure);
        throw;
    }
}

// ---- In graphs ------------------------------------------------------------------------------------------------------

bool is_for_graph(const Batch& batch) {
    return std::ranges::any_of(batch.operations, [](const Operation& one) { return is_captured(one.stream); });
}

ncclStream_t only_stream_of(const Batch& batch) {
    const ncclStream_t first = batch.operations.front().stream;
    for (const Operation& operation : batch.operations) {
        if (operation.stream != first) {
            fail(ncclInvalidUsage, "a group has operations in the streams ", first, " and ", operation.stream,
                 ", of which one is being captured into a graph: expected one stream");
        }
    }
    return first;
}

// Until the process ends: nobody says when the last graph is gone that runs it.
void keep(std::shared_ptr<const std::function<void()>> work) {
    static auto* const mutex = new ProcessMutex;
    static auto* const all = new std::vector<std::shared_ptr<const std::function<void()>>>;
    const std::lock_guard lock(*mutex);
    all->push_back(std::move(work));
}

// Batches of one captured stream. A communicator that has been freed has no part in its graphs any more.
void capture(ncclStream_t stream, const std::vector<Batch>& batches) {
    struct Captured {
        std::weak_ptr<Communicator> communicator;
        std::vector<Operation> operations;
    };
    std::vector<Captured> captured;
    for (const Batch& batch : batches) captured.push_back({batch.communicator, batch.operations});
    const auto work = std::make_shared<const std::function<void()>>([captured = std::move(captured)] {
        Runs runs;
        for (const Captured& one : captured) {
            if (auto communicator = one.communicator.lock())
                runs.push_back(std::make_shared<Run>(Batch{std::move(communicator), one.operations}));
        }
        carry_out(runs, true);
    });
    keep(work);
    run_in_graph(stream, *work);
}

void capture(std::vector<Batch> batches) {
    std::map<ncclStream_t, std::vector<Batch>> by_stream;
    for (Batch& batch : batches) by_stream[only_stream_of(batch)].push_back(std::move(batch));
    for (const auto& [stream, of_stream] : by_stream) capture(stream, of_stream);
}

}  // namespace

ncclResult_t launch(std::vector<Batch> batches) {
    const auto captured = std::ranges::stable_partition(batches, [](const Batch& one) { return !is_for_graph(one); });
    if (!captured.empty()) {
        capture({std::make_move_iterator(captured.begin()), std::make_move_iterator(captured.end())});
        batches.erase(captured.begin(), captured.end());
    }
    std::vector<std::pair<ncclStream_t, Runs>> of_streams;
    Runs at_once, in_background;
    for (const auto& run : take_turns(std::move(batches))) {
        const std::vector<ncclStream_t> streams = streams_of(*run);
        if (streams.empty()) {
            (run->communicator()->settings().blocking ? at_once : in_background).push_back(run);
            continue;
        }
        const auto same = [&](const auto& one) { return one.first == streams.front(); };
        auto found = std::ranges::find_if(of_streams, same);
        if (found == of_streams.end()) found = of_streams.insert(found, {streams.front(), {}});
        found->second.push_back(run);
    }
    for (const auto& [stream, runs] : of_streams) launch_in_stream(stream, runs);
    if (!in_background.empty()) {
        std::vector<std::shared_ptr<Communicator>> communicators;
        for (const auto& run : in_background) communicators.push_back(run->communicator());
        run_in_background(std::move(communicators), [in_background] { carry_out(in_background, false); });
    }
    carry_out(at_once, false);
    for (const auto& run : at_once) {
        if (run->failure()) throw Failure(*run->failure());
    }
    return in_background.empty() ? ncclSuccess : ncclInProgress;
}

}  // namespace tutti::nccl_library
