// The flight recorder: the last operations of this process's groups, in the form of PyTorch's own.
//
// PyTorch's recorder for CPU backends is a template whose one instance libtorch_cpu does not export; only its dump
// functions are. So this file keeps the operations, and python/tutti/torch/flight.py adds them to the results of those
// functions.
//
// It records if TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE), the number of operations to keep, is set when
// the first group is made. Otherwise an operation pays for one test of a flag.
// Threads: any.
#pragma once

#include "tensors.hpp"

#include <torch/csrc/profiler/combined_traceback.h>

#include <c10/util/ApproximateClock.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::torch {

class Recorder {
 public:
    using GroupName = std::pair<std::string, std::string>;  ///< and its description

    /// For an all_to_all: the elements that go to, and come from, each rank.
    struct Splits {
        std::vector<std::int64_t> input;
        std::vector<std::int64_t> output;
    };
    /// The facts of one operation.
    struct Facts {
        std::size_t group = 0;
        GroupName group_name;
        std::uint64_t sequence = 0;          ///< of the group's collectives
        std::uint64_t message_sequence = 0;  ///< of its messages
        bool is_message = false;
        int rank = 0;   ///< this one's, in the group
        int peer = -1;  ///< of a message; -1: any, or none
        Splits splits;
        std::string title;  ///< "all_reduce"
        std::chrono::milliseconds timeout{0};
    };
    enum class End { well, failed };
    struct Shape {
        c10::ScalarType dtype;
        std::vector<std::int64_t> sizes;
    };
    struct Entry : Facts {
        std::uint64_t id = 0;
        std::uint64_t number = 0;  ///< counts the messages that go the same way between the same two ranks
        std::uint64_t thread_id = 0;
        std::string thread_name;
        std::int64_t created_ns = 0;
        std::int64_t completed_ns = 0;  ///< zero: not, or not well
        bool over = false;
        std::vector<Shape> inputs;
        std::vector<Shape> outputs;
        std::shared_ptr<::torch::CapturedTraceback> traceback;
    };
    struct Group {
        std::string ranks;  ///< "[0, 1]", of the default group
        GroupName name;
        std::int64_t last_enqueued = -1;
        std::int64_t last_completed = -1;
    };

    /// Whether the recorder records; constant for the life of the process.
    static bool is_on() noexcept { return on_; }
    /// Reads the environment, the first time.
    static void prepare();
    static Recorder& get();

    /// A number for a new group.
    std::size_t add_group();
    void name_group(std::size_t number, const GroupName& name, const std::vector<std::uint64_t>& ranks);
    std::uint64_t begin(const Facts& facts, const Tensors& inputs, const std::vector<Tensors>& outputs);
    /// `source`: the sender, for a receive from any rank.
    void end(std::uint64_t id, End how, int source = -1);

    std::vector<Entry> entries();
    std::map<std::size_t, Group> groups();

 private:
    explicit Recorder(std::size_t capacity) : capacity_(capacity) {}

    static inline std::atomic<bool> on_{false};
    const std::size_t capacity_;
    std::mutex mutex_;
    std::deque<Entry> entries_;
    std::uint64_t next_id_ = 0;
    std::map<std::size_t, Group> groups_;
    struct Way {
        std::size_t group = 0;
        int peer = 0;
        bool sends = false;
        auto operator<=>(const Way&) const = default;
    };
    std::map<Way, std::uint64_t> messages_;
    void number(Entry& entry);
};

}  // namespace tutti::torch
