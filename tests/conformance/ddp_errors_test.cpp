// DistributedDataParallel where something is wrong: every rank hears of it, nobody waits.
#include "conformance/ddp_model.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

#include <stdexcept>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class DdpErrors : public ::testing::TestWithParam<How> {};
// Of whole worlds: what ends a part could reach the rank beside it before that has left the harness's barrier.
INSTANTIATE_TEST_SUITE_P(Ranks, DdpErrors, ::testing::ValuesIn(whole_worlds()),
                         [](const auto& instance) { return to_string(instance.param); });

const std::string unfinished = "Expected to have finished reduction in the prior iteration before starting a new one.";

/// The level, for the ranks that are made meanwhile.
class Level {
 public:
    explicit Level(DebugLevel level) { set_debug_level(level); }
    ~Level() { set_debug_level(DebugLevel::off); }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
};

/// Rank 0 will end the group: not before rank 1 has come so far, which would hear of that wherever it is.
void let_rank_1_come(const ProcessGroup& g) {
    std::vector<int> token(1);
    if (g.rank() == 1)
        send(token, 0, {.group = g});
    else
        recv(token, {.src = 1, .group = g});
}

/// The two layers of the documentation, whose loss uses the second alone.
struct TwoLinLayerNet {
    std::vector<float> a = std::vector<float>(100), b = std::vector<float>(10), da = a, db = b;
    std::vector<NamedParameter> parameters() {
        return {{"a.weight", view(a.data(), {10, 10}), view(da.data(), {10, 10})},
                {"b.weight", view(b.data(), {1, 10}), view(db.data(), {1, 10})}};
    }
};

TEST_P(DdpErrors, a_parameter_without_gradient_is_named_on_each_rank_that_misses_it) {
    covers("S23-002", "S23-003", "S16-011", "E-231");
    const Level level(DebugLevel::info);
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  TwoLinLayerNet net;
                  DistributedDataParallel ddp(net.parameters(), {.group = g});
                  ddp.forward();
                  ddp.ready("b.weight");
                  let_rank_1_come(g);
                  if (g.rank() == 1) {  // it knows by itself what it misses, also when the group has ended
                      std::vector<int> nothing(1);
                      EXPECT_THROW(recv(nothing, {.src = 0, .group = g}), Aborted);
                  }
                  const std::string text = message_of<InvalidArgument>([&] { ddp.finish(); });
                  EXPECT_TRUE(text.starts_with(unfinished)) << text;
                  EXPECT_TRUE(has(text, "`find_unused_parameters=True`")) << text;
                  EXPECT_TRUE(has(text, "all `forward` function outputs participate in calculating loss")) << text;
                  const std::string rank = std::to_string(g.rank());
                  EXPECT_TRUE(text.ends_with("\nParameters which did not receive grad for rank " + rank +
                                             ": a.weight\nParameter indices which did not receive grad for rank " +
                                             rank + ": 0"))
                      << text;
                  // The object is of no more use.
                  EXPECT_TRUE(has(message_of<InvalidArgument>([&] { ddp.forward(); }), "expected a new object"));
              },
              {.leave = false});
}

TEST_P(DdpErrors, ranks_that_miss_nothing_do_not_wait_for_one_that_does) {
    covers("S23-003");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  Model model(g.rank());
                  DistributedDataParallel ddp(model.parameters(), {.group = g, .bucket_cap_bytes = 0});
                  ddp.forward();
                  let_rank_1_come(g);
                  for (std::size_t i = Model::size; i-- > 0;) {
                      if (g.rank() == 1 || i != 1) ddp.ready(i);
                  }
                  const auto start = std::chrono::steady_clock::now();
                  if (g.rank() == 0) {
                      // As a loop does that begins its next iteration.
                      const std::string text = message_of<InvalidArgument>([&] { ddp.forward(); });
                      EXPECT_TRUE(text.starts_with(unfinished)) << text;
                      EXPECT_TRUE(has(text, "TORCH_DISTRIBUTED_DEBUG=INFO")) << text;
                      EXPECT_TRUE(text.ends_with("Parameter indices which did not receive grad for rank 0: 1")) << text;
                  } else {
                      const std::string text = message_of<Aborted>([&] { ddp.finish(); });
                      EXPECT_TRUE(has(text, "rank 0: " + unfinished)) << text;
                  }
                  EXPECT_LT(std::chrono::steady_clock::now() - start, patience(10s));
              },
              {.leave = false});
}

