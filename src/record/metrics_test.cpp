// Counters as text; status_test.py compares a job's with the format's rules.
#include "record/metrics.hpp"
#include "record/recorder.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <thread>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

bool has_line(const std::string& text, const std::string& line) {
    return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

std::string describe(std::uint64_t fingerprint) {
    return fingerprint >> 59 == 1 ? "all_reduce of float32 × 10, sum" : "barrier";
}

constexpr std::uint64_t all_reduce = std::uint64_t{1} << 59, barrier = std::uint64_t{9} << 59;

class Counting : public testing::Test {
 protected:
    Counting() { ::setenv("TUTTI_STATUS_PORT", "23456", 1); }
    ~Counting() override { ::unsetenv("TUTTI_STATUS_PORT"); }
};

TEST(Metrics, escape_what_labels_may_not_hold_and_say_no_series_twice) {
    const std::vector<Counters> all{{.group = "a \"b\"\\\n", .rank = 1, .issued = 3}, {.group = "w"}, {.group = "w"}};
    const std::string text = prometheus_text_of(all);
    EXPECT_TRUE(has_line(text, "tutti_operations_issued_total{group=\"a \\\"b\\\"\\\\\\n\",rank=\"1\"} 3")) << text;
    EXPECT_TRUE(has_line(text, "tutti_bytes_total{group=\"w\",rank=\"0\"} 0"));
    EXPECT_TRUE(has_line(text, "tutti_bytes_total{group=\"w#2\",rank=\"0\"} 0"));
}

TEST(Metrics, are_of_whole_groups_where_nobody_asked_for_more) {
    Recorder recorder("g", 0, 3, &describe);
    EXPECT_FALSE(recorder.counts_operations());
    recorder.end(recorder.begin({.sequence = 1, .fingerprint = all_reduce}, State::started), State::completed);
    const std::string text = prometheus_text_of(std::vector{recorder.counters()});
    EXPECT_TRUE(has_line(text, "tutti_operations_completed_total{group=\"g\",rank=\"0\"} 1"));
    EXPECT_TRUE(has_line(text, "tutti_live_peers{group=\"g\",rank=\"0\"} 2"));
    EXPECT_EQ(text.find("operation="), std::string::npos);
}

TEST_F(Counting, tells_calls_bytes_and_errors_by_operation) {
    Recorder recorder("g", 0, 3, &describe);
    ASSERT_TRUE(recorder.counts_operations());
    for (int i = 0; i < 3; ++i)
        recorder.end(recorder.begin({.fingerprint = all_reduce, .bytes = 40}, State::started), State::completed);
    recorder.end(
        recorder.begin({.fingerprint = 31ULL << 59, .bytes = 7, .peer = 1, .kind = Kind::send}, State::started),
        State::completed);
    const Ticket failing = recorder.begin({.fingerprint = barrier}, State::enqueued);
    recorder.begin({.fingerprint = all_reduce, .bytes = 40}, State::enqueued);
    std::this_thread::sleep_for(2ms);
    recorder.note_failure("timeout");
    recorder.note_failure("aborted");
    recorder.note_gone(2);
    recorder.end(failing, State::failed);
    const std::string text = prometheus_text_of(std::vector{recorder.counters()});
    const std::string of = "{group=\"g\",rank=\"0\",operation=";
    EXPECT_TRUE(has_line(text, "tutti_operation_calls_total" + of + "\"all_reduce\"} 4")) << text;
    EXPECT_TRUE(has_line(text, "tutti_operation_bytes_total" + of + "\"all_reduce\"} 160"));
    EXPECT_TRUE(has_line(text, "tutti_operation_bytes_total" + of + "\"send\"} 7"));
    EXPECT_TRUE(has_line(text, "tutti_operation_errors_total" + of + "\"barrier\",cause=\"timeout\"} 1"));
    EXPECT_TRUE(has_line(text, "tutti_operation_duration_seconds_count" + of + "\"all_reduce\"} 3"));
    EXPECT_TRUE(has_line(text, "tutti_operation_duration_seconds_bucket" + of + "\"all_reduce\",le=\"+Inf\"} 3"));
    EXPECT_TRUE(has_line(text, "tutti_operation_duration_seconds_bucket" + of + "\"barrier\",le=\"0.001\"} 0"));
    EXPECT_TRUE(has_line(text, "tutti_operation_duration_seconds_bucket" + of + "\"barrier\",le=\"60\"} 1"));
    EXPECT_TRUE(has_line(text, "tutti_outstanding_operations{group=\"g\",rank=\"0\"} 1"));
    EXPECT_TRUE(has_line(text, "tutti_live_peers{group=\"g\",rank=\"0\"} 1"));
    EXPECT_GE(recorder.counters().oldest_s, 0.002);
}

}  // namespace
}  // namespace tutti::record
