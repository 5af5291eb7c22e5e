#include "launch/logs.hpp"

#include "core/assert.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

namespace tutti::launch {
namespace {

std::optional<int> number(std::string_view text, int max) {
    TUTTI_ASSERT(max >= 0);
    const auto value = number_in<int>(text);
    return value && *value >= 0 && *value <= max ? value : std::nullopt;
}

}  // namespace

Streams parse_streams(std::string_view text, const std::string& option) {
    const auto wrong = [&] {
        return InvalidArgument(
            fmt::format("tutti run: {} {}: expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or "
                        "LOCAL_RANK:NUMBER[,LOCAL_RANK:NUMBER...]",
                        option, text));
    };
    if (text.find(':') == std::string_view::npos) {
        const auto all = number(text, 3);
        if (!all) throw wrong();
        return {.all = *all};
    }
    Streams streams;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view item = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), item.size() + 1));
        const std::size_t colon = item.find(':');
        if (colon == std::string_view::npos) throw wrong();
        const auto rank = number(item.substr(0, colon), 65535), value = number(item.substr(colon + 1), 3);
        if (!rank || !value) throw wrong();
        streams.of_local_rank[*rank] = *value;
    }
    return streams;
}

UniqueFd make_log(const std::string& path) {
    TUTTI_ASSERT(!path.empty());
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    UniqueFd fd(error ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd) return fd;
    throw InvalidArgument(fmt::format("tutti run: --log-dir: {} cannot be written: {}", path,
                                      error ? error.message() : ::strerror(errno)));
}

}  // namespace tutti::launch
