#include "operation/planner.hpp"

#include "operation/block_size_predictor.hpp"
#include "transport/shm/arena.hpp"

#include <gtest/gtest.h>

namespace tutti::detail {
namespace {

algorithm::Layout hosts_of_one_rank(int size) {
    algorithm::Layout layout;
    for (int rank = 0; rank < size; ++rank) layout.host_of.push_back(rank);
    layout.machines = size;
    return layout;
}

algorithm::Layout one_host(int size) {
    const auto shape = transport::ArenaLayout::of(size, size);
    algorithm::Layout layout;
    layout.host_of.assign(static_cast<std::size_t>(size), 0);
    layout.shared_memory = true;
    layout.slot_bytes = shape.slot_bytes;
    layout.slots = shape.slots;
    return layout;
}

algorithm::Request all_reduce_request(std::uint64_t count) {
    return {.collective = Collective::all_reduce, .element_bytes = 4, .count = count};
}

TEST(Planner, keeps_a_schedule_for_the_next_call_of_the_same_shape) {
    Planner planner(hosts_of_one_rank(4), 0, false);
    const auto first = planner.plan(all_reduce_request(1000));
    EXPECT_NE(planner.plan(all_reduce_request(1001)), first);
    EXPECT_EQ(planner.plan(all_reduce_request(1000)), first);
}

TEST(Planner, forgets_the_schedule_that_was_used_longest_ago) {
    Planner planner(hosts_of_one_rank(2), 0, false);
    const auto kept = planner.plan(all_reduce_request(1));
    const auto forgotten = planner.plan(all_reduce_request(2));
    planner.plan(all_reduce_request(1));
    for (std::uint64_t more = 1; more < Planner::schedules_max; ++more) planner.plan(all_reduce_request(2 + more));
    EXPECT_EQ(planner.plan(all_reduce_request(1)), kept);
    EXPECT_NE(planner.plan(all_reduce_request(2)), forgotten);
}

TEST(Planner, takes_names_from_the_tuning_until_it_is_told_another_one) {
    algorithm::Layout layout = hosts_of_one_rank(4);
    layout.tuning.named = "all_reduce=ring,broadcast=chain";
    Planner planner(layout, 0, false);
    EXPECT_EQ(planner.named(Collective::all_reduce), "ring");
    EXPECT_EQ(planner.named(Collective::broadcast), "chain");
    EXPECT_FALSE(planner.named(Collective::barrier));
    planner.serve_with(Collective::all_reduce, std::nullopt);
    EXPECT_FALSE(planner.named(Collective::all_reduce));
}

TEST(Planner, plans_an_all_to_all_of_uneven_blocks_without_passing_them_on) {
    Planner planner(hosts_of_one_rank(2), 0, false);
    const std::vector<std::uint64_t> counts{1, 2};
    engine::CollectiveCall call{.collective = Collective::all_to_all, .dtype = DType::int32};
    call.set_blocks(counts, counts);
    const auto straight = planner.plan(call, {});
    planner.serve_with(Collective::all_to_all, "bruck");
    EXPECT_EQ(planner.plan(call, {}), straight);
}

TEST(Planner, passes_blocks_on_as_the_name_says_or_else_as_the_table_does) {
    Planner planner(hosts_of_one_rank(8), 0, false);
    planner.serve_with(Collective::all_to_all, "bruck");
    EXPECT_EQ(planner.largest_relayed(), BlockSizePredictor::most_room);
    planner.serve_with(Collective::all_to_all, "pairwise");
    EXPECT_EQ(planner.largest_relayed(), 0U);
    planner.serve_with(Collective::all_to_all, std::nullopt);
    const std::uint64_t by_table = planner.largest_relayed();
    EXPECT_GT(by_table, 0U) << "short blocks of eight ranks over TCP";
    planner.serve_with(Collective::all_to_all, "^bruck");
    EXPECT_EQ(planner.largest_relayed(), 0U);
}

engine::CollectiveCall call_of(Collective collective, std::uint64_t bytes) {
    engine::CollectiveCall call{.collective = collective};
    call.set_count(bytes);
    return call;
}

TEST(Planner, short_calls_of_ranks_that_share_memory_run_in_slots_unless_an_algorithm_is_named) {
    Planner planner(one_host(2), 0, false);
    EXPECT_EQ(planner.path(call_of(Collective::all_reduce, 8)), Path::schedule) << "the slots are not there yet";
    planner.use_slots();
    EXPECT_EQ(planner.path(call_of(Collective::all_reduce, 8)), Path::slots);
    EXPECT_EQ(planner.path(call_of(Collective::all_reduce, 1 << 30)), Path::schedule);
    planner.serve_with(Collective::all_reduce, "two_shot");
    EXPECT_EQ(planner.path(call_of(Collective::all_reduce, 8)), Path::schedule);
    EXPECT_EQ(planner.path(call_of(Collective::broadcast, 8)), Path::slots) << "it was named for another collective";
}

TEST(Planner, every_all_to_all_begins_in_slots_and_says_whether_its_blocks_fit) {
    Planner planner(one_host(2), 0, false);
    planner.use_slots();
    for (const auto& [bytes, fits] : {std::pair(8, true), std::pair(1 << 30, false)}) {
        const auto call = call_of(Collective::all_to_all, static_cast<std::uint64_t>(bytes));
        EXPECT_EQ(planner.path(call), Path::slots);
        EXPECT_EQ(planner.fits_in_slots(call), fits);
        EXPECT_EQ(planner.path_by_messages(call), Path::schedule) << "one host passes nothing on";
    }
}

// Of a gather_v: the root's, or another rank's.
struct Gathered {
    Gathered(int rank, int root, std::vector<std::uint64_t> counts) : receive(std::move(counts)), send(receive.size()) {
        send[static_cast<std::size_t>(root)] = receive[static_cast<std::size_t>(rank)];
        if (rank != root) receive.assign(receive.size(), 0);
        call = {.collective = Collective::gather_v, .root = root, .dtype = DType::uint8};
        call.set_blocks(send, receive);
    }
    std::vector<std::uint64_t> receive, send;
    engine::CollectiveCall call;
};

TEST(Planner, a_gather_v_begins_in_slots_and_plans_the_blocks_that_were_too_long_for_them) {
    Planner root(one_host(3), 1, false), other(one_host(3), 2, false), beside_library(one_host(3), 1, false);
    const Gathered at_root(1, 1, {8, 20, 1 << 20}), at_long(2, 1, {8, 20, 1 << 20}), at_short(2, 1, {8, 20, 7});
    EXPECT_EQ(root.path(at_root.call), Path::schedule) << "the slots are not there yet";
    EXPECT_EQ(root.plan(at_root.call, {})->steps.size(), 3U) << "two messages, and its own block";
    beside_library.use_library(true);
    EXPECT_EQ(beside_library.path(at_root.call), Path::schedule)
        << "no library says that two ranks disagree about a block";
    Planner in_slots(one_host(3), 1, false);
    in_slots.use_slots();
    other.use_slots();
    EXPECT_EQ(in_slots.path(at_root.call), Path::slots);
    EXPECT_FALSE(in_slots.fits_in_slots(at_root.call));
    EXPECT_FALSE(other.fits_in_slots(at_long.call));
    EXPECT_TRUE(other.fits_in_slots(at_short.call));
    EXPECT_EQ(in_slots.path_by_messages(at_root.call), Path::schedule);
    const auto rest = in_slots.plan(at_root.call, {.follows_slots = true});
    ASSERT_EQ(rest->steps.size(), 1U);
    EXPECT_EQ(rest->steps[0].peer, 2);
    EXPECT_EQ(other.plan(at_long.call, {.follows_slots = true})->steps.size(), 1U);
}

TEST(Planner, ranks_of_several_hosts_pass_the_blocks_of_an_all_to_all_on) {
    Planner few(hosts_of_one_rank(2), 0, false), many(hosts_of_one_rank(8), 0, false);
    EXPECT_EQ(few.path(call_of(Collective::all_to_all, 8)), Path::schedule);
    EXPECT_EQ(many.path(call_of(Collective::all_to_all, 8)), Path::relay);
    many.serve_with(Collective::all_to_all, "pairwise");
    EXPECT_EQ(many.path(call_of(Collective::all_to_all, 8)), Path::schedule);
}

TEST(Planner, a_library_carries_out_what_is_long_or_quick_to_agree_on_and_nothing_that_is_named) {
    Planner over_network(hosts_of_one_rank(2), 0, false), on_one_host(hosts_of_one_rank(2), 0, false);
    over_network.use_library(false);
    on_one_host.use_library(true);
    EXPECT_EQ(over_network.path(call_of(Collective::all_reduce, 4096)), Path::schedule);
    EXPECT_EQ(over_network.path(call_of(Collective::all_reduce, 1 << 20)), Path::library);
    EXPECT_EQ(on_one_host.path(call_of(Collective::all_reduce, 4096)), Path::library);
    EXPECT_EQ(on_one_host.path(call_of(Collective::all_to_all, 1 << 20)), Path::schedule);
    on_one_host.serve_with(Collective::all_reduce, "ring");
    EXPECT_EQ(on_one_host.path(call_of(Collective::all_reduce, 4096)), Path::schedule);
    on_one_host.serve_with(Collective::all_reduce, "^ring");
    EXPECT_EQ(on_one_host.path(call_of(Collective::all_reduce, 4096)), Path::library);
}

}  // namespace
}  // namespace tutti::detail
