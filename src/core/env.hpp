// Environment variables: every TUTTI_* name that the library reads is declared in one table here.
//
// Threads: a thread that the library has started (core/thread.hpp) reads the variables as they were then: the program
// may set some at any time, which moves what getenv() reads. On others, reading is safe while nobody sets any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::env {

struct Variable {
    std::string_view name;
    std::string_view meaning;
};

/// The environment at one time, as NAME=value.
using Snapshot = std::shared_ptr<const std::vector<std::string>>;
/// The environment now, or what this thread reads.
Snapshot snapshot();
/// During its lifetime, this thread reads the snapshot.
class Reading {
 public:
    explicit Reading(Snapshot what);
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

 private:
    Snapshot what_;
};

/// All TUTTI_* variables, sorted by name.
std::span<const Variable> known_variables();

/// The value of a variable; nullopt when unset or empty. A TUTTI_* name must be in the table.
std::optional<std::string> get(std::string_view name);
/// As get(), for a number; throws InvalidArgument naming the variable, its value and the accepted range.
std::optional<std::int64_t> get_int(std::string_view name, std::int64_t min, std::int64_t max);
/// 1/0, true/false, yes/no, on/off in any case; anything else throws InvalidArgument.
bool get_bool(std::string_view name, bool fallback);
/// Converts `text`, the value of variable `name`, by the rules of get_bool().
bool truth(std::string_view name, const std::string& text);

/// One sentence for each TUTTI_* variable in `environment` (NAME=value strings) that is not in the table,
/// with the nearest known name.
std::vector<std::string> unknown_variables(std::span<const char* const> environment);
/// Logs a warning for each unknown variable of this process, once.
void warn_about_unknown_variables();

}  // namespace tutti::env
