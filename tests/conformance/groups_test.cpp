// Groups of some ranks: who is in them, what they do beside each other, and what goes wrong in making them.
#include "conformance/world.hpp"
#include "support/covers.hpp"
#include "support/patience.hpp"

#include <dirent.h>

#include <fstream>
#include <numeric>

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Ints = std::vector<std::int32_t>;
using Ranks = std::vector<int>;

class Groups : public ::testing::TestWithParam<How> {};

TEST_P(Groups, serve_their_members_by_global_and_group_ranks) {
    covers("S4-002", "S4-003", "S4-004", "S4-005", "S4-012", "S4-016", "S4-020", "S4-021", "S4-022", "S4-023", "S4-024",
           "A-61");
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const ProcessGroup g = new_group({3, 1}, {.group_desc = "odd", .world = w});
        Ints x{w.rank(), 10};
        if (w.rank() % 2 == 0) {
            EXPECT_TRUE(g.is_non_member());
            EXPECT_EQ(g, GroupMember::non_group_member());
            EXPECT_EQ(get_rank(g), -1);
            EXPECT_EQ(get_world_size(g), -1);
            all_reduce(x, {.group = g});
            EXPECT_FALSE(async::all_reduce(x, {.group = g}));
            EXPECT_FALSE(isend(x, 1, {.group = g}));
            EXPECT_FALSE(irecv(x, {.src = 1, .group = g}));
            EXPECT_EQ(recv(x, {.group = g}), -1);
            ObjectList list(3, Object("mine"));
            EXPECT_EQ(recv_object_list(list, {.group = g}), -1);
            all_gather_object(list, Object("other"), {.group = g});
            EXPECT_EQ(list[2].as_string(), "mine");
            barrier({.group = g});
            monitored_barrier({.group = g});
            EXPECT_EQ(x, (Ints{w.rank(), 10}));
            EXPECT_TRUE(has(message_of<InvalidArgument>([&] { get_backend(g); }), "not in the group"));
        } else {
            EXPECT_EQ(g.ranks(), (Ranks{1, 3}));
            EXPECT_EQ(get_process_group_ranks(g), (Ranks{1, 3}));
            EXPECT_EQ(g.size(), 2);
            EXPECT_EQ(g.rank(), w.rank() / 2);
            EXPECT_EQ(g.description(), "odd");
            EXPECT_EQ(get_group_rank(g, 3), 1);
            EXPECT_EQ(get_global_rank(g, 0), 1);
            EXPECT_TRUE(has(message_of<InvalidArgument>([&] { get_group_rank(g, 2); }), "2 is not in group"));
            EXPECT_TRUE(has(message_of<InvalidArgument>([&] { get_global_rank(g, 2); }), "expected 0 to 1"));
            all_reduce(x, {.group = g});
            EXPECT_EQ(x, (Ints{4, 20}));
            Ints y{w.rank()};
            broadcast(y, {.src = 3, .group = g});
            EXPECT_EQ(y[0], 3);
            broadcast(y = {w.rank()}, {.group = g, .group_src = 0});
            EXPECT_EQ(y[0], 1);
            reduce(y = {w.rank()}, {.dst = 3, .group = g});
            EXPECT_EQ(y[0], w.rank() == 3 ? 4 : 1);
            EXPECT_TRUE(has(message_of<InvalidArgument>([&] { broadcast(y, {.src = 2, .group = g}); }),
                            "src 2 is not in group \"odd_1\": expected one of its global ranks 1, 3"));
            EXPECT_TRUE(has(message_of<InvalidArgument>([&] { gather(y, {}, {.group = g}); }), "dst 0 is not in"));
            if (w.rank() == 1) {
                send(y, 3, {.tag = 4, .group = g});
                send_object_list({Object("hello")}, {.dst = 3, .group = g});
            } else {
                Ints from(1);
                EXPECT_EQ(recv(from, {.tag = 4, .group = g}), 1);
                EXPECT_EQ(from[0], 1);
                ObjectList objects(1);
                EXPECT_EQ(recv_object_list(objects, {.group = g}), 1);
                EXPECT_EQ(objects[0].as_string(), "hello");
            }
            monitored_barrier({.group = g});
        }
        EXPECT_EQ(get_group_rank(w, 2), 2);
        const ProcessGroup all = new_group({.timeout = 5s, .world = w});
        EXPECT_EQ(all.size(), 4);
        EXPECT_EQ(all.timeout(), 5s);
        const auto [mine, subgroups] = new_subgroups(2, {.world = w});
        ASSERT_EQ(subgroups.size(), 2U);
        EXPECT_EQ(mine.ranks(), (w.rank() < 2 ? Ranks{0, 1} : Ranks{2, 3}));
    });
}

