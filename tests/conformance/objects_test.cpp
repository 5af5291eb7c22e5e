// The object collectives on real ranks: the documents' examples, sizes around each boundary, types, faults.
#include "conformance/world.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

#include <functional>

namespace farm {
struct Shard {
    std::string path;
    std::int64_t rows = 0;
    std::vector<float> weights;
    friend bool operator==(const Shard&, const Shard&) = default;
};
TUTTI_OBJECT(Shard, path, rows, weights);
struct Other {
    std::string path;
};
TUTTI_OBJECT(Other, path);
}  // namespace farm

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

class Objects : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Objects, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

const ObjectList foo{"foo", 12, Object::map({{1, 2}})};
const ObjectList nothing(3);

std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const DistError& error) {
        return error.what();
    }
    return "no error";
}
TEST_P(Objects, of_the_documents_examples_arrive) {
    covers("E-203", "E-206", "E-213", "E-215", "E-217", "S9-005", "S9-006", "S9-007", "S9-008", "S9-009", "S9-010",
           "S9-011");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {  // E-203
        const Device device{Device::Type::cpu, 0};
        if (g.rank() == 0) return send_object_list(foo, {.dst = 1, .group = g, .device = device});
        ObjectList list(3);
        EXPECT_EQ(recv_object_list(list, {.src = 0, .group = g, .device = device}), 0);
        EXPECT_EQ(list, foo);
    });
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<std::size_t>(g.rank());
        ObjectList list = me == 0 ? foo : nothing;  // E-206
        broadcast_object_list(list, {.src = 0, .group = g, .device = Device{}});
        EXPECT_EQ(list, foo);
        ObjectList all(3);  // E-213
        all_gather_object(all, foo[me], {.group = g});
        EXPECT_EQ(all, foo);
        ObjectList gathered(3);  // E-215
        gather_object(foo[me], me == 0 ? &gathered : nullptr, {.dst = 0, .group = g});
        EXPECT_EQ(gathered, me == 0 ? foo : nothing);
        ObjectList output(1);  // E-217
        scatter_object_list(output, me == 0 ? foo : nothing, {.src = 0, .group = g});
        EXPECT_EQ(output, ObjectList(1, foo[me]));
    });
}

TEST_P(Objects, of_user_types_go_round_without_a_word_about_bytes) {
    covers("S9-001", "S9-009");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto shard = [](int rank) {
            return farm::Shard{"part-" + std::to_string(rank), 100 + rank, std::vector<float>(1000, float(rank))};
        };
        const std::vector<farm::Shard> everyone{shard(0), shard(1), shard(2)};
        EXPECT_EQ(all_gather_object(shard(g.rank()), {.group = g}), everyone);
        const std::vector<farm::Shard> at_root = gather_object(shard(g.rank()), {.group = g, .group_dst = 2});
        EXPECT_EQ(at_root, g.rank() == 2 ? everyone : std::vector<farm::Shard>{});
        EXPECT_EQ(broadcast_object(shard(g.rank()), {.src = 1, .group = g}), shard(1));
        const std::vector<farm::Shard> parts = g.rank() == 1 ? everyone : std::vector<farm::Shard>{};
        EXPECT_EQ(scatter_object(parts, {.src = 1, .group = g}), shard(g.rank()));
        if (g.rank() == 0) send_object(shard(7), {.group = g, .group_dst = 2});
        if (g.rank() == 2) {
            const auto [value, source] = recv_object<farm::Shard>({.group = g});
            EXPECT_EQ(value, shard(7));
            EXPECT_EQ(source, 0);
        }
        EXPECT_EQ(all_gather_object("text", {.group = g}), std::vector<std::string>(3, "text"));
        const Object settings = broadcast_object(g.rank() == 0 ? Object{{"lr", 0.1}, {"layers", {64, 10}}} : Object(),
                                                 {.src = 0, .group = g});
        EXPECT_EQ(settings.at("layers").at(1), 10);
        // The copies are the receiver's own.
        Tensor mine = tensor<int>({g.rank()});
        const std::vector<Tensor> tensors = all_gather_object(mine, {.group = g});
        mine.data<int>()[0] = 77;
        for (int r = 0; r < 3; ++r) EXPECT_EQ(tensors[static_cast<std::size_t>(r)].data<int>()[0], r);
    });
}

