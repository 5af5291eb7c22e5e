// Inquiries of two ranks in one thread, over one store; the test is their court.
#include "failure/failure_inquiry.hpp"

#include "operation/fingerprint.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace tutti::detail {
namespace {

using group::Fingerprint;
using rendezvous::Verdict;
using rendezvous::VerdictKind;

std::uint64_t all_reduce_of(std::uint64_t count) {
    return Fingerprint::pack(static_cast<int>(Collective::all_reduce), DType::float32, ReduceOp::Kind::sum, -1, count);
}

struct CourtOfTest final : WorldFailures {
    bool accuse(const Verdict& accusation) override {
        accusations.push_back(accusation);
        return judges;
    }
    void fail_as_told(ErrorContext /*context*/) override { ++left_to_others; }
    void tell(const Verdict& verdict, bool /*here*/) override { told.push_back(verdict); }
    std::optional<Verdict> gone(int rank) const override {
        if (has_left.empty() || has_left[0] != rank) return {};
        return Verdict{VerdictKind::peer_lost, rank, "it cannot be reached"};
    }
    std::vector<int> departed() const override { return has_left; }
    std::vector<int> silent() const override { return {}; }
    void fail(const std::exception_ptr& error) override { errors.push_back(error); }
    bool failing() const override { return !errors.empty(); }

    bool judges = true;
    std::vector<int> has_left;
    int left_to_others = 0;
    std::vector<Verdict> accusations, told;
    std::vector<std::exception_ptr> errors;
};

/// Rank 0 or 1 of a group of the ranks 4 and 2 of a world.
struct Party {
    Party(int rank, const Store& store)
        : ranks({4, 2}, rank == 0 ? 4 : 2, 6), inquiry("pair", 3, ranks, recorder, store, court) {}

    // The rank calls an all_reduce.
    std::shared_ptr<Operation> call(std::uint64_t count) {
        auto operation = std::make_shared<Operation>();
        operation->name = "all_reduce";
        operation->run.sequence = 1;
        operation->run.started = Clock::now();
        operation->timeout = std::chrono::seconds(1);
        operation->run.ticket =
            recorder.begin({.sequence = 1, .fingerprint = all_reduce_of(count)}, record::State::started);
        return operation;
    }
    std::string text() const {
        try {
            std::rethrow_exception(court.errors.at(0));
        } catch (const std::exception& error) {
            return error.what();
        }
    }
    ErrorContext context() const {
        try {
            std::rethrow_exception(court.errors.at(0));
        } catch (const DistError& error) {
            return error.context();
        }
    }

    Ranks ranks;
    record::Recorder recorder{"pair", ranks.rank(), 2, &Fingerprint::describe, {4, 2}};
    CourtOfTest court;
    FailureInquiry inquiry;
};

class InquiryOfTwo : public testing::Test {
 protected:
    HashStore store_;
    Party first_{0, store_}, second_{1, store_};
};

TEST_F(InquiryOfTwo, about_an_operation_out_of_time_tells_what_the_missing_rank_was_doing) {
    const auto operation = first_.call(8);
    second_.inquiry.publish_tail("told to");
    first_.inquiry.time_out(*operation, {1});
    ASSERT_EQ(first_.court.accusations.size(), 1U);
    const Verdict& accusation = first_.court.accusations[0];
    EXPECT_EQ(accusation.kind, VerdictKind::timed_out);
    EXPECT_EQ(accusation.rank, 2) << "of the world";
    EXPECT_EQ(accusation.group, 3U);
    EXPECT_EQ(accusation.from, 4);
    EXPECT_EQ(first_.text().find("all_reduce #1 in group \"pair\" (2 ranks): timed out after"), 0U) << first_.text();
    EXPECT_NE(first_.text().find("rank 4 has nothing from rank 2"), std::string::npos) << first_.text();
    EXPECT_NE(first_.text().find("rank 2: has not called it"), std::string::npos) << first_.text();
    EXPECT_EQ(first_.context().peer, 2);
}

TEST_F(InquiryOfTwo, ends_with_one_text_on_both_ranks) {
    second_.call(8);
    second_.inquiry.publish_tail("told to");
    first_.inquiry.mismatch(1, 1, all_reduce_of(8), all_reduce_of(7));
    ASSERT_EQ(first_.court.told.size(), 1U);
    EXPECT_EQ(first_.court.told[0].kind, VerdictKind::judged);
    second_.inquiry.fail_as_told(first_.court.told[0], {});
    EXPECT_EQ(first_.text(), second_.text());
    EXPECT_NE(
        first_.text().find("rank 4 called all_reduce of float32 × 7, sum, but rank 2 called all_reduce of float32 "
                           "× 8, sum"),
        std::string::npos)
        << first_.text();
    EXPECT_EQ(second_.context().sequence, 1U);
    EXPECT_THROW(std::rethrow_exception(second_.court.errors[0]), CollectiveMismatch);
}

TEST_F(InquiryOfTwo, finds_the_verdict_in_the_store_where_only_the_accusation_has_come) {
    second_.inquiry.publish_tail("told to");
    first_.inquiry.disagreement({.peer = 1, .sequence = 700});  // of the same fingerprints
    second_.inquiry.fail_as_told(first_.court.accusations[0], {});
    EXPECT_EQ(second_.text(), first_.text());
    EXPECT_NE(first_.text().find("ranks 4 and 2 have disagreed about a collective before it"), std::string::npos);
}

TEST_F(InquiryOfTwo, leaves_the_verdict_to_the_rank_that_judges) {
    first_.court.judges = false;
    first_.inquiry.mismatch_of_blocks(1, 1, all_reduce_of(1), 4, 8);
    EXPECT_EQ(first_.court.left_to_others, 1);
    EXPECT_TRUE(first_.court.errors.empty());
    EXPECT_TRUE(first_.court.told.empty());
}

TEST_F(InquiryOfTwo, does_not_begin_about_ranks_that_disagree_in_a_world_that_fails) {
    first_.court.errors.push_back(std::make_exception_ptr(Aborted("for another reason")));
    first_.inquiry.mismatch(1, 1, all_reduce_of(8), all_reduce_of(7));
    EXPECT_TRUE(first_.court.accusations.empty());
}

TEST_F(InquiryOfTwo, tells_all_why_a_rank_is_given_up) {
    first_.inquiry.give_up(1);
    first_.court.has_left = {2};
    first_.inquiry.give_up(1);
    ASSERT_EQ(first_.court.told.size(), 2U);
    EXPECT_EQ(first_.court.told[0].kind, VerdictKind::left) << "nothing is known but that it has left the group";
    EXPECT_EQ(first_.court.told[0].rank, 2);
    EXPECT_EQ(first_.court.told[0].group, 3U);
    EXPECT_EQ(first_.court.told[1].kind, VerdictKind::peer_lost);
    EXPECT_TRUE(first_.court.accusations.empty());
}

TEST_F(InquiryOfTwo, does_not_wait_for_the_words_of_a_rank_that_has_left) {
    first_.court.has_left = {2};
    const auto operation = first_.call(8);
    const Instant begun = Clock::now();
    first_.inquiry.time_out(*operation, {1});
    EXPECT_LT(Clock::now() - begun, std::chrono::milliseconds(500));
    EXPECT_NE(first_.text().find("has left"), std::string::npos) << first_.text();
}

}  // namespace
}  // namespace tutti::detail
