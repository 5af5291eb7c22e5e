#include "operation/fingerprint.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::group {
namespace {

std::string text_of(Collective collective, std::uint64_t count, int root = -1) {
    return Fingerprint::describe(
        Fingerprint::pack(static_cast<int>(collective), float32, ReduceOp::Kind::sum, root, count));
}
std::string text_of(Collective collective, const std::vector<std::uint64_t>& counts) {
    return Fingerprint::describe(
        Fingerprint::pack(static_cast<int>(collective), float32, ReduceOp::Kind::sum, -1, counts));
}

TEST(Fingerprint, tells_the_call_as_its_caller_knows_it) {
    EXPECT_EQ(text_of(Collective::all_reduce, 10), "all_reduce of float32 × 10, sum");
    EXPECT_EQ(text_of(Collective::broadcast, 0, 1), "broadcast of float32 × 0, root 1");
    EXPECT_EQ(text_of(Collective::all_gather, {5, 5}), "all_gather of float32 × 5");
    EXPECT_EQ(text_of(Collective::barrier, 0), "barrier");
}

TEST(Fingerprint, tells_no_count_that_it_does_not_hold) {
    EXPECT_EQ(text_of(Collective::all_to_all, 0), "all_to_all of float32");
}

TEST(Fingerprint, says_what_the_digest_of_sizes_is) {
    const std::string text = text_of(Collective::all_gather, {5, 6});
    EXPECT_EQ(text.find("all_gather of float32, sizes by rank (digest of them all: "), 0U) << text;
    EXPECT_NE(text, text_of(Collective::all_gather, {6, 5}));
}

TEST(Fingerprint, of_a_message_between_neighbours_says_on_what_they_must_agree) {
    NeighborTerms terms{.dim = 2, .low = 1, .high = 99, .periodic = true};
    const std::uint64_t first = Fingerprint::pack(terms, float64, 64);
    EXPECT_EQ(
        Fingerprint::describe(first),
        "exchange_halos along dimension 2 of the tensor, widths 1 and 15 or more, periodic, a face of float64 × 64");
    terms.periodic = false;
    EXPECT_NE(Fingerprint::pack(terms, float64, 64), first);
    EXPECT_TRUE(is_message(first));
    const std::uint64_t gathered =
        Fingerprint::pack(NeighborTerms{.function = NeighborTerms::Function::all_gather}, int8, 3);
    EXPECT_EQ(Fingerprint::describe(gathered), "neighbor_all_gather, a message of int8 × 3");
}

TEST(Fingerprint, of_a_callers_operator_says_which_one_if_this_process_has_it) {
    const ReduceOp op = ReduceOp::of([](double a, double b) { return a * b; }, {.commutative = false, .name = "times"});
    const auto packed = [](const ReduceOp& one, std::uint64_t count, int root = -1) {
        return Fingerprint::pack(static_cast<int>(Collective::reduce), float64, *one.user(), root, count);
    };
    std::string text = Fingerprint::describe(packed(op, 10, 2));
    EXPECT_EQ(text.find("reduce of float64 × 10, operator \"times\" of 8-byte elements ("), 0U) << text;
    EXPECT_EQ(text.substr(text.size() - 24), "), in rank order, root 2") << text;
    text = Fingerprint::describe(packed(op, 1 << 20, 2));
    EXPECT_EQ(text.find("reduce of float64, an operator of the caller, in rank order (digest of sizes"), 0U) << text;
    // Each of these makes a difference.
    const auto named = [](const char* name, bool commutative) {
        return ReduceOp::of([](double a, double) { return a; }, {.commutative = commutative, .name = name});
    };
    const std::uint64_t all[] = {packed(named("a", true), 5),       packed(named("b", true), 5),
                                 packed(named("a", false), 5),      packed(named("a", true), 6),
                                 packed(named("a", true), 1 << 20), packed(named("b", true), 1 << 20)};
    for (const std::uint64_t& one : all) EXPECT_EQ(std::ranges::count(all, one), 1);
    EXPECT_EQ(packed(named("a", true), 5), packed(named("a", true), 5));
}

TEST(Fingerprint, of_a_graph_says_how_it_begins) {
    const std::uint64_t first =
        Fingerprint::pack(static_cast<int>(Collective::broadcast), float32, ReduceOp::Kind::sum, 1, 10);
    const std::string text = Fingerprint::describe(Fingerprint::pack_graph(first, 0x1234567890abcdef));
    EXPECT_EQ(text.find("a graph that begins with broadcast of float32 (digest of its collectives: "), 0U) << text;
    EXPECT_NE(text, Fingerprint::describe(Fingerprint::pack_graph(first, 0x1234567890abcdee)));
    EXPECT_FALSE(is_message(Fingerprint::pack_graph(first, 1)));
}

}  // namespace
}  // namespace tutti::group