TEST_P(Groups, work_beside_each_other_in_any_order) {
    covers("S4-014", "S4-015");
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const auto rows = new_groups({{0, 1}, {2, 3}}, {.world = w});
        const auto columns = new_groups({{0, 2}, {1, 3}}, {.world = w});
        const ProcessGroup& row = rows[static_cast<std::size_t>(me / 2)];
        const ProcessGroup& column = columns[static_cast<std::size_t>(me % 2)];
        for (int round = 0; round < 20; ++round) {
            const std::size_t count = round % 3 == 0 ? 4 : round % 3 == 1 ? 5000 : 200'000;
            std::vector<float> a(count, static_cast<float>(me)), b(count, static_cast<float>(10 * me)), c(count, 1);
            std::vector<Work> works;
            // Each rank starts them in another order.
            for (int i = 0; i < 3; ++i) {
                const int which = (i + me + round) % 3;
                if (which == 0) works.push_back(async::all_reduce(a, {.group = row}));
                if (which == 1) works.push_back(async::all_reduce(b, {.group = column}));
                if (which == 2) works.push_back(async::all_reduce(c, {.group = w}));
            }
            wait_all(works);
            const float in_row = me < 2 ? 1 : 5, in_column = me % 2 == 0 ? 20 : 40;
            EXPECT_EQ(a, std::vector<float>(count, in_row));
            EXPECT_EQ(b, std::vector<float>(count, in_column));
            EXPECT_EQ(c, std::vector<float>(count, 4));
        }
    });
}

TEST_P(Groups, keep_their_messages_apart) {
    run_ranks(2, GetParam(), [](const ProcessGroup& w) {
        const ProcessGroup g = new_group({0, 1}, {.world = w});
        Ints in_group(1), in_world(1);
        if (w.rank() == 0) {
            send(Ints{1}, 1, {.tag = 3, .group = g});
            send(Ints{2}, 1, {.tag = 3, .group = w});
        } else {
            recv(in_world, {.src = 0, .tag = 3, .group = w});
            recv(in_group, {.tag = 3, .group = g});
            EXPECT_EQ(in_world[0], 2);
            EXPECT_EQ(in_group[0], 1);
        }
        barrier({.group = w});
    });
}

TEST(GroupsOfOthers, are_called_with_one_warning_for_each_function_and_take_no_messages) {
    covers("S4-023");
    ::testing::internal::CaptureStderr();
    run_ranks(2, How::threads, [](const ProcessGroup& w) {
        const ProcessGroup g = new_group({0}, {.world = w});
        if (w.rank() == 0) return;
        Ints x{1}, y{2};
        std::vector<float> numbers(1), few(1);
        for (int i = 0; i < 3; ++i) {  // functions that no other test calls like this
            all_gather_v(x, y, {.group = g});
            EXPECT_FALSE(async::all_to_all_v(x, y, {.group = g}));
            quantized_reduce_scatter(few, numbers, {.group = g});
        }
        ObjectList list{Object("mine")};
        const auto refused = [](const auto& call) {
            EXPECT_TRUE(has(message_of<InvalidArgument>(call), "this rank is not in the group"));
        };
        refused([&] { send(x, 0, {.group = g}); });
        refused([&] { send_to_group_rank(x, 0, {.group = g}); });
        refused([&] { send_object_list(list, {.dst = 0, .group = g}); });
        refused([&] { (void)batch_isend_irecv({isend_op(x, 0, {.group = g})}); });
        refused([&] { (void)batch_isend_irecv({irecv_op(x, 0, {.group = g})}); });
        EXPECT_EQ(x, Ints{1});
    });
    const std::string log = ::testing::internal::GetCapturedStderr();
    for (const char* name : {"all_gather_v", "all_to_all_v", "quantized_reduce_scatter"}) {
        const std::string line =
            "Running " + std::string(name) + " on global rank -1 which does not belong to the given group.";
        const std::size_t first = log.find(line);
        ASSERT_NE(first, std::string::npos) << name << " in: " << log;
        EXPECT_EQ(log.find(line, first + 1), std::string::npos) << "more than once: " << log;
    }
}

