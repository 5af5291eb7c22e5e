// Variables that choose among names.
#include "core/settings.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tutti::settings {
namespace {

class Settings : public ::testing::Test {
 protected:
    void set(const char* variable, const char* value) {
        ::setenv(variable, value, 1);
        variable_ = variable;
    }
    ~Settings() override {
        if (variable_ != nullptr) ::unsetenv(variable_);
    }

 private:
    const char* variable_ = nullptr;
};

template <class F>
std::string complaint(F call) {
    try {
        call();
        return "nothing";
    } catch (const InvalidArgument& error) {
        return error.what();
    }
}

TEST_F(Settings, an_unset_or_empty_variable_takes_the_first_choice) {
    EXPECT_EQ(determinism(), Determinism::fast);
    set("TUTTI_WAIT", "");
    EXPECT_EQ(wait(), Wait::automatic);
    EXPECT_EQ(timeout(), std::nullopt);
}

TEST_F(Settings, names_are_taken_as_they_are) {
    set("TUTTI_DETERMINISM", "layout_invariant");
    EXPECT_EQ(determinism(), Determinism::layout_invariant);
}

TEST_F(Settings, another_name_is_refused_with_all_that_are_expected) {
    set("TUTTI_TRANSPORT", "rdma");
    EXPECT_EQ(complaint([] { transport(); }), "environment variable TUTTI_TRANSPORT=rdma: expected auto, shm or tcp");
}

TEST_F(Settings, checksums_are_for_what_leaves_the_host_unless_told_otherwise) {
    EXPECT_EQ(tcp_checksum(), TcpChecksum::automatic);
    set("TUTTI_TCP_CHECKSUM", "off");
    EXPECT_EQ(tcp_checksum(), TcpChecksum::off);
    set("TUTTI_TCP_CHECKSUM", "crc");
    EXPECT_EQ(complaint([] { tcp_checksum(); }),
              "environment variable TUTTI_TCP_CHECKSUM=crc: expected auto, on or off");
}

TEST_F(Settings, encryption_is_on_or_off_and_off_unless_it_is_said) {
    EXPECT_FALSE(tls());
    set("TUTTI_TLS", "on");
    EXPECT_TRUE(tls());
    set("TUTTI_TLS", "off");
    EXPECT_FALSE(tls());
    set("TUTTI_TLS", "1");
    EXPECT_EQ(complaint([] { tls(); }), "environment variable TUTTI_TLS=1: expected off or on");
}

TEST_F(Settings, the_niceness_of_the_progress_thread_stays_as_it_is_unless_told_otherwise) {
    EXPECT_EQ(progress_nice(), 0);
    set("TUTTI_PROGRESS_NICE", "-5");
    EXPECT_EQ(progress_nice(), -5);
    set("TUTTI_PROGRESS_NICE", "-21");
    EXPECT_NE(complaint([] { progress_nice(); }).find("TUTTI_PROGRESS_NICE=-21: expected an integer from -20"),
              std::string::npos);
}

TEST_F(Settings, callers_threads_and_buffers_are_left_alone_where_that_is_asked_for) {
    EXPECT_TRUE(spread());
    set("TUTTI_SPREAD", "0");
    EXPECT_FALSE(spread());
    set("TUTTI_SPREAD", "far");
    EXPECT_NE(complaint([] { spread(); }).find("TUTTI_SPREAD=far: expected 1 or 0"), std::string::npos);
    EXPECT_EQ(huge_pages(), HugePages::all);
    set("TUTTI_HUGE_PAGES", "own");
    EXPECT_EQ(huge_pages(), HugePages::own);
    set("TUTTI_HUGE_PAGES", "0");
    EXPECT_EQ(huge_pages(), HugePages::none);
    set("TUTTI_HUGE_PAGES", "all");
    EXPECT_EQ(complaint([] { huge_pages(); }), "environment variable TUTTI_HUGE_PAGES=all: expected 1, own or 0");
}

TEST_F(Settings, a_timeout_is_a_number_of_milliseconds) {
    set("TUTTI_TIMEOUT_MS", "1500");
    EXPECT_EQ(timeout(), std::chrono::milliseconds(1500));
    EXPECT_EQ(lifeline_timeout(), std::chrono::milliseconds(13'500));
    set("TUTTI_LIFELINE_TIMEOUT_MS", "4000");
    EXPECT_EQ(lifeline_timeout(), std::chrono::milliseconds(4000));
    set("TUTTI_LIFELINE_TIMEOUT_MS", "1999");
    EXPECT_NE(
        complaint([] { lifeline_timeout(); }).find("TUTTI_LIFELINE_TIMEOUT_MS=1999: expected an integer from 2000"),
        std::string::npos);
    set("TUTTI_TIMEOUT_MS", "0");
    EXPECT_NE(complaint([] { timeout(); }).find("TUTTI_TIMEOUT_MS=0: expected an integer from 1"), std::string::npos);
}

}  // namespace
}  // namespace tutti::settings