TEST_P(Objects, of_any_size_arrive_whole_and_large_ones_need_not_be_alike) {
    covers("S9-005", "S9-006", "S9-008", "S9-009", "S9-010", "S9-011");
    run_ranks(3, GetParam(), [](const ProcessGroup& g) {
        const auto me = static_cast<std::size_t>(g.rank());
        // What an object of n bytes of text and its list need beside the text decides where the block ends: try them
        // all.
        std::vector<std::size_t> sizes{0, 1, 4000, 20'000, 300'000};
        for (std::size_t n = 4068; n <= 4084; ++n) sizes.push_back(n);
        for (const std::size_t size : sizes) {
            const auto text = [&](std::size_t rank) { return std::string(size, static_cast<char>('a' + rank)); };
            ObjectList texts{text(0), text(1), text(2)};
            EXPECT_EQ(all_gather_object(Object(text(me)), {.group = g}), texts) << size;
            // Only one rank's is long.
            texts = {"short", text(1), nullptr};
            EXPECT_EQ(all_gather_object(texts[me], {.group = g}), texts) << size;
            ObjectList list(3);
            gather_object(texts[me], me == 1 ? &list : nullptr, {.dst = 1, .group = g});
            EXPECT_EQ(list, me == 1 ? texts : nothing) << size;
            list = {text(0)};
            scatter_object_list(list, me == 2 ? texts : ObjectList{}, {.src = 2, .group = g});
            EXPECT_EQ(list[0], texts[me]) << size;
            list = me == 2 ? texts : nothing;
            broadcast_object_list(list, {.group = g, .group_src = 2});
            EXPECT_EQ(list, texts) << size;
            if (me == 2) send_object_list(texts, {.dst = 0, .group = g});
            if (me == 0) {
                list = nothing;
                EXPECT_EQ(recv_object_list(list, {.group = g}), 2);
                EXPECT_EQ(list, texts) << size;
            }
        }
        const Tensor large = empty(float32, {3, watched ? 30'000 : 500'000});
        std::fill_n(large.data<float>(), large.element_count(), 0.5F + static_cast<float>(me));
        const ObjectList all = all_gather_object(Object{{"rank", g.rank()}, {"data", large}}, {.group = g});
        for (std::size_t r = 0; r < 3; ++r) {
            EXPECT_EQ(all[r].at("rank"), static_cast<int>(r));
            const Tensor& data = all[r].at("data").as_tensor();
            ASSERT_EQ(data.shape(), large.shape());
            const auto elements = data.span<float>();
            EXPECT_TRUE(std::ranges::all_of(elements, [&](float x) { return x == 0.5F + static_cast<float>(r); }));
        }
    });
}

TEST_P(Objects, from_several_senders_are_taken_one_list_at_a_time) {
    covers("S9-006");
    run_ranks(4, GetParam(), [](const ProcessGroup& g) {
        constexpr int rounds = 5;
        const auto list_of = [](int rank, int round) {
            return ObjectList{rank, round, std::string(static_cast<std::size_t>(round) * 3000, 'x')};
        };
        if (g.rank() != 0) {
            for (int round = 0; round < rounds; ++round)
                send_object_list(list_of(g.rank(), round), {.dst = 0, .group = g});
            return barrier({.group = g});
        }
        std::vector<int> seen(4);
        for (int i = 0; i < 3 * rounds; ++i) {
            ObjectList list(3);
            const int source = recv_object_list(list, {.group = g});
            EXPECT_EQ(list, list_of(source, seen[static_cast<std::size_t>(source)]++));
        }
        EXPECT_EQ(seen, (std::vector<int>{0, rounds, rounds, rounds}));
        barrier({.group = g});
    });
}