TEST_P(Groups, are_split_by_colour_and_ordered_by_key) {
    run_ranks(5, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const ProcessGroup g = w.split({.color = me == 4 ? -1 : me % 2, .key = -me, .group_desc = "half"});
        if (me == 4) {
            EXPECT_TRUE(g.is_non_member());
        } else {
            EXPECT_EQ(g.ranks(), (me % 2 == 0 ? Ranks{2, 0} : Ranks{3, 1}));
            Ints all(2);
            all_gather_into_tensor(all, Ints{me}, {.group = g});
            EXPECT_EQ(all, (Ints{me % 2 + 2, me % 2}));
            // Parts of a part, made by its members alone.
            const ProcessGroup alone = g.split({.color = g.rank()});
            EXPECT_EQ(alone.ranks(), Ranks{me});
            const ProcessGroup again = g.split({.key = g.rank()});
            EXPECT_EQ(again.ranks(), g.ranks());
            std::vector<double> x(30'000, me);
            all_reduce(x, {.group = again});
            EXPECT_EQ(x.back(), me % 2 == 0 ? 2 : 4);
            all_reduce(x, {.group = alone});
            EXPECT_EQ(x.back(), me % 2 == 0 ? 2 : 4);
        }
        barrier({.group = w});
    });
}

TEST_P(Groups, that_ranks_do_not_agree_about_are_an_error_on_all) {
    run_ranks(
        3, GetParam(),
        [](const ProcessGroup& w) {
            const std::string text = message_of<CollectiveMismatch>([&] {
                (void)new_group(w.rank() == 2 ? Ranks{0, 2} : Ranks{0, 1}, {.world = w});
            });
            EXPECT_TRUE(has(text, "rank 0 makes a group of ranks [0, 1], but rank 2 makes a group of ranks [0, 2]"))
                << text;
            // The world lives, and all ranks know where the next group's memory is.
            EXPECT_THROW((void)new_group(w.rank() == 2 ? Ranks{2} : Ranks{0, 1, 2}, {.world = w}), CollectiveMismatch);
            std::vector<double> x(50'000, 1);
            all_reduce(x, {.group = new_group({0, 1, 2}, {.world = w})});
            EXPECT_EQ(x, std::vector<double>(x.size(), 3));
            EXPECT_EQ(new_group({0, 1, 2}, {.world = w}).size(), 3);
            for (const Ranks& ranks : {Ranks{}, Ranks{0, 0}, Ranks{0, 3}, Ranks{-1}})
                EXPECT_THROW((void)new_group(ranks, {.world = w}), InvalidArgument);
            EXPECT_THROW((void)new_group({0}, {.timeout = 0ms, .world = w}), InvalidArgument);
            EXPECT_THROW((void)new_group({0}, {.backend = "carrier pigeon", .world = w}), InvalidArgument);
            EXPECT_THROW((void)new_subgroups(2, {.world = w}), InvalidArgument);
            EXPECT_THROW((void)new_subgroups_by_enumeration({{0, 1}, {1, 2}}, {.world = w}), InvalidArgument);
            EXPECT_EQ(new_group({0, 1, 2}, {.backend = "native", .device_id = Device{}, .world = w}).size(), 3);
        },
        {.timeout = 10s});
}

TEST_P(Groups, made_by_two_threads_at_once_are_the_same_on_all_ranks_or_an_error) {
    covers("S1-002");
    run_ranks(3, GetParam(), [](const ProcessGroup& w) {
        const auto make_two = [&](const Ranks& mine, const Ranks& other) {
            std::array<std::optional<ProcessGroup>, 2> groups;
            const auto make = [&](std::size_t i, const Ranks& ranks) {
                try {
                    groups.at(i) = new_group(ranks, {.world = w});
                } catch (const CollectiveMismatch&) {
                }
            };
            std::thread beside([&] { make(1, other); });
            make(0, mine);
            beside.join();
            return groups;
        };
        for (int round = 0; round < 20; ++round) {
            auto groups = make_two({0, 1, 2}, {0, 1, 2});
            ASSERT_TRUE(groups[0] && groups[1]);
            if (groups[1]->name() < groups[0]->name()) std::swap(groups[0], groups[1]);
            for (const auto& group : groups) {
                Ints x{w.rank()};
                all_reduce(x, {.group = *group});
                EXPECT_EQ(x, Ints{3});
            }
        }
        // Whoever makes different ones meets in one order, or not: on all ranks alike.
        const auto groups = make_two({0, 1}, {1, 2});
        Ints made{groups[0] && groups[1] ? 1 : 0};
        all_reduce(made, {.group = w});
        EXPECT_TRUE(made == Ints{0} || made == Ints{3}) << made[0];
    });
}

TEST_P(Groups, can_be_made_by_their_members_alone) {
    covers("S4-008", "S4-009");
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        const auto begin = std::chrono::steady_clock::now();
        if (me == 1 || me == 3) {  // the others do not call it
            if (me == 3) std::this_thread::sleep_for(300ms);
            const ProcessGroup g = new_group({1, 3}, {.use_local_synchronization = true, .world = w});
            EXPECT_GE(std::chrono::steady_clock::now() - begin, me == 3 ? 300ms : 200ms) << "they wait for each other";
            Ints x{me};
            all_reduce(x, {.group = g});
            EXPECT_EQ(x[0], 4);
        }
        // Overlapping groups in one order.
        for (const Ranks& ranks : {Ranks{0, 1}, Ranks{0, 2, 3}, Ranks{0, 1}, Ranks{2, 3}}) {
            if (std::ranges::find(ranks, me) == ranks.end()) continue;
            const ProcessGroup g = new_group(ranks, {.use_local_synchronization = true, .world = w});
            Ints x{1};
            all_reduce(x, {.group = g});
            EXPECT_EQ(x[0], static_cast<int>(ranks.size()));
        }
        barrier({.group = w});
    });
}

