// The debug level, the log's level that follows from it, and a line's header.
#include "core/debug_level.hpp"

#include "core/log.hpp"
#include "support/covers.hpp"

#include <tutti/debug.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>
#include <string>
#include <tuple>

namespace tutti {
namespace {

using log::Level;

class Debugging : public ::testing::Test {
 protected:
    ~Debugging() override {
        ::unsetenv("TUTTI_DISTRIBUTED_DEBUG");
        ::unsetenv("TORCH_DISTRIBUTED_DEBUG");
        log::set_level(level_);
        set_debug_level(DebugLevel::off);
    }

 private:
    Level level_ = log::level();
};

TEST_F(Debugging, level_is_set_and_read_from_the_environment) {
    test::covers("S3-017", "S16-010", "S16-017", "S16-018", "S16-019");
    set_debug_level_from_env();
    EXPECT_EQ(get_debug_level(), DebugLevel::off);
    for (const auto& [text, level] : {std::pair{"INFO", DebugLevel::info}, std::pair{"DETAIL", DebugLevel::detail},
                                      std::pair{"OFF", DebugLevel::off}, std::pair{"detail", DebugLevel::detail}}) {
        ::setenv("TORCH_DISTRIBUTED_DEBUG", text, 1);
        set_debug_level_from_env();
        EXPECT_EQ(get_debug_level(), level) << text;
    }
    ::setenv("TUTTI_DISTRIBUTED_DEBUG", "info", 1);
    set_debug_level_from_env();
    EXPECT_EQ(get_debug_level(), DebugLevel::info) << "ours comes first";
    for (const DebugLevel level : {DebugLevel::detail, DebugLevel::off, DebugLevel::info}) {
        set_debug_level(level);
        EXPECT_EQ(get_debug_level(), level);
        take_debug_level_from_env();
        EXPECT_EQ(get_debug_level(), level) << "what the program has set stays";
    }
}

TEST_F(Debugging, level_that_is_none_is_an_error_that_names_the_variable) {
    ::setenv("TORCH_DISTRIBUTED_DEBUG", "LOUD", 1);
    set_debug_level(DebugLevel::info);
    try {
        set_debug_level_from_env();
        ADD_FAILURE();
    } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "environment variable TORCH_DISTRIBUTED_DEBUG=LOUD: expected OFF, INFO or DETAIL");
    }
    EXPECT_EQ(get_debug_level(), DebugLevel::info);
}

TEST_F(Debugging, level_raises_what_is_logged_at_info_only) {
    test::covers("S3-016", "S16-013", "S16-021", "S16-022", "S16-023", "S16-024", "S16-025");
    for (const auto& [chosen, debug, effective] : {std::tuple{Level::error, DebugLevel::off, Level::error},
                                                   std::tuple{Level::error, DebugLevel::info, Level::error},
                                                   std::tuple{Level::error, DebugLevel::detail, Level::error},
                                                   std::tuple{Level::warning, DebugLevel::off, Level::warning},
                                                   std::tuple{Level::warning, DebugLevel::info, Level::warning},
                                                   std::tuple{Level::warning, DebugLevel::detail, Level::warning},
                                                   std::tuple{Level::info, DebugLevel::off, Level::info},
                                                   std::tuple{Level::info, DebugLevel::info, Level::debug},
                                                   std::tuple{Level::info, DebugLevel::detail, Level::trace}}) {
        log::set_level(chosen);
        set_debug_level(debug);
        EXPECT_EQ(log::level(), effective);
        log::set_level(chosen);  // the other order
        EXPECT_EQ(log::level(), effective);
    }
}

TEST_F(Debugging, lines_begin_with_severity_date_time_thread_and_place) {
    test::covers("S16-026");
    log::set_level(Level::info);
    ::testing::internal::CaptureStderr();
    TUTTI_INFO("hello {}", 7);
    TUTTI_WARN("careful");
    TUTTI_DEBUG("not seen");
    const int line = __LINE__ - 3;
    const std::string text = ::testing::internal::GetCapturedStderr();
    const std::string head = "[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6} " + std::to_string(::gettid());
    EXPECT_TRUE(std::regex_match(
        text, std::regex(fmt::format("I{} debug_level_test.cpp:{}\\] hello 7\nW{} debug_level_test.cpp:{}\\] careful\n",
                                     head, line, head, line + 1))))
        << text;
}

}  // namespace
}  // namespace tutti