// Makes one with what `change` has done on the last rank; every rank must throw Error with `text`.
template <class F>
void expect_difference(const ProcessGroup& g, const std::string& text, F change) {
    std::vector<float> a(6), b(2), other(6);
    std::vector<double> doubles(2);
    std::vector<NamedParameter> parameters{{"a", view(a.data(), {2, 3})}, {"b", b}};
    DistributedDataParallelOptions options{.group = g, .buffers = {{"mean", other}}};
    if (g.rank() == g.size() - 1) change(parameters, options, doubles);
    const std::string said = message_of<CollectiveMismatch>([&] { DistributedDataParallel(parameters, options); });
    EXPECT_EQ(said, "DistributedDataParallel: " + text + ": expected the same model and options on all ranks");
}

TEST_P(DdpErrors, a_difference_in_a_smaller_group_names_ranks_by_their_numbers_in_the_world) {
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        if (g.rank() == 0) return;
        const std::vector<int> members{g.global_rank(1), g.global_rank(2)};
        const ProcessGroup pair = new_group(members, {.use_local_synchronization = true, .world = g});
        expect_difference(pair,
                          R"(parameter 1 is "b" float32[2] on rank )" + std::to_string(members[0]) +
                              R"(, but "c" float32[2] on rank )" + std::to_string(members[1]),
                          [](std::vector<NamedParameter>& p, DistributedDataParallelOptions&, std::vector<double>&) {
                              p[1].name = "c";
                          });
    });
}

TEST_P(DdpErrors, ranks_whose_models_differ_all_hear_of_the_first_difference) {
    covers("S23-001");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        using Parameters = std::vector<NamedParameter>;
        using Options = DistributedDataParallelOptions;
        using Doubles = std::vector<double>;
        expect_difference(g, R"(parameter 1 is "b" float32[2] on rank 0, but "c" float32[2] on rank 2)",
                          [](Parameters& p, Options&, Doubles&) { p[1].name = "c"; });
        expect_difference(g, R"(parameter 0 is "a" float32[2, 3] on rank 0, but "a" float32[3, 2] on rank 2)",
                          [](Parameters& p, Options&, Doubles&) {
                              p[0].tensor = TensorView(p[0].tensor.data(), {3, 2}, float32);
                          });
        expect_difference(g, R"(parameter 1 is "b" float32[2] on rank 0, but "b" float64[2] on rank 2)",
                          [](Parameters& p, Options&, Doubles& d) { p[1].tensor = d; });
        expect_difference(g, R"(parameter 1 is "b" float32[2] on rank 0, but rank 2 has only 1)",
                          [](Parameters& p, Options&, Doubles&) { p.pop_back(); });
        expect_difference(g, R"(parameter 2 is "more" float64[2] on rank 2, but rank 0 has only 2)",
                          [](Parameters& p, Options&, Doubles& d) {
                              p.push_back({"more", d});
                          });
        expect_difference(g, R"(buffer 0 is "mean" float32[6] on rank 0, but rank 2 has only 0)",
                          [](Parameters&, Options& o, Doubles&) { o.buffers.clear(); });
        expect_difference(g, "option 1 is bucket_cap_bytes = 26214400 on rank 0, but bucket_cap_bytes = 4 on rank 2",
                          [](Parameters&, Options& o, Doubles&) { o.bucket_cap_bytes = 4; });
        // The group can be used on.
        std::vector<int> x{1};
        all_reduce(x, {.group = g});
        EXPECT_EQ(x[0], 3);
    });
}

TEST_P(DdpErrors, what_one_rank_refuses_all_hear_of) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> a(6), b(5);
        const auto make = [&] {
            DistributedDataParallel({{"a", a, g.rank() == 1 ? TensorView(b) : TensorView()}},
                                    {.group = g, .module_name = "Net"});
        };
        a.resize(g.rank() == 1 ? 6 : 0);  // rank 0's gradient is right
        const std::string why =
            "DistributedDataParallel (module Net): parameter 0 (\"a\"): its gradient is float32[5]: expected "
            "float32[6], as "
            "the parameter";
        if (g.rank() == 1)
            EXPECT_EQ(message_of<InvalidArgument>(make), why);
        else
            EXPECT_EQ(message_of<CollectiveMismatch>(make),
                      "DistributedDataParallel (module Net): rank 1 cannot take part: " + why);
        barrier({.group = g});
    });
}