TEST_P(Objects, with_bad_arguments_or_of_another_type_are_errors_and_the_group_goes_on) {
    covers("S9-007", "A-36", "S9-001");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        ObjectList one(1), two(2), none;
        const Device gpu{Device::Type::cuda, 0};
        EXPECT_THROW(broadcast_object_list(one, {.group = g}), InvalidArgument);
        EXPECT_THROW(broadcast_object_list(one, {.src = 0, .group = g, .group_src = 0}), InvalidArgument);
        EXPECT_THROW(broadcast_object_list(one, {.src = 2, .group = g}), InvalidArgument);
        EXPECT_THROW(broadcast_object_list(one, {.src = 0, .group = g, .device = gpu}), InvalidArgument);
        EXPECT_THROW(broadcast_object_list(one, {.src = 0, .group = g, .timeout = -1ms}), InvalidArgument);
        EXPECT_THROW(send_object_list(one, {.group = g}), InvalidArgument);
        EXPECT_THROW(send_object_list(one, {.dst = g.rank(), .group = g}), InvalidArgument);
        EXPECT_THROW(send_object_list(one, {.dst = 0, .group = g, .group_dst = 1}), InvalidArgument);
        EXPECT_THROW(send_object_list(one, {.dst = 1 - g.rank(), .group = g, .device = gpu}), InvalidArgument);
        EXPECT_THROW(recv_object_list(one, {.src = 0, .group = g, .group_src = 0}), InvalidArgument);
        EXPECT_THROW(recv_object_list(one, {.src = -1, .group = g}), InvalidArgument);
        EXPECT_THROW(all_gather_object(one, 1, {.group = g}), InvalidArgument);
        EXPECT_THROW(gather_object(1, g.rank() == 0 ? nullptr : &two, {.group = g}), InvalidArgument);
        EXPECT_THROW(gather_object(1, &two, {.dst = 0, .group = g, .group_dst = 0}), InvalidArgument);
        EXPECT_THROW(scatter_object_list(none, two, {.group = g}), InvalidArgument);
        if (g.rank() == 0) {
            EXPECT_THROW(scatter_object_list(one, one, {.group = g}), InvalidArgument);
        }
        const Object foreign = Tensor(TensorView(&one, {1}, int8, {}, gpu), nullptr);
        EXPECT_TRUE(has(error_of([&] {
                            (void)all_gather_object(Object{{"x", foreign}}, {.group = g});
                        }),
                        "[0].x: a tensor on cuda:0"));
        // Ranks that do not send what the reader wants: he says where, the others do not notice.
        const std::string text = error_of([&] {
            const Object mine = g.rank() == 0 ? Object(farm::Shard{"a", 1, {}}) : Object(farm::Other{"b"});
            (void)detail::take_list<farm::Shard>("all_gather_object", all_gather_object(mine, {.group = g}));
        });
        EXPECT_EQ(text, "[1]: expected a record Shard, got a record Other (in all_gather_object)");
        const std::string typed = error_of([&] {
            if (g.rank() == 0) return send_object(12, {.dst = 1, .group = g});
            (void)recv_object<std::string>({.group = g});
        });
        EXPECT_EQ(typed, g.rank() == 0 ? "no error" : "expected a string, got an integer (in recv_object)");
        EXPECT_EQ(all_gather_object(g.rank(), {.group = g}), (std::vector<int>{0, 1}));
    });
}

TEST_P(Objects, in_lists_of_other_lengths_or_other_calls_are_mismatches_that_show_both_sides) {
    covers("S9-005", "S9-008", "S17-002");
    const auto fails = [&](const std::string& mine, const std::string& theirs, const Body& body) {
        run_ranks(2, GetParam(),
                  [&](const ProcessGroup& g) {
                      const std::string text = error_of([&] { body(g); });
                      EXPECT_TRUE(has(text, mine) && has(text, theirs)) << text;
                  },
                  {.timeout = 10s, .leave = false});
    };
    fails("broadcast_object_list of 2 objects, root 0", "broadcast_object_list of 3 objects, root 0",
          [](const ProcessGroup& g) {
              ObjectList list(g.rank() == 0 ? 2 : 3);
              broadcast_object_list(list, {.src = 0, .group = g});
              barrier({.group = g});
          });
    fails("all_gather_object of 1 object", "all_gather of uint8 × 4096", [](const ProcessGroup& g) {
        std::vector<std::uint8_t> block(4096), blocks(8192);
        if (g.rank() == 0) (void)all_gather_object(1, {.group = g});
        if (g.rank() == 1) all_gather_into_tensor(blocks, block, {.group = g});
        barrier({.group = g});
    });
    fails("a message of 2 objects", "a message of 1 object", [](const ProcessGroup& g) {
        ObjectList one(1), two(2);
        if (g.rank() == 0) send_object_list(two, {.dst = 1, .group = g});
        if (g.rank() == 1) recv_object_list(one, {.group = g});
        barrier({.group = g});
    });
}

TEST_P(Objects, that_never_come_end_the_wait_at_its_deadline) {
    covers("S9-006");
    run_ranks(2, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 0) return (std::this_thread::sleep_for(600ms));
                  ObjectList list(1);
                  const auto began = std::chrono::steady_clock::now();
                  EXPECT_THROW(recv_object_list(list, {.group = g, .timeout = 200ms}), Timeout);
                  EXPECT_LT(std::chrono::steady_clock::now() - began, patience(5s));
              },
              {.leave = false});
}

}  // namespace
}  // namespace tutti::test
