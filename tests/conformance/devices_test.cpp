// Tensors on devices in what stands above the collectives: models, meshes, objects, groups of groups. The device is one
// in name: its memory is the host's, so that tests can look at it, and its backend carries it by a group of its own.
#include "conformance/world.hpp"
#include "support/covers.hpp"

#include <tutti/ddp.hpp>

#include <map>
#include <mutex>

namespace tutti::test {
namespace {

using Floats = std::vector<float>;

/// What cards were asked for, by all ranks of this process.
class Asked {
 public:
    void add(const std::string& what) {
        const std::lock_guard lock(mutex_);
        ++times_[what];
    }
    int times(const std::string& what) {
        const std::lock_guard lock(mutex_);
        return times_[what];
    }
    void clear() {
        const std::lock_guard lock(mutex_);
        times_.clear();
    }

 private:
    std::mutex mutex_;
    std::map<std::string, int> times_;
};
Asked& asked() {
    static Asked all;
    return all;
}

/// Carries what it is given as a native group of the same ranks does. It is asked for nothing but memory of its device.
class Card : public CustomBackend {
 public:
    explicit Card(const DistributedBackendOptions& o)
        : group_({.store = o.store, .rank = o.group_rank, .world_size = o.group_size, .name = "card"}) {}

    void run(const BackendRequest& r, BackendCompletion completion) override {
        if (r.call != BackendCall::barrier) {
            EXPECT_EQ(r.device.type, Device::Type::cuda) << r.name;
        }
        asked().add(std::string(tutti::to_string(r.call)));
        if (r.stream.handle != nullptr) asked().add("in a stream");
        start(r).get_future().add_done_callback([completion](const auto& future) {
            try {
                (void)future.value();
                completion.success();
            } catch (...) {
                completion.failure(std::current_exception());
            }
        });
    }
    void abort(const std::string& reason) noexcept override {
        try {
            if (reason.ends_with("was destroyed"))
                group_.destroy();  // what is complete here reaches the others
            else
                group_.abort(reason);
        } catch (const DistError&) {
        }
    }

