// Reducer: the buckets of a model, and the iteration that is under way.
//
//     idle -- forward --> open -- finish --> idle        (forward again, as long as nothing was ready)
//
// In an open iteration each gradient goes from `awaited` to `ready` or `unused`; a bucket is sent when none of its
// gradients is awaited and all earlier buckets are sent. All ranks send buckets in the same order, independent of the
// order of ready(). If sending a bucket fails, finish() throws the error, not ready(): only finish() knows whether a
// gradient is missing on this rank, which it would report as the cause. The error ends the reducer, as buffers may
// still be in flight.
//
// Threads: one at a time.
#pragma once

#include "ddp/buckets.hpp"
#include "ddp/report.hpp"
#include "ddp/usage.hpp"

#include <tutti/ddp.hpp>
#include <tutti/work.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::detail {

class Reducer {
 public:
    Reducer(std::vector<NamedParameter> parameters, DistributedDataParallelOptions options);
    /// Buckets in flight keep their memory until their operations are complete.
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    void forward();
    void prepare_for_backward(const std::vector<std::size_t>& unused);
    /// `elsewhere`: the gradient's place in this iteration, or null for the usual one.
    void ready(std::size_t parameter, const TensorView* elsewhere);
    void finish();

    void register_comm_hook(ProcessGroup state, CommHook hook);
    TensorView gradient(std::size_t parameter) const;
    ddp::Buckets buckets() const;
    const ProcessGroup& group() const noexcept { return options_.group; }
    const std::shared_ptr<int>& no_sync_scopes() const noexcept { return no_sync_scopes_; }
    /// Both throw InvalidArgument if there is no such parameter.
    std::size_t checked_index(const char* method, std::size_t parameter) const;
    std::size_t index_of(const char* method, std::string_view name) const;

 private:
    enum class Phase { idle, open };
    enum class Gradient : std::uint8_t { awaited, ready, unused };
    struct Place {
        std::size_t bucket = 0, position = 0;
    };
    struct Bucket {
        std::vector<std::size_t> members;
        GradBucket shown;
        bool on_device = false;  // no buffer then: gradients are averaged in place
        std::size_t awaited = 0;
        std::optional<Work> work;  // in flight; or, with a hook:
        std::optional<CommHookResult> hooked;
        std::optional<Future<Clock::time_point>> arrival;  // if times are measured
    };

    // Beginning of an iteration.
    void check_may_begin();
    void adopt_order_of_first_rank();
    void make_buckets(const ddp::Buckets& buckets);
    std::vector<std::size_t> bucket_bytes() const;

    // Gradients.
    TensorView in_bucket(std::size_t parameter) const;
    void fill(std::size_t parameter);
    void leave_out(std::size_t parameter);
    void mark(std::size_t parameter, Gradient state);

    // Sending.
    void send_complete_buckets();
    void send(Bucket& bucket);
    void receive(Bucket& bucket);
    void settle_left_out();
    void take_hooked(Bucket& bucket);
    void note_arrivals();

    // End of an iteration.
    std::vector<std::size_t> awaited() const;
    void reduce_all();
    [[noreturn]] void fail_unfinished();
    void end_group(const std::string& reason);
    std::string described(std::size_t parameter) const;
    std::string title(const char* method) const;

    const std::vector<NamedParameter> parameters_;
    DistributedDataParallelOptions options_;
    std::map<std::string, std::size_t, std::less<>> by_name_;
    CommHook hook_;
    ProcessGroup hook_group_;
    std::shared_ptr<int> no_sync_scopes_ = std::make_shared<int>(0);

    std::vector<Bucket> buckets_;
    std::vector<Place> places_;                         // by parameter
    std::vector<std::optional<TensorView>> gradients_;  // by parameter: its place, since the last averaging
    ddp::Usage usage_;

    Phase phase_ = Phase::idle;
    std::uint64_t iteration_ = 0;
    bool synchronizes_ = true;        // whether the open iteration averages gradients
    std::vector<Gradient> states_;    // by parameter
    std::vector<std::size_t> order_;  // the order in which gradients became ready
    std::size_t next_bucket_ = 0;     // the first bucket that is not sent
    std::exception_ptr failure_;      // the error of the sending
    bool broken_ = false;             // no iteration will begin again

    enum class Rebuilding { awaits_order, due, done };
    Rebuilding rebuilding_ = Rebuilding::awaits_order;
    std::vector<std::size_t> first_order_;

    ddp::Timing timing_;
};

}  // namespace tutti::detail
