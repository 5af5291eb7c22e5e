#include "core/debug_level.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/debug.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <string>

namespace tutti {

constinit std::atomic<int> debug_level_now{-1};

namespace {

std::atomic<bool> set_by_program{false};

// Calls `bad` with the variable and its value if the value is no level.
template <class Bad>
DebugLevel from_environment(Bad bad) {
    for (const char* variable : {"TUTTI_DISTRIBUTED_DEBUG", "TORCH_DISTRIBUTED_DEBUG"}) {
        const auto text = env::get(variable);
        if (!text) continue;
        const std::string level = in_lower_case(*text);
        if (level == "off") return DebugLevel::off;
        if (level == "info") return DebugLevel::info;
        if (level == "detail") return DebugLevel::detail;
        bad(variable, *text);
    }
    return DebugLevel::off;
}

}  // namespace

DebugLevel get_debug_level() noexcept {
    const int level = debug_level_now.load(std::memory_order_relaxed);
    if (level >= 0) return static_cast<DebugLevel>(level);
    const DebugLevel found = from_environment([](const char*, const std::string&) {});
    int expected = -1;
    debug_level_now.compare_exchange_strong(expected, static_cast<int>(found));
    TUTTI_ASSERT(debug_level_now >= 0 && debug_level_now <= static_cast<int>(DebugLevel::detail));
    return static_cast<DebugLevel>(debug_level_now.load());
}

void set_debug_level(DebugLevel level) noexcept {
    set_by_program = true;
    debug_level_now = static_cast<int>(level);
    log::follow(level);
}

void set_debug_level_from_env() {
    const DebugLevel level = from_environment([](const char* variable, const std::string& text) {
        throw InvalidArgument(fmt::format("environment variable {}={}: expected OFF, INFO or DETAIL{}", variable, text,
                                          did_you_mean(text, std::array{"OFF", "INFO", "DETAIL"})));
    });
    debug_level_now = static_cast<int>(level);
    log::follow(level);
}

void take_debug_level_from_env() {
    if (!set_by_program) set_debug_level_from_env();
    TUTTI_ASSERT(debug_level_now >= 0 || set_by_program);
}

}  // namespace tutti