 private:
    Work start(const BackendRequest& r) {
        const auto view = [&](void* data, std::uint64_t count) {
            return TensorView(data, Extents::of(static_cast<std::int64_t>(count)), r.dtype);
        };
        const auto total = [&] { return r.counts.front() * r.counts.size(); };
        void* input = const_cast<void*>(r.input);
        switch (r.call) {
            case BackendCall::all_reduce:
                return async::all_reduce(view(r.output, r.count), {.op = r.op, .group = group_});
            case BackendCall::broadcast:
                return async::broadcast(view(r.output, r.count), {.group = group_, .group_src = r.root});
            case BackendCall::all_gather:
                return async::all_gather_into_tensor(view(r.output, total()), view(input, r.counts.front()),
                                                     {.group = group_});
            case BackendCall::reduce_scatter:
                return async::reduce_scatter_tensor(view(r.output, r.counts.front()), view(input, total()),
                                                    {.op = r.op, .group = group_});
            case BackendCall::barrier: return async::barrier({.group = group_});
            default: throw DistBackendError(r.name + ": not on this card");
        }
    }
    ProcessGroup group_;
};

void register_card() {
    static const bool done = [] {
        Backend::register_backend(
            "card",
            [](const DistributedBackendOptions& options, const std::any&) { return std::make_shared<Card>(options); },
            {Device::Type::cuda});
        return true;
    }();
    (void)done;
}

void run_ranks_on_cards(int size, const std::string& backend, const std::function<void(const ProcessGroup&)>& body) {
    register_card();
    asked().clear();
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ProcessGroup world({.store = store, .rank = rank, .world_size = size, .backend = backend});
                body(world);
                world.destroy();
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TensorView on_card(Floats& values, int index = 0) {
    return {values.data(), {static_cast<std::int64_t>(values.size())}, float32, {}, {Device::Type::cuda, index}};
}

/// Groups that serve a device: with host memory, and without.
class OnCards : public ::testing::TestWithParam<const char*> {};

TEST_P(OnCards, models_are_averaged_where_their_gradients_are) {
    covers("S23-001");
    run_ranks_on_cards(2, GetParam(), [](const ProcessGroup& w) {
        const auto me = static_cast<float>(w.rank());
        Floats a(3, me), b(5, me + 1), da(3), db(5), mean(2, me);
        DistributedDataParallel ddp(
            {{"a", on_card(a, w.rank()), on_card(da, w.rank())}, {"b", on_card(b, w.rank()), on_card(db, w.rank())}},
            {.group = w, .buffers = {{"mean", on_card(mean, w.rank())}}});
        EXPECT_EQ(a, Floats(3, 0)) << "rank 0's";
        EXPECT_EQ(b, Floats(5, 1));
        EXPECT_EQ(ddp.buckets(), (std::vector<std::vector<std::size_t>>{{1, 0}}));
        for (int iteration = 0; iteration < 3; ++iteration) {  // the second may have other buckets
            mean.assign(2, me + 7);
            ddp.forward();
            EXPECT_EQ(mean, Floats(2, 7));
            da.assign(3, 2 * me + static_cast<float>(iteration));
            db.assign(5, 4 * me);
            // Ranks may have them in other orders.
            ddp.ready(w.rank() == 0 ? "a" : "b");
            ddp.ready(w.rank() == 0 ? "b" : "a");
            ddp.finish();
            EXPECT_EQ(da, Floats(3, 1 + static_cast<float>(iteration)));
            EXPECT_EQ(db, Floats(5, 2));
        }
        Floats elsewhere(3, 8 * me);
        {
            const auto scope = ddp.no_sync();
            ddp.forward();
            ddp.ready("a"), ddp.ready("b");
            ddp.finish();
        }
        ddp.forward();
        ddp.ready(0, on_card(elsewhere, w.rank()));
        ddp.ready(1);
        ddp.finish();
        EXPECT_EQ(elsewhere, Floats(3, 4)) << "where it was this time";
        EXPECT_EQ(da, Floats(3, 3)) << "untouched";
    });
    EXPECT_EQ(asked().times("all_reduce"), 2 * 4 * 2) << "ranks, iterations, gradients";
}

TEST_P(OnCards, hooks_of_models_get_the_gradients_themselves) {
    run_ranks_on_cards(2, GetParam(), [](const ProcessGroup& w) {
        Floats a(3), da(3);
        DistributedDataParallel ddp({{"a", on_card(a), on_card(da)}}, {.group = w});
        ddp.register_comm_hook({}, [&](const ProcessGroup& group, GradBucket& bucket) {
            EXPECT_EQ(bucket.buffer().element_count(), 0);
            EXPECT_EQ(bucket.gradients().at(0).data(), da.data());
            return async::all_reduce(bucket.gradients()[0], {.op = ReduceOp::max, .group = group}).get_future();
        });
        ddp.forward();
        da.assign(3, static_cast<float>(w.rank()));
        ddp.ready(0);
        ddp.finish();
        EXPECT_EQ(da, Floats(3, 1));
    });
}

TEST_P(OnCards, models_refuse_what_needs_memory_of_the_device) {
    run_ranks_on_cards(1, GetParam(), [](const ProcessGroup& w) {
        Floats a(4), da(4);
        const Device card{Device::Type::cuda, 0};
        const auto refusal = [&](std::vector<NamedParameter> parameters, DistributedDataParallelOptions options) {
            options.group = w;
            return message_of<InvalidArgument>([&] { DistributedDataParallel(parameters, options); });
        };
        EXPECT_TRUE(
            has(refusal({{"a", on_card(a), on_card(da, 1)}}, {}), "its gradient is on cuda:1: expected cuda:0"));
        EXPECT_TRUE(has(refusal({{"a", TensorView(a.data(), {2}, float32, {2}, card)}}, {}), "not in one piece"));
        EXPECT_TRUE(has(refusal({{"a", on_card(a)}}, {.gradient_as_bucket_view = true}),
                        "it is on cuda:0, but gradient_as_bucket_view is true: expected host memory"));
        EXPECT_TRUE(has(refusal({{"a", on_card(a), on_card(da)}}, {.find_unused_parameters = true}),
                        "it is on cuda:0, but find_unused_parameters is true: expected host memory"));
        const NamedBuffer gaps{"m", TensorView(da.data(), {2}, float32, {2}, card)};
        EXPECT_TRUE(has(refusal({{"a", on_card(a)}}, {.buffers = {gaps}}), "buffer \"m\" is on cuda:0 and not in one"));
    });
}

TEST_P(OnCards, objects_travel_in_host_memory) {
    covers("S9-003", "S9-004");
    const Device card{Device::Type::cuda, 0};
    run_ranks_on_cards(2, GetParam(), [&](const ProcessGroup& w) {
        const int other = 1 - w.rank();
        const std::string many(9000, static_cast<char>('a' + w.rank()));  // does not fit into the first message
        for (const std::string& mine : {std::string("short"), many}) {
            const auto all = all_gather_object(mine, {.group = w});
            EXPECT_EQ(all[static_cast<std::size_t>(w.rank())], mine);
            EXPECT_EQ(all[static_cast<std::size_t>(other)].size(), mine.size());
            ObjectList list{w.rank() == 0 ? Object(mine) : Object()};
            broadcast_object_list(list, {.src = 0, .group = w, .device = card});
            EXPECT_EQ(list[0].as_string().size(), mine.size());
            ObjectList gathered(w.rank() == 1 ? 2 : 0);
            gather_object(Object(mine), w.rank() == 1 ? &gathered : nullptr, {.dst = 1, .group = w});
            ObjectList scattered(1);
            scatter_object_list(scattered, w.rank() == 1 ? gathered : ObjectList{}, {.src = 1, .group = w});
            EXPECT_EQ(scattered[0].as_string(), mine);
            if (w.rank() == 0) {
                send_object_list({Object(mine)}, {.dst = 1, .group = w, .device = card});
            } else {
                ObjectList received(1);
                EXPECT_EQ(recv_object_list(received, {.src = 0, .group = w, .device = card}), 0);
                EXPECT_EQ(received[0].as_string().size(), mine.size());
            }
        }
        ObjectList list(1);
        const auto wrong = [&] {
            broadcast_object_list(list, {.src = 0, .group = w, .device = Device{Device::Type::xpu, 0}});
        };
        EXPECT_TRUE(has(message_of<InvalidArgument>(wrong), "device xpu:0: expected cpu, or a device that group"));
    });
    for (const char* call : {"broadcast", "all_gather", "gather", "send"}) EXPECT_EQ(asked().times(call), 0) << call;
}

TEST_P(OnCards, meshes_lay_groups_for_tensor_parallel_layers) {
    covers("S5-002", "A-29");
    run_ranks_on_cards(4, GetParam(), [](const ProcessGroup& w) {
        const DeviceMesh mesh = init_device_mesh("cuda", {2, 2}, {.dim_names = {"dp", "tp"}, .world = w});
        EXPECT_EQ(mesh.device_type(), "cuda");
        EXPECT_TRUE(has(mesh.to_string(), "DeviceMesh(\"cuda\", ")) << mesh.to_string();
        const ProcessGroup tp = mesh.get_group("tp"), dp = mesh.get_group("dp");
        EXPECT_EQ(tp.backend(), w.backend());
        const auto me = static_cast<float>(w.rank());
        // A layer that is cut along its rows, then one that is cut along its columns.
        Floats part(2, me), whole(4), sums(4, me), slice(2);
        all_gather_into_tensor(on_card(whole), on_card(part), {.group = tp});
        const float first = w.rank() < 2 ? 0 : 2;
        EXPECT_EQ(whole, (Floats{first, first, first + 1, first + 1}));
        reduce_scatter_tensor(on_card(slice), on_card(sums), {.group = tp});
        EXPECT_EQ(slice, Floats(2, 2 * first + 1));
        all_reduce(on_card(sums), {.op = ReduceOp::avg, .group = dp});
        EXPECT_EQ(sums, Floats(4, w.rank() % 2 == 0 ? 1.F : 2.F));
        const auto other = [&] { (void)init_device_mesh("rocm", {4}, {.world = w}); };
        EXPECT_TRUE(
            has(message_of<InvalidArgument>(other), "device_type \"rocm\": no backend of group \"world\" serves"));
        const DeviceMesh one = DeviceMesh::from_group(tp, "cuda");
        EXPECT_EQ(one.device_type(), "cuda");
    });
}

TEST_P(OnCards, plans_run_in_the_stream_of_the_time_of_the_run) {
    run_ranks_on_cards(2, GetParam(), [](const ProcessGroup& w) {
        Floats x{1};
        int stream = 0, other = 0;
        Plan plan = plan::all_reduce(on_card(x), {.group = w});
        plan.run();
        EXPECT_EQ(x, Floats{2});
        {
            const CurrentStream current(Device::Type::cuda, {&stream});
            plan.run();
            EXPECT_EQ(x, Floats{4});
            plan.start().wait();
            EXPECT_EQ(x, Floats{8});
        }
        plan.run();
        Plan named = plan::all_reduce(on_card(x), {.group = w, .stream = {&other}});
        named.run();
        EXPECT_EQ(x, Floats{32});
    });
    EXPECT_EQ(asked().times("all_reduce"), 2 * 5);
    EXPECT_EQ(asked().times("in a stream"), 2 * 3);
}

TEST_P(OnCards, groups_are_made_of_groups) {
    covers("S4-006");
    run_ranks_on_cards(4, GetParam(), [](const ProcessGroup& w) {
        const ProcessGroup half = w.split({.color = w.rank() / 2});
        Floats x{1};
        all_reduce(on_card(x), {.group = half});
        EXPECT_EQ(x, Floats{2});
        const ProcessGroup odd = new_group({1, 3}, {.world = w});
        if (odd) {
            all_reduce(on_card(x), {.group = odd});
            EXPECT_EQ(x, Floats{4});
        }
        const ProcessGroup local =
            w.rank() < 2 ? new_group({0, 1}, {.use_local_synchronization = true, .world = w}) : half;
        barrier({.group = local});
        const auto text = message_of<InvalidArgument>([&] {
            Floats host{1};
            all_reduce(TensorView(host.data(), {1}, float32, {}, {Device::Type::npu, 2}), {.group = w});
        });
        EXPECT_TRUE(has(text, "npu:2")) << text;
    });
}

INSTANTIATE_TEST_SUITE_P(Groups, OnCards, ::testing::Values("cpu:native,cuda:card", "cuda:card"),
                         [](const auto& tested) {
                             return std::string(tested.param) == "cuda:card" ? "of_the_device"
                                                                             : "of_the_device_and_the_host";
                         });

}  // namespace
}  // namespace tutti::test
