#include "rendezvous/failure_report.hpp"

#include "core/unix_socket.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace tutti::rendezvous {
namespace {

class Reports : public testing::Test {
 protected:
    Reports() {
        ::setenv("TUTTI_LAUNCHER", id_.c_str(), 1);
        ::setenv("TUTTI_LAUNCH_NUMBER", "5", 1);
        ::setenv("RANK", "1", 1);
        ::setenv("WORLD_SIZE", "3", 1);
    }
    ~Reports() override {
        for (const char* name : {"TUTTI_LAUNCHER", "TUTTI_LAUNCH_NUMBER", "RANK", "WORLD_SIZE"}) ::unsetenv(name);
    }
    std::optional<FailureReport> heard() const {
        const auto bytes = net::take_unix_datagram(socket_.get());
        return bytes ? decode_failure_report(*bytes) : std::nullopt;
    }
    const std::string id_ = "test-" + std::to_string(::getpid());
    const UniqueFd socket_ = net::bind_unix_datagrams(report_address(id_));
};

std::exception_ptr timeout_of(int peer, const std::string& text = "timed out") {
    return std::make_exception_ptr(Timeout(text, {.peer = peer}));
}

TEST_F(Reports, name_the_rank_that_the_error_is_about) {
    std::vector<Card> cards(3);
    cards[2].host_name = "node07";
    cards[2].process = 4711;
    report_failure(timeout_of(2), 1, 3, cards);
    const auto report = heard();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->from, 5);
    EXPECT_EQ(report->code, static_cast<int>(ErrorCode::timeout));
    EXPECT_EQ(report->culprit, 2);
    EXPECT_EQ(report->place, "node07, pid 4711");
    EXPECT_EQ(report->text, "timed out");
}

TEST_F(Reports, give_no_number_of_a_world_that_numbers_its_ranks_otherwise) {
    report_failure(timeout_of(1), 0, 2, std::vector<Card>(2));
    ASSERT_EQ(heard().value_or(FailureReport{.culprit = 7}).culprit, -1);
    report_failure(timeout_of(-1), 1, 3, {});
    ASSERT_EQ(heard().value_or(FailureReport{.culprit = 7}).culprit, -1);
}

TEST_F(Reports, are_taken_back_by_a_world_that_comes_together_later) {
    report_failure(timeout_of(2, std::string(100'000, 'x')), 1, 3, {});
    EXPECT_EQ(heard().value_or(FailureReport{}).text.size(), 16384U);
    report_joined(1, 3);
    EXPECT_EQ(heard().value_or(FailureReport{.code = 7}).code, 0);
    report_joined(1, 3);
    EXPECT_FALSE(heard()) << "there is nothing to take back";
}

TEST_F(Reports, say_which_rank_of_the_job_a_process_has_become) {
    EXPECT_TRUE(is_rank_of_job(1, 3));
    report_member(2, 4);
    EXPECT_FALSE(heard()) << "to one that replaces no ranks";
    EXPECT_TRUE(is_rank_of_job(1, 3));
    ::setenv("TUTTI_REPLACES", "1", 1);
    report_member(2, 4);
    const auto report = heard();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->from, 5);
    EXPECT_EQ(report->code, 0);
    EXPECT_EQ(report->rank, 2);
    EXPECT_EQ(report->size, 4);
    EXPECT_FALSE(is_rank_of_job(1, 3));
    report_failure(timeout_of(3), 2, 4, {});
    EXPECT_EQ(heard().value_or(FailureReport{}).culprit, 3);
    report_member(1, 3);  // for the tests that come later in this process
    ::unsetenv("TUTTI_REPLACES");
}

TEST_F(Reports, say_that_the_ranks_have_met_where_they_are_replaced) {
    report_joined(1, 3);
    (void)heard();  // takes back what another test has reported
    report_joined(1, 3);
    EXPECT_FALSE(heard());
    ::setenv("TUTTI_REPLACES", "1", 1);
    report_joined(0, 2);
    EXPECT_FALSE(heard()) << "another world";
    report_joined(1, 3);
    EXPECT_EQ(heard().value_or(FailureReport{}).size, 3);
    ::unsetenv("TUTTI_REPLACES");
}

TEST_F(Reports, are_none_where_no_launcher_listens) {
    ::setenv("TUTTI_LAUNCHER", "nobody", 1);
    report_failure(timeout_of(2), 1, 3, {});
    ::unsetenv("TUTTI_LAUNCHER");
    report_failure(timeout_of(2), 1, 3, {});
    EXPECT_FALSE(heard());
    EXPECT_FALSE(decode_failure_report("not one"));
}

}  // namespace
}  // namespace tutti::rendezvous