TEST_P(DdpErrors, what_a_hook_throws_ends_the_iteration_on_all_ranks) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<float> a(4), da(4);
                  DistributedDataParallel ddp({{"a", a, TensorView(da)}}, {.group = g});
                  ddp.register_comm_hook({}, [](const ProcessGroup& group, GradBucket& bucket) {
                      if (group.rank() == 0) throw std::runtime_error("no compressor");
                      TensorView buffer = bucket.buffer().view();
                      return async::all_reduce(buffer, {.group = group}).get_future();
                  });
                  ddp.forward();
                  let_rank_1_come(g);
                  ddp.ready(0);
                  if (g.rank() == 0)
                      EXPECT_EQ(message_of<std::runtime_error>([&] { ddp.finish(); }), "no compressor");
                  else
                      EXPECT_TRUE(has(message_of<Aborted>([&] { ddp.finish(); }), "rank 0: no compressor"));
              },
              {.leave = false});
}

TEST_P(DdpErrors, a_rank_that_goes_is_told_to_those_in_the_iteration) {
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  std::vector<float> a(4), da(4);
                  DistributedDataParallel ddp({{"a", a, TensorView(da)}}, {.group = g});
                  ddp.forward();
                  if (g.rank() == 1) return ProcessGroup(g).destroy();
                  ddp.ready(0);
                  EXPECT_THROW(ddp.finish(), PeerLost);
                  EXPECT_THROW(ddp.forward(), InvalidArgument);
              },
              {.leave = false});
}

// ---- One rank: what it may not ask

class DdpMisuse : public ::testing::Test {
 protected:
    template <class F>
    static void expect_refusal(const std::string& text, F call) {
        EXPECT_EQ(message_of<InvalidArgument>(call), "DistributedDataParallel" + text);
    }
    HashStore store_;
    ProcessGroup g_{ProcessGroupOptions{.store = store_, .rank = 0, .world_size = 1}};
    std::vector<float> a_ = std::vector<float>(4), b_ = a_, da_ = a_, db_ = a_;
    std::vector<NamedParameter> both_{{"a", a_, TensorView(da_)}, {"b", b_, TensorView(db_)}};
};

TEST_F(DdpMisuse, of_an_iteration_is_refused_and_changes_nothing) {
    DistributedDataParallel ddp(both_, {.group = g_});
    expect_refusal(".ready: parameter 0 (\"a\"): no iteration is open: expected forward() before",
                   [&] { ddp.ready(0); });
    expect_refusal(".finish: no iteration is open: expected forward() before", [&] { ddp.finish(); });
    expect_refusal(".prepare_for_backward: no iteration is open: expected forward() before",
                   [&] { ddp.prepare_for_backward(); });
    ddp.forward();
    da_.assign(4, 3);
    ddp.ready("a");
    expect_refusal(".ready: parameter 0 (\"a\") is ready already in this iteration: expected it once",
                   [&] { ddp.ready(0); });
    expect_refusal(".ready: parameter 2: expected 0 to 1", [&] { ddp.ready(2); });
    expect_refusal(".ready: there is no parameter \"c\": expected one of a, b", [&] { ddp.ready("c"); });
    std::vector<float> short_one(3);
    std::vector<double> doubles(4);
    expect_refusal(
        ".ready: parameter 1 (\"b\"): its gradient is float32[3] on cpu: expected float32[4] on cpu, as the "
        "parameter",
        [&] { ddp.ready(1, short_one); });
    expect_refusal(
        ".ready: parameter 1 (\"b\"): its gradient is float64[4] on cpu: expected float32[4] on cpu, as the "
        "parameter",
        [&] { ddp.ready("b", doubles); });
    expect_refusal(".prepare_for_backward: unused has 1 parameters: expected none, as find_unused_parameters is false",
                   [&] { ddp.prepare_for_backward({1}); });
    expect_refusal(".register_comm_hook: an iteration is open: expected it before forward() or after finish()", [&] {
        ddp.register_comm_hook({}, [](const ProcessGroup&, GradBucket&) { return Future<Tensor>(); });
    });
    ddp.ready("b");
    expect_refusal(".forward: the last iteration has not been finished: expected finish() before",
                   [&] { ddp.forward(); });
    ddp.finish();
    EXPECT_EQ(da_, std::vector<float>(4, 3));
    ddp.forward();  // on it goes
}

TEST_F(DdpMisuse, of_unused_parameters_is_refused) {
    DistributedDataParallel ddp(both_, {.group = g_, .find_unused_parameters = true, .module_name = "Net"});
    ddp.forward();
    expect_refusal(
        ".prepare_for_backward (module Net): parameter 1 (\"b\") is ready, or unused, already: expected each parameter "
        "once",
        [&] {
            ddp.prepare_for_backward({1, 1});
        });
    ddp.prepare_for_backward({1});
    expect_refusal(
        ".ready (module Net): parameter 1 (\"b\") was said to be unused in this iteration: expected no gradient",
        [&] { ddp.ready("b"); });
    ddp.ready("a");
    ddp.finish();
}

