// Groups on backends of others: who is asked for what, and what happens when a backend fails.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <latch>
#include <mutex>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Floats = std::vector<float>;

/// Fills what it is asked for with 42; keeps barriers for ever when it is told to; refuses reduce.
class Filler : public CustomBackend {
 public:
    static inline std::atomic<int> aborted{0}, dropped{0};

    explicit Filler(bool stuck) : stuck_(stuck) {}
    void run(const BackendRequest& r, BackendCompletion completion) override {
        if (r.call == BackendCall::reduce) throw DistBackendError("Filler cannot reduce");
        if (r.call == BackendCall::barrier && stuck_) {
            const std::lock_guard lock(mutex_);
            kept_.push_back(completion);
            return;
        }
        for (std::uint64_t i = 0; r.dtype == DType::float32 && i < r.count; ++i) static_cast<float*>(r.output)[i] = 42;
        completion.success(r.call == BackendCall::receive ? 1 : -1);
    }
    void abort(const std::string& reason) noexcept override {
        ++aborted;
        end(reason);
    }
    void drop(const std::string& reason) noexcept override {
        ++dropped;
        end(reason);
    }

 private:
    void end(const std::string& reason) {
        const std::lock_guard lock(mutex_);
        for (const BackendCompletion& one : kept_) one.failure(std::make_exception_ptr(Aborted(reason)));
        kept_.clear();
    }

    const bool stuck_;
    std::mutex mutex_;
    std::vector<BackendCompletion> kept_;
};

void register_once() {
    static const bool done = [] {
        Backend::register_backend(
            "filler",
            [](const DistributedBackendOptions& o, const std::any& options) {
                EXPECT_EQ(o.global_ranks_in_group.size(), static_cast<std::size_t>(o.group_size));
                return std::make_shared<Filler>(options.has_value() && std::any_cast<bool>(options));
            },
            {Device::Type::cuda, Device::Type::cpu});
        return true;
    }();
    (void)done;
}

