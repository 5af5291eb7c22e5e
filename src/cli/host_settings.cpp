#include "cli/host_settings.hpp"

#include "core/env.hpp"
#include "core/huge_pages.hpp"
#include "core/settings.hpp"
#include "core/unique_fd.hpp"
#include "transport/tcp/congestion.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

namespace tutti::cli {
namespace {

using Kind = Finding::Kind;

Finding niceness() {
    const int change = settings::progress_nice();
    return {Kind::good, "niceness",
            change == 0 ? "left alone (TUTTI_PROGRESS_NICE changes that of the thread of asynchronous operations)"
                        : fmt::format("{:+} for the thread of asynchronous operations (TUTTI_PROGRESS_NICE)", change)};
}

Finding callers_cpu() {
    return {Kind::good, "callers' cores",
            settings::spread() ? "threads that wait may be moved to cores with fewer ranks (TUTTI_SPREAD=0: none is)"
                               : "left alone (TUTTI_SPREAD=0)"};
}

Finding huge_pages() {
    if (!HugePages::system_has_them()) return {Kind::good, "huge pages", "this system has none, or never gives any"};
    switch (settings::huge_pages()) {
        case settings::HugePages::all:
            return {
                Kind::good, "huge pages",
                "for tutti's tensors, and for callers' buffers that are used often (TUTTI_HUGE_PAGES=own: not these)"};
        case settings::HugePages::own:
            return {Kind::good, "huge pages", "for tutti's tensors alone (TUTTI_HUGE_PAGES=own)"};
        case settings::HugePages::none: break;
    }
    return {Kind::good, "huge pages", "not asked for (TUTTI_HUGE_PAGES=0)"};
}

Finding congestion() {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::string systems = transport::congestion_of(socket.get());
    const std::string chosen = env::get("TUTTI_TCP_CONGESTION").value_or("auto");
    std::string found = systems.empty() ? "the system's" : systems + ", the system's";
    if (chosen != "auto" && chosen != "system") {
        found = fmt::format("{} for tutti's connections (TUTTI_TCP_CONGESTION)", chosen);
    } else if (chosen == "auto" && systems.starts_with("bbr")) {
        found += "; reno for tutti's connections between near hosts (TUTTI_TCP_CONGESTION=system: leaves the system's)";
    }
    return {Kind::good, "tcp congestion", found};
}

}  // namespace

std::vector<Finding> host_settings() {
    return {niceness(), callers_cpu(), huge_pages(), congestion()};
}

}  // namespace tutti::cli