TEST_P(Groups, made_in_a_circle_are_an_error_and_no_deadlock) {
    covers("S4-010");
    run_ranks(4, GetParam(), [](const ProcessGroup& w) {
        const int me = w.rank();
        if (me < 3) {
            // 0 makes {0, 1}, 1 makes {1, 2}, 2 makes {0, 2}: each waits for the next.
            const Ranks first = me == 0 ? Ranks{0, 1} : me == 1 ? Ranks{1, 2} : Ranks{0, 2};
            const auto begin = std::chrono::steady_clock::now();
            const std::string text = message_of<InvalidArgument>(
                [&] { (void)new_group(first, {.use_local_synchronization = true, .world = w}); });
            EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(5s));
            EXPECT_TRUE(has(text, "rank 0 makes the group of [0, 1]")) << text;
            EXPECT_TRUE(has(text, "rank 2 makes the group of [0, 2]")) << text;
        }
        barrier({.group = w});
        if (me == 3) {  // whoever never comes is missed
            const std::string text = message_of<Timeout>([&] {
                (void)new_group({2, 3}, {.timeout = 300ms, .use_local_synchronization = true, .world = w});
            });
            EXPECT_TRUE(has(text, "timed out")) << text;
        }
        barrier({.group = w});
    });
}

TEST_P(Groups, end_one_by_one_before_their_world) {
    run_ranks(3, GetParam(),
              [](const ProcessGroup& w) {
                  for (int round = 0; round < 3; ++round) {
                      ProcessGroup g = new_group({0, 1}, {.world = w});
                      if (g) {
                          std::vector<float> x(100'000, 1);
                          Work work = async::all_reduce(x, {.group = g});
                          Ints never(1);
                          Work unmet = irecv(never, {.src = 1 - w.rank(), .tag = 9, .group = g});
                          g.destroy();
                          EXPECT_TRUE(work.is_completed());
                          EXPECT_EQ(x[99'999], 2);
                          EXPECT_THROW(unmet.wait(), Aborted);
                          EXPECT_THROW(all_reduce(x, {.group = g}), Aborted);
                          EXPECT_THROW(send(never, 1 - w.rank(), {.group = g}), Aborted);
                      }
                      Ints y{1};
                      all_reduce(y, {.group = w});
                      EXPECT_EQ(y[0], 3);
                  }
                  // Who waits for a rank that has left the group learns it.
                  ProcessGroup g = new_group({0, 1, 2}, {.world = w});
                  if (w.rank() == 1) {
                      g.destroy();
                      std::this_thread::sleep_for(2s);
                  } else {
                      const auto begin = std::chrono::steady_clock::now();
                      const std::string text = message_of<PeerLost>([&] { barrier({.group = g}); });
                      EXPECT_TRUE(has(text, "rank 1 has left the group")) << text;
                      // Who shares memory sees it, also while rank 1 is busy elsewhere.
                      const auto limit = g.hosts().back() == 0 ? 1500ms : 20'000ms;
                      EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(limit));
                  }
              },
              {.timeout = 20s, .leave = false});
}

TEST_P(Groups, of_a_destroyed_world_are_over) {
    run_ranks(2, GetParam(), [](const ProcessGroup& w) {
        const ProcessGroup g = new_group({0, 1}, {.world = w});
        barrier({.group = g});
        ProcessGroup(w).destroy();
        EXPECT_THROW(barrier({.group = g}), Aborted);
    });
}

TEST_P(Groups, name_the_world_s_ranks_when_they_fail) {
    run_ranks(3, GetParam(),
              [](const ProcessGroup& w) {
                  const ProcessGroup g = new_group({1, 2}, {.timeout = 400ms, .group_desc = "pair", .world = w});
                  if (w.rank() == 1) {
                      Ints x{1};
                      try {
                          all_reduce(x, {.group = g});
                          ADD_FAILURE() << "no timeout";
                      } catch (const Timeout& error) {
                          EXPECT_TRUE(has(error.what(), "in group \"pair_1\" (2 ranks)")) << error.what();
                          EXPECT_TRUE(has(error.what(), "rank 1 has nothing from rank 2")) << error.what();
                          EXPECT_TRUE(has(error.what(), "rank 2: has not called it")) << error.what();
                          EXPECT_EQ(error.context().peer, 2);
                          EXPECT_EQ(error.context().rank, 1);
                      }
                  } else {
                      std::this_thread::sleep_for(1s);
                      const std::string text = message_of<Timeout>([&] { barrier({.group = w}); });
                      EXPECT_TRUE(has(text, "all_reduce")) << text;
                  }
              },
              {.timeout = 20s, .leave = false});
}

INSTANTIATE_TEST_SUITE_P(Ranks, Groups, ::testing::ValuesIn(whole_worlds()),
                         [](const auto& tested) { return to_string(tested.param); });

#ifndef TUTTI_THREADS_ONLY
int open_descriptors() {
    int count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
}

// Of this process: pages that several use count in parts.
std::int64_t proportional_kb() {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string word; file >> word;) {
        std::int64_t kb = 0;
        if (word == "Pss:" && file >> kb) return kb;
    }
    return 0;
}

TEST(ManyGroups, open_no_descriptors_and_take_little_memory) {
    constexpr int ranks = 8, groups = 1000;
    run_ranks(ranks, How::shm_processes, [](const ProcessGroup& w) {
        const auto use = [&w](const ProcessGroup& group) {
            Ints x{1};
            all_reduce(x, {.group = group});
            EXPECT_EQ(x[0], w.size());
        };
        Ranks all(ranks);
        std::iota(all.begin(), all.end(), 0);
        use(new_group(all, {.world = w}));
        std::this_thread::sleep_for(300ms);  // a parent takes its children's lifelines when it has time
        const int descriptors = open_descriptors();
        const std::int64_t before = proportional_kb();
        barrier({.group = w});
        std::vector<ProcessGroup> made;
        for (int i = 0; i < groups; ++i) {
            made.push_back(new_group(all, {.world = w}));
            use(made.back());
        }
        const std::int64_t each = (proportional_kb() - before) / groups;
        EXPECT_LT(each, 64) << "KB a group and rank";
        EXPECT_EQ(open_descriptors(), descriptors);
        if (w.rank() == 0) std::printf("%ld KB a group and rank\n", static_cast<long>(each));
        barrier({.group = w});
        made.clear();
        barrier({.group = w});
    });
}
#endif

TEST_P(Groups, that_some_have_left_are_formed_anew_by_those_who_stay) {
    if (GetParam() == How::part) return;  // who leaves a part has not left the world
    run_ranks(4, GetParam(),
              [](const ProcessGroup& g) {
                  if (g.rank() == 2) return ProcessGroup(g).destroy();
                  EXPECT_THROW((void)g.shrink({.timeout = std::chrono::milliseconds(-1)}), InvalidArgument);
                  ProcessGroup smaller = g.shrink();
                  EXPECT_EQ(smaller.size(), 3);
                  EXPECT_EQ(smaller.rank(), g.rank() - (g.rank() > 2 ? 1 : 0));
                  EXPECT_EQ(smaller.description(), "ranks 0, 1, 3 of \"world\"");
                  std::vector<int> x(5000, g.rank());
                  all_reduce(x, {.group = smaller});
                  EXPECT_EQ(x, std::vector<int>(5000, 4));
                  EXPECT_THROW(all_reduce(x, {.group = g}), DistError);
                  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others are through, too
                  smaller = smaller.shrink();                                   // nobody is missing: all of them
                  EXPECT_EQ(smaller.size(), 3);
                  EXPECT_EQ(smaller.name(), "world.2");
                  barrier({.group = smaller});
                  smaller.destroy();
                  EXPECT_THROW((void)smaller.shrink(), InvalidArgument);
              },
              {.leave = false});
}

}  // namespace
}  // namespace tutti::test
