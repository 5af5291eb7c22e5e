// Exchange: messages between a rank and its neighbours that belong to one call, in phases. All messages of a phase are
// under way together; a phase begins when the one before it is complete, so it may send what that one has received.
//
// It keeps the memory of its messages, and serves any number of runs, one at a time. A short message between ranks of a
// host goes without an Operation. A strided tensor is packed before it is sent; one that receives is written piece by
// piece as its bytes arrive.
//
// Threads: run() and start() from one at a time; the phases of start() continue on the threads that complete messages.
#pragma once

#include "api/call.hpp"
#include "tensor/piecewise_writer.hpp"
#include "transport/transfer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::api {

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
    /// `name`: a literal; `timeout` zero: of each phase's group, at each run. `outputs`: the result of the Work.
    Exchange(const char* name, milliseconds timeout, TensorList outputs);
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    ~Exchange();

    // ---- Before the first run

    /// The functions below add to this phase, which is the last one so far.
    void add_phase(std::shared_ptr<Group> group);
    /// What both sides of a message agree on; `peer` is a global rank, another than this one.
    struct Match {
        int peer;
        std::uint64_t channel, fingerprint;
    };
    void send(const ConstTensorView& tensor, const Match& match);
    void receive(const TensorView& tensor, const Match& match);
    /// A copy inside this rank; the tensors do not overlap.
    void copy(const TensorView& to, const ConstTensorView& from);

    // ---- Runs

    const char* name() const noexcept { return name_; }
    /// Whether no run is under way.
    bool idle() const noexcept { return whole_ == nullptr || whole_->done(); }
    /// Throws the first error of its messages, after all have ended.
    void run();
    Work start();

 private:
    class Message {
     public:
        Message(Exchange& exchange, Group& group, const TensorView& tensor, const Match& match, bool receives);
        Message(const Message&) = delete;
        Message& operator=(const Message&) = delete;
        /// Whether a receive is posted before the phase's sends: one that no short message can fill.
        bool is_posted_first() const noexcept;
        void pack();
        /// A short message at once. False: it has done nothing.
        bool run_at_once();
        void issue(bool asynchronous);
        /// The operation of this run, which has begun; null: the message has not needed one.
        Operation* operation() const noexcept { return is_issued_ ? operation_.get() : nullptr; }
        void forget() noexcept { is_issued_ = false; }
        bool has_channel_of(const Match& match) const noexcept {
            return transfer_.peer == match.peer && transfer_.channel == match.channel;
        }

     private:
        PreparedOperation next_operation();

        Exchange& exchange_;
        Group& group_;
        TensorView tensor_;
        bool receives_;
        transport::Transfer transfer_;
        std::optional<PiecewiseWriter> writer_;
        std::unique_ptr<std::byte[]> packed_;
        PreparedOperation operation_;  // of this run or an earlier one
        bool is_issued_ = false;
    };
    struct Phase {
        std::shared_ptr<Group> group;
        std::deque<Message> sends{}, receives{};  // their addresses stay
        std::vector<std::pair<TensorView, ConstTensorView>> copies{};
        bool in_order = false;  // several receives have one source and channel: they are posted in their order
    };

    /// Begins the messages of a phase, and calls `issued` for each that has become an operation. An exception leaves
    /// those that have begun under way.
    template <class F>
    void begin(Phase& phase, bool asynchronous, F&& issued);
    void run(Phase& phase);
    void continue_from(std::size_t phase);
    void note(const std::exception_ptr& error);

    const char* const name_;
    const milliseconds timeout_;
    const TensorList outputs_;
    std::deque<Phase> phases_;
    // Of start():
    PreparedOperation whole_;           // what the caller waits for
    std::shared_ptr<Exchange> itself_;  // while messages are under way
    std::atomic<std::size_t> left_{0};  // messages of the current phase, and the thread that issues them
    std::mutex mutex_;
    std::exception_ptr first_error_;  // under the mutex
};

}  // namespace tutti::api