// Two ranks as threads, each in a world of its own making.
void run_pair(const std::function<void(const Store&, int)>& body) {
    register_once();
    const HashStore store;
    const auto run = [&](int rank) {
        try {
            body(store, rank);
        } catch (const std::exception& error) {
            ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
    };
    std::thread other([&] { run(1); });
    run(0);
    other.join();
}

TensorView on_device(Floats& values, std::vector<std::int64_t> strides = {}) {
    const auto n = static_cast<std::int64_t>(values.size()) / (strides.empty() ? 1 : strides[0]);
    return {values.data(), {n}, float32, strides.empty() ? Extents{} : Extents{strides[0]}, {Device::Type::cuda, 0}};
}

TEST(Backends, serve_the_tensors_of_their_devices) {
    covers("S1-009", "S1-018", "S1-021", "S4-006", "S4-007", "S4-013", "S4-017", "S12-003");
    run_pair([](const Store& store, int rank) {
        ProcessGroup w({.store = store,
                        .rank = rank,
                        .world_size = 2,
                        .backend = "cpu:native,cuda:filler",
                        .device_id = Device{}});
        EXPECT_EQ(get_backend(w), Backend::NATIVE);
        Floats x{1, 2}, card{1, 2};
        all_reduce(x, {.group = w});
        EXPECT_EQ(x, (Floats{2, 4}));
        all_reduce(on_device(card), {.group = w});
        EXPECT_EQ(card, (Floats{42, 42}));
        Work work = async::broadcast(on_device(card = {0, 0}), {.src = 1, .group = w});
        work.wait();
        EXPECT_EQ(card, (Floats{42, 42}));
        EXPECT_EQ(recv(on_device(card), {.group = w}), 1);
        Floats four(4);
        const auto strided = [&] { all_reduce(on_device(four, {2}), {.group = w}); };
        EXPECT_TRUE(has(message_of<InvalidArgument>(strided), "not in one piece"));
        const auto refused = [&] { reduce(on_device(card), {.dst = 0, .group = w}); };
        EXPECT_TRUE(has(message_of<DistBackendError>(refused), "Filler cannot reduce"));
        const auto mixed = [&] { all_gather_into_tensor(x, on_device(card), {.group = w}); };
        EXPECT_THROW(mixed(), InvalidArgument);

        const ProcessGroup cards = new_group({.backend = "cuda:filler", .world = w});
        EXPECT_EQ(get_backend(cards), "filler");
        EXPECT_TRUE(has(message_of<InvalidArgument>([&] { all_reduce(x, {.group = cards}); }), "no backend of group"));
        EXPECT_EQ(all_gather_object(rank, {.group = cards}), (std::vector<int>{0, 1})) << "tutti's own bytes";
        barrier({.group = cards});
        const ProcessGroup same = new_group({0, 1}, {.world = w});
        all_reduce(on_device(card = {0, 0}), {.group = same});
        EXPECT_EQ(card, (Floats{42, 42})) << "as its world";
        const ProcessGroup all = new_group({.backend = "filler", .world = w});
        all_reduce(x, {.group = all});
        EXPECT_EQ(x, (Floats{42, 42}));
        w.destroy();
    });
}

/// Says that messages come from a rank that the group does not have.
class Stranger : public CustomBackend {
 public:
    void run(const BackendRequest& r, BackendCompletion completion) override {
        completion.success(r.call == BackendCall::receive ? 7 : -1);
    }
    void abort(const std::string&) noexcept override {}
};

TEST(Backends, fail_a_receive_whose_sender_is_no_rank_of_the_group) {
    Backend::register_backend("stranger", Backend::Plain([](auto...) { return std::make_shared<Stranger>(); }),
                              {Device::Type::cuda});
    ProcessGroup w({.store = HashStore(), .rank = 0, .world_size = 1, .backend = "cpu:native,cuda:stranger"});
    Floats x{1};
    EXPECT_EQ(message_of<DistBackendError>([&] { recv(on_device(x), {.group = w}); }),
              "recv: its backend says that rank 7 sent the message: expected a rank of the group, 0 to 0");
    w.destroy();
}

TEST(Backends, that_move_whole_messages_are_not_asked_for_the_next_one) {
    Backend::register_backend("mover", Backend::Plain([](auto...) { return std::make_shared<Stranger>(); }),
                              {Device::Type::cpu});
    ProcessGroup w({.store = HashStore(), .rank = 0, .world_size = 1, .backend = "mover"});
    const std::string text = message_of<InvalidArgument>([&] { (void)iprobe({.group = w}); });
    EXPECT_TRUE(has(text, "iprobe: the backend mover carries the messages of group")) << text;
    w.destroy();
}

/// Puts operations into a stream, and ends them when it is told to.
class Lane : public CustomBackend {
 public:
    struct Log {
        std::vector<BackendRequest> requests;
        std::vector<BackendCompletion> open;
        std::vector<void*> waits;  // streams
        std::string order;
    };
    struct End : DeviceEvent {
        explicit End(Log& log) : log_(log) {}
        void make_wait(Stream stream) override { log_.waits.push_back(stream.handle); }

     private:
        Log& log_;
    };

    explicit Lane(Log& log, bool quick = false) : log_(log), quick_(quick) {}
    void run(const BackendRequest& r, BackendCompletion completion) override {
        log_.requests.push_back(r);
        log_.order += '.';
        log_.open.push_back(completion);
        completion.enqueued(std::make_shared<End>(log_), 0);
        if (quick_) end();
    }
    void begin_group() override { log_.order += '('; }
    void end_group() override { log_.order += ')'; }
    bool takes_blocks() const override { return true; }
    void abort(const std::string&) noexcept override { end(); }
    void end() {
        for (const BackendCompletion& one : std::exchange(log_.open, {})) one.success();
    }

 private:
    Log& log_;
    const bool quick_;
};

TEST(Backends, of_a_device_work_in_the_streams_of_their_callers) {
    Lane::Log log;
    std::shared_ptr<Lane> lane;
    Backend::register_backend("lane", Backend::Plain([&](auto...) { return lane = std::make_shared<Lane>(log); }),
                              {Device::Type::cuda});
    ProcessGroup w({.store = HashStore(), .rank = 0, .world_size = 1, .backend = "cpu:native,cuda:lane"});
    Floats x{1, 2}, y{3, 4}, far(4);
    int compute = 0, other = 0;  // streams
    using Handles = std::vector<void*>;

    const CurrentStream current(Device::Type::cuda, {&compute});
    all_reduce(on_device(x), {.op = ReduceOp::premul_sum(0.5), .group = w});
    EXPECT_EQ(log.requests.back().stream.handle, &compute);
    EXPECT_EQ(log.requests.back().op, ReduceOp::premul_sum(0.5));
    EXPECT_EQ(log.waits, (Handles{&compute})) << "the caller's stream waits, its thread has not waited";

    Work work = async::all_reduce(on_device(x), {.group = w, .stream = {&other}});
    EXPECT_EQ(log.requests.back().stream.handle, &other);
    EXPECT_TRUE(work.is_completed() && work.is_success());
    EXPECT_EQ(log.waits.size(), 1U) << "nobody has asked";
    work.wait();
    EXPECT_EQ(log.waits, (Handles{&compute, &compute})) << "the stream of the thread that waits";
    EXPECT_THROW(work.wait(20ms), Timeout) << "with a time the thread waits for the device";
    Future<std::vector<TensorView>> future = work.get_future();
    lane->end();
    EXPECT_TRUE(work.wait(10s));
    future.wait();

    all_gather({on_device(y)}, on_device(x), {.group = w});
    EXPECT_EQ(log.requests.back().output, y.data()) << "one tensor is in one piece";
    log.order.clear();
    {
        const Coalescing scope({.group = w});
        all_reduce(on_device(x), {.group = w});
        all_reduce(on_device(y), {.group = w});
    }
    EXPECT_EQ(log.order, "(..)");
    EXPECT_EQ(log.waits.size(), 6U) << "the future's, one, and both of the scope's";
    log.order.clear();
    EXPECT_EQ(sendrecv(on_device(x), 0, on_device(y), 0, {.group = w}), 0);
    EXPECT_EQ(log.order, "(..)") << "a backend begins both sides as one";
    const auto overlapping = [&] {
        const TensorView front = on_device(far), back(far.data() + 1, {1}, float32, {}, {Device::Type::cuda, 0});
        reduce_scatter_tensor(back, TensorView(front.data(), {1}, float32, {}, front.device()), {.group = w});
        all_to_all_single(on_device(far), on_device(far), {.group = w});
    };
    EXPECT_TRUE(has(message_of<InvalidArgument>(overlapping), "overlap on cuda:0"));
    lane->end();
    w.destroy();
}

TEST(Backends, that_take_blocks_get_lists_of_tensors_that_lie_apart) {
    Lane::Log logs[2];
    Backend::register_backend("lanes", Backend::Plain([&](const Store&, int rank, int, auto) {
                                  return std::make_shared<Lane>(logs[rank], true);
                              }),
                              {Device::Type::cuda});
    run_pair([&](const Store& store, int rank) {
        ProcessGroup w({.store = store, .rank = rank, .world_size = 2, .backend = "cuda:lanes"});
        Floats x{1, 2}, a(2), b(2);
        all_gather({on_device(a), on_device(b)}, on_device(x), {.group = w});
        const BackendRequest& r = logs[rank].requests.back();
        EXPECT_EQ(r.outputs, (std::vector<void*>{a.data(), b.data()}));
        EXPECT_TRUE(r.output == nullptr && r.input == x.data());
        reduce_scatter(on_device(x), ConstTensorList{on_device(a), on_device(b)}, {.group = w});
        EXPECT_EQ(logs[rank].requests.back().inputs, (std::vector<const void*>{a.data(), b.data()}));
        monitored_barrier({.group = w});
        w.destroy();
    });
}

TEST(Backends, of_devices_are_asked_in_detail_only_for_what_all_ranks_mean) {
    covers("S16-012", "S16-015");
    set_debug_level(DebugLevel::detail);
    run_pair([](const Store& store, int rank) {
        ProcessGroup w({.store = store, .rank = rank, .world_size = 2, .backend = "cpu:native,cuda:filler"});
        Floats x{1, 2}, more{1, 2, 3};
        std::vector<std::int32_t> numbers{1, 2};
        const bool other = rank == 1;
        const auto differ = [&](const std::function<void()>& call, const std::string& one, const std::string& another) {
            const std::string text = message_of<CollectiveMismatch>(call);
            EXPECT_TRUE(has(text, one) && has(text, another)) << text;
        };
        const TensorView as_numbers(numbers.data(), {2}, int32, {}, {Device::Type::cuda, 0});
        differ([&] { all_reduce(other ? as_numbers : on_device(x), {.group = w}); }, "float32 × 2", "int32 × 2");
        differ([&] { all_reduce(on_device(other ? more : x), {.group = w}); }, "shape [2]", "shape [3]");
        differ([&] { all_reduce(on_device(x), {.op = other ? ReduceOp::max : ReduceOp::sum, .group = w}); }, "sum",
               "max");
        differ([&] { broadcast(on_device(x), {.src = rank, .group = w}); }, "root 0", "root 1");
        differ([&] { all_reduce(other ? on_device(x) : TensorView(x), {.group = w}); }, "sum)", "sum) on cuda");
        EXPECT_EQ(x, (Floats{1, 2})) << "the backend has been asked for none of them";
        all_reduce(on_device(x), {.group = w});
        EXPECT_EQ(x, (Floats{42, 42}));
        w.destroy();
    });
    set_debug_level(DebugLevel::off);
}

TEST(Backends, that_never_end_an_operation_end_it_by_its_timeout) {
    std::latch seen(2);  // a rank that goes earlier is another cause
    run_pair([&seen](const Store& store, int rank) {
        ProcessGroup w(
            {.store = store, .rank = rank, .world_size = 2, .timeout = 400ms, .backend = "filler", .pg_options = true});
        Work work = async::barrier({.group = w});
        EXPECT_THROW(work.wait(50ms), Timeout) << "the operation goes on";
        EXPECT_FALSE(work.is_completed());
        const std::string text = message_of<Timeout>([&] { work.wait(); });
        EXPECT_TRUE(has(text, "barrier #1 in group \"world\"")) << text;
        EXPECT_THROW(barrier({.group = w}), DistError);
        seen.arrive_and_wait();
    });
}

TEST(Backends, end_what_is_under_way_when_their_group_is_aborted) {
    std::latch seen(2);
    run_pair([&seen](const Store& store, int rank) {
        ProcessGroup w({.store = store, .rank = rank, .world_size = 2, .backend = "filler", .pg_options = true});
        Work work = async::barrier({.group = w});
        if (rank == 0) w.abort("enough");
        EXPECT_TRUE(has(message_of<Aborted>([&] { work.wait(); }), "enough"));
        seen.arrive_and_wait();
    });
}

// The others may still be in their last operation, which an abort would end.
TEST(Backends, are_dropped_and_not_aborted_with_the_last_handle_of_an_idle_group) {
    Filler::aborted = Filler::dropped = 0;
    run_pair([](const Store& store, int rank) {
        ProcessGroup w({.store = store, .rank = rank, .world_size = 2});
        {
            const ProcessGroup idle = new_group({.backend = "cpu:filler", .world = w});
            barrier({.group = idle});
        }
        barrier({.group = w});
        EXPECT_EQ(Filler::dropped, 2);
        EXPECT_EQ(Filler::aborted, 0);
        barrier({.group = w});
        new_group({.backend = "cpu:filler", .world = w}).destroy();
        barrier({.group = w});
        EXPECT_EQ(Filler::aborted, 2) << "a group that is left ends its operations";
        w.destroy();
    });
}

TEST(Backends, that_are_not_there_are_refused_before_anybody_waits) {
    const HashStore store;
    EXPECT_THROW(init_process_group({.backend = "gloo", .world_size = 2, .rank = 0, .store = store}), DistBackendError);
    EXPECT_THROW(init_process_group({.backend = "pigeon", .world_size = 2, .rank = 0, .store = store}),
                 InvalidArgument);
    EXPECT_THROW(init_process_group({.backend = "cpu:native,cpu:native", .world_size = 2, .rank = 0, .store = store}),
                 InvalidArgument);
}

}  // namespace
}  // namespace tutti::test
