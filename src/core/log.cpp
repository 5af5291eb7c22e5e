#include "core/log.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::log {
namespace {

constexpr std::array<std::pair<std::string_view, Level>, 7> names{{{"trace", Level::trace},
                                                                   {"debug", Level::debug},
                                                                   {"info", Level::info},
                                                                   {"warning", Level::warning},
                                                                   {"warn", Level::warning},
                                                                   {"error", Level::error},
                                                                   {"off", Level::off}}};

constexpr const char* words = "%L%m%d %H:%M:%S.%f %t %s:%#] %v";
constexpr const char* json_lines =
    R"({"time":"%Y-%m-%dT%H:%M:%S.%f%z","level":"%l","pid":%P,"thread":%t,"file":"%s","line":%#,"message":%v})";

bool writes_json() {
    static const bool json = in_lower_case(env::get("TUTTI_LOG_FORMAT").value_or("")) == "json";
    return json;
}

// A wrong value is no reason to stop a job, nor one for silence. PyTorch warns of its own variable.
Level initial_level() {
    if (const auto format = env::get("TUTTI_LOG_FORMAT"); format && !writes_json() && in_lower_case(*format) != "text")
        write(Level::warning, __FILE__, __LINE__,
              fmt::format("environment variable TUTTI_LOG_FORMAT={}: expected text or json", *format));
    for (const char* variable : {"TUTTI_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL"}) {
        const auto text = env::get(variable);
        if (!text) continue;
        for (const auto& [name, level] : names) {
            if (in_lower_case(*text) == name) return level;
        }
        if (std::string_view(variable).starts_with("TUTTI_"))
            write(Level::warning, __FILE__, __LINE__,
                  fmt::format("environment variable {}={}: expected trace, debug, info, warning, error or off{}",
                              variable, *text, did_you_mean(*text, names | std::views::keys)));
    }
    return Level::warning;
}

struct Levels {
    std::atomic<Level> chosen{initial_level()};
    std::atomic<Level> effective{log::effective(chosen, get_debug_level())};
};
Levels& levels() {
    static Levels instance;
    return instance;
}

spdlog::logger& sink() {
    // Never destroyed: groups are left while the process ends.
    static const auto& logger = *new const std::shared_ptr<spdlog::logger>([] {
        auto made = std::make_shared<spdlog::logger>("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_pattern(writes_json() ? json_lines : words);
        made->set_level(spdlog::level::trace);
        made->flush_on(spdlog::level::trace);
        return made;
    }());
    return *logger;
}

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::trace: return spdlog::level::trace;
        case Level::debug: return spdlog::level::debug;
        case Level::info: return spdlog::level::info;
        case Level::warning: return spdlog::level::warn;
        case Level::error: return spdlog::level::err;
        case Level::off: return spdlog::level::off;
    }
    return spdlog::level::off;
}

}  // namespace

Level level() noexcept {
    return levels().effective.load(std::memory_order_relaxed);
}
void set_level(Level level) noexcept {
    levels().chosen = level;
    follow(get_debug_level());
}
Level effective(Level chosen, DebugLevel debug) noexcept {
    TUTTI_ASSERT(chosen >= Level::trace && chosen <= Level::off);
    if (chosen != Level::info || debug == DebugLevel::off) return chosen;
    return debug == DebugLevel::info ? Level::debug : Level::trace;
}
void follow(DebugLevel debug) noexcept {
    levels().effective = effective(levels().chosen, debug);
}

void write(Level level, const char* file, int line, std::string_view message) {
    TUTTI_ASSERT(file != nullptr && line >= 0);
    TUTTI_ASSERT(level < Level::off);
    std::string quoted;
    if (writes_json()) {
        using Json = nlohmann::json;
        quoted = Json(message).dump(-1, ' ', false, Json::error_handler_t::replace);
        message = quoted;
    }
    sink().log(spdlog::source_loc{file, line, ""}, to_spdlog(level), message);
}

}  // namespace tutti::log