TEST_F(DdpMisuse, of_the_constructor_is_refused) {
    covers("S23-001");
    const auto refused = [&](const std::string& text, std::vector<NamedParameter> parameters,
                             DistributedDataParallelOptions options) {
        options.group = g_;
        expect_refusal(": " + text, [&] { DistributedDataParallel(parameters, options); });
    };
    refused("parameters is empty: expected at least one parameter", {}, {});
    refused("parameter 0 has an empty name: expected a name", {{"", a_}}, {});
    refused("parameter 1 is called \"a\", as another one: expected a name for each", {{"a", a_}, {"a", b_}}, {});
    std::vector<int> integers(3);
    refused("parameter 0 (\"n\"): it is int32[3]: expected a floating-point or complex dtype", {{"n", integers}}, {});
    const TensorView on_card(a_.data(), {4}, float32, {}, {Device::Type::cuda, 1});
    refused("parameter 0 (\"x\"): it is on cuda:1: no backend of group \"world\" serves it", {{"x", on_card}}, {});
    refused("buffer \"m\" is on cuda:1: no backend of group \"world\" serves it", both_, {.buffers = {{"m", on_card}}});
    refused(
        "parameter 0 (\"a\"): it has no gradient: expected one, for what other ranks say about a parameter that is "
        "unused "
        "here",
        {{"a", a_}}, {.find_unused_parameters = true});
    refused(
        "parameter 0 (\"a\"): it has a gradient, but gradient_as_bucket_view is true: expected none, as gradient() "
        "tells the "
        "place",
        both_, {.gradient_as_bucket_view = true});
    refused("parameter \"a\" and the gradient of \"b\" are the same memory: expected tensors that do not overlap",
            {{"a", a_}, {"b", b_, TensorView(a_)}}, {});
    refused("device_ids has 2 entries: expected at most one, the device of this process", both_,
            {.device_ids = {0, 1}});
    refused("device_ids has -1: expected zero or more", both_, {.device_ids = {-1}});
    refused("output_device is 1: expected 0, as device_ids", both_, {.device_ids = {0}, .output_device = 1});
    expect_refusal(": group is one that this rank is not in: expected a group of this rank",
                   [&] { DistributedDataParallel(both_, {.group = ProcessGroup::non_member()}); });
    EXPECT_TRUE(has(message_of<InvalidArgument>([&] { DistributedDataParallel ddp(both_); }), "no default group"));
}

TEST_F(DdpMisuse, of_hooks_gradients_and_objects_is_refused) {
    covers("S23-004");
    DistributedDataParallel ddp({{"a", a_}}, {.group = g_});
    expect_refusal(".gradient: parameter 0 (\"a\") has none: expected one in the constructor",
                   [&] { (void)ddp.gradient(0); });
    expect_refusal(".register_comm_hook: hook is empty: expected a function", [&] { ddp.register_comm_hook({}, {}); });
    const auto hook = [](const ProcessGroup&, GradBucket&) {
        Future<Tensor> wrong;
        wrong.set_value(zeros(float64, {4}));
        return wrong;
    };
    expect_refusal(".register_comm_hook: state is a group that this rank is not in: expected a group of this rank",
                   [&] { ddp.register_comm_hook(ProcessGroup::non_member(), hook); });
    ddp.register_comm_hook({}, hook);
    expect_refusal(".register_comm_hook: there is a hook already: expected one call at most",
                   [&] { ddp.register_comm_hook({}, hook); });
    ddp.forward();
    expect_refusal(".ready: parameter 0 (\"a\") has no gradient: expected one in the constructor, or in this call",
                   [&] { ddp.ready(0); });
    ddp.ready(0, da_);
    expect_refusal(".finish: the hook made float64[4] on cpu of bucket 0: expected 4 elements of float32 on cpu",
                   [&] { ddp.finish(); });
    const DistributedDataParallel moved = std::move(ddp);
    // NOLINTNEXTLINE(bugprone-use-after-move): which is what is tested
    expect_refusal(".forward: it has been moved from: expected an object", [&] { ddp.forward(); });
}

TEST_F(DdpMisuse, of_a_group_that_has_been_destroyed_throws) {
    DistributedDataParallel ddp(both_, {.group = g_});
    ddp.forward();
    g_.destroy();
    ddp.ready(0);
    ddp.ready(1);
    EXPECT_THROW(ddp.finish(), Aborted);
    EXPECT_THROW(DistributedDataParallel(both_, {.group = g_}), Aborted);
}

}  // namespace
}  // namespace tutti::test
