#include "record/wanted.hpp"

#include "core/env.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::record {

std::optional<std::filesystem::path> trace_directory() {
    const auto directory = env::get("TUTTI_TRACE_DIR");
    return directory ? std::optional<std::filesystem::path>(*directory) : std::nullopt;
}

bool wants_flight_files() {
    const auto format = env::get("TUTTI_TRACE_FORMAT");
    if (!format || *format == "tutti") return false;
    if (*format == "torch") return trace_directory().has_value();
    throw InvalidArgument(fmt::format("environment variable TUTTI_TRACE_FORMAT={}: expected tutti or torch", *format));
}

bool wants_splits() {
    return trace_directory().has_value() || status_port().has_value();
}

std::optional<int> status_port() {
    const auto port = env::get_int("TUTTI_STATUS_PORT", 1, 65535);
    return port ? std::optional(static_cast<int>(*port)) : std::nullopt;
}

}  // namespace tutti::record
