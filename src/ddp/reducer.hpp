// Reducer: the buckets of a model, and the iteration that is under way.
//
//     idle -- forward --> open -- finish --> idle        (forward again, as long as nothing was ready)
//
// In an open iteration each gradient goes from `awaited` to `ready` or `unused`; when none of a bucket is awaited, and
// the buckets before it are sent, it is sent. Buckets are sent in one order on all ranks, independent of the order of
// ready(). finish() raises an error of the sending, as this rank then also knows whether it is at fault itself; the
// error ends the reducer, as buffers may be on their way still.
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
    /// Buckets in flight keep their memory until they have arrived.
    ~Reducer();
    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    void forward();
    void prepare_for_backward(const std::vector<std::size_t>& unused);
    /// `elsewhere`: null, or where the gradient is this time.
    void ready(std::size_t parameter, const TensorView* elsewhere);
    void finish();

    void register_comm_hook(ProcessGroup state, CommHook hook);
    TensorView gradient(std::size_t parameter) const;
    ddp::Buckets buckets() const;
    const ProcessGroup& group() const noexcept { return options_.group; }
    const std::shared_ptr<int>& no_sync_scopes() const noexcept { return no_sync_scopes_; }
    /// Throws InvalidArgument where there is none; so does the name's form.
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
        bool on_device = false;  // there is no buffer then: gradients are averaged where they are
        std::size_t awaited = 0;
        std::optional<Work> work;  // on its way; or, with a hook:
        std::optional<CommHookResult> hooked;
        std::optional<Future<Clock::time_point>> arrival;  // where times are taken
    };

    // The beginning.
    void check_may_begin();
    void adopt_order_of_first_rank();
    void make_buckets(const ddp::Buckets& buckets);
    std::vector<std::size_t> bucket_bytes() const;

    // The gradients.
    TensorView in_bucket(std::size_t parameter) const;
    void fill(std::size_t parameter);
    void leave_out(std::size_t parameter);
    void mark(std::size_t parameter, Gradient state);

    // The way.
    void send_complete_buckets();
    void send(Bucket& bucket);
    void receive(Bucket& bucket);
    void settle_left_out();
    void take_hooked(Bucket& bucket);
    void note_arrivals();

    // The end.
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
    std::vector<std::optional<TensorView>> gradients_;  // by parameter: where it is, since they were averaged last
    ddp::Usage usage_;

    Phase phase_ = Phase::idle;
    std::uint64_t iteration_ = 0;
    bool synchronizes_ = true;        // the open iteration
    std::vector<Gradient> states_;    // by parameter
    std::vector<std::size_t> order_;  // in which they became ready
    std::size_t next_bucket_ = 0;     // the first that is not sent
    std::exception_ptr failure_;      // of the sending
    bool broken_ = false;             // no iteration will begin again

    enum class Rebuilding { awaits_order, due, done };
    Rebuilding rebuilding_ = Rebuilding::awaits_order;
    std::vector<std::size_t> first_order_;

    ddp::Timing timing_;
};

}  // namespace tutti::detail
