#include "core/deadline.hpp"
#include "core/env.hpp"
#include "core/interrupt.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>
#include <tutti/error.hpp>
#include <tutti/interrupt.hpp>

#include <csignal>
#include <stdexcept>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::covers;

TEST(Errors, form_one_family_that_derives_from_runtime_error) {
    covers("S17-001", "S17-002", "S17-003", "S17-004");
    EXPECT_THROW(throw DistError(ErrorCode::internal, "x"), std::runtime_error);
    EXPECT_THROW(throw DistBackendError("x"), DistError);
    EXPECT_THROW(throw DistNetworkError("x"), DistError);
    EXPECT_THROW(throw DistStoreError("x"), DistError);
    EXPECT_THROW(throw PeerLost("x"), DistBackendError);
    const DistStoreError error("gone", {.operation = "get", .peer = 3});
    EXPECT_EQ(error.code(), ErrorCode::store);
    EXPECT_EQ(error.context().peer, 3);
    EXPECT_STREQ(error.what(), "gone");
}

TEST(Errors, say_what_to_do) {
    const auto hint = [](const DistError& error) { return error.context().hint; };
    EXPECT_EQ(hint(InvalidArgument("send: tag -1: expected zero or more")), "expected zero or more");
    EXPECT_EQ(hint(InvalidArgument("a: no group; call b first")), "call b first");
    EXPECT_EQ(hint(InvalidArgument("a: no", {}, ErrorCode::not_initialized)), "");
    EXPECT_EQ(hint(DistStoreError("gone", {.hint = "start it again"})), "start it again");
    EXPECT_NE(hint(PeerLost("rank 1 died")).find("exit status"), std::string::npos);
    EXPECT_NE(hint(Timeout("late")).find("tutti status"), std::string::npos);
    EXPECT_NE(hint(CollectiveMismatch("sum, max")).find("same order"), std::string::npos);
    EXPECT_EQ(hint(DistBackendError("failed; a library is missing")), "");
    EXPECT_EQ(hint(DistBackendError("backend \"x\": expected one of native")), "expected one of native");
}

TEST(Deadline, counts_down_and_never_overflows) {
    const Instant now = Clock::now();
    const Deadline soon = Deadline::after(1ms, now);
    EXPECT_FALSE(soon.expired(now));
    EXPECT_TRUE(soon.expired(now + 1ms));
    EXPECT_EQ(soon.remaining(now + 2ms), 0ns);
    EXPECT_TRUE(Deadline::after(Clock::duration::max(), now).is_never());
    EXPECT_EQ(Deadline::after(1us, now).poll_ms(50ms, now), 1);
    EXPECT_EQ(Deadline::never().poll_ms(50ms, now), 50);
}

TEST(Environment, names_an_unknown_variable_and_its_nearest_match) {
    const char* environment[] = {"TUTTI_TRANSPROT=shm", "PATH=/bin", "TUTTI_WAIT=spin"};
    const auto sentences = env::unknown_variables(environment);
    ASSERT_EQ(sentences.size(), 1U);
    EXPECT_NE(sentences[0].find("TUTTI_TRANSPROT"), std::string::npos);
    EXPECT_NE(sentences[0].find("did you mean TUTTI_TRANSPORT?"), std::string::npos);
}

TEST(Environment, rejects_a_value_and_says_what_was_expected) {
    setenv("TUTTI_TIMEOUT_MS", "soon", 1);
    try {
        env::get_int("TUTTI_TIMEOUT_MS", 1, 100);
        FAIL();
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "environment variable TUTTI_TIMEOUT_MS=soon: expected an integer from 1 to 100");
    }
    setenv("TUTTI_TIMEOUT_MS", "70", 1);
    EXPECT_EQ(env::get_int("TUTTI_TIMEOUT_MS", 1, 100), 70);
    unsetenv("TUTTI_TIMEOUT_MS");
    EXPECT_EQ(env::get_int("TUTTI_TIMEOUT_MS", 1, 100), std::nullopt);
}

TEST(Interrupt, ends_a_wait_by_flag_by_signal_and_by_time) {
    AbortFlag abort;
    EXPECT_NO_THROW(check_wait(Deadline::never(), &abort, "wait"));
    EXPECT_THROW(check_wait(Deadline::after(0s), &abort, "wait"), Timeout);
    {
        const InterruptHandler handler;
        raise(SIGINT);
        try {
            check_wait(Deadline::never(), nullptr, "wait");
            FAIL();
        } catch (const Aborted& error) {
            EXPECT_EQ(error.code(), ErrorCode::interrupted);
        }
        EXPECT_NO_THROW(check_wait(Deadline::never(), nullptr, "wait"));
    }
    abort.raise("the test says so");
    EXPECT_THROW(check_wait(Deadline::never(), &abort, "wait"), Aborted);
}

TEST(Interrupt, ends_a_wait_that_a_languages_runtime_asks_to_end) {
    static bool asked = false;
    set_interrupt_check([]() noexcept { return asked; });
    EXPECT_NO_THROW(check_wait(Deadline::never(), nullptr, "wait"));
    asked = true;
    try {
        check_wait(Deadline::never(), nullptr, "wait");
        ADD_FAILURE();
    } catch (const Aborted& error) {
        EXPECT_EQ(error.code(), ErrorCode::interrupted);
    }
    set_interrupt_check(nullptr);
    EXPECT_NO_THROW(check_wait(Deadline::never(), nullptr, "wait"));
}

}  // namespace
}  // namespace tutti
