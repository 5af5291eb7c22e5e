// tutti status: a page of a running job on this host, with the secret from the environment and not from the command
// line, which others could read.
#include "cli/commands.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "record/dump.hpp"
#include "record/http.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace tutti::cli {
namespace {

struct StatusArguments {
    int rank = 0;
    std::string page = "status";
    int port = 0;
    bool stacks = false;
    std::string html;
};

constexpr auto until_next = std::chrono::seconds(2);

// Empty: nobody listens.
std::optional<std::string> page_of(const StatusArguments& a, const std::string& page, int port,
                                   const security::Secret& secret) {
    TUTTI_ASSERT(page.starts_with('/') && port >= 1 && port <= 65535);
    const AbortFlag stop;
    const auto answer = record::http_get({static_cast<std::uint16_t>(port)}, page, record::page_token(secret),
                                         Deadline::after(std::chrono::seconds(10)), stop)
                            .at(0);
    if (answer.refused) return std::nullopt;
    if (answer.foreign_user)
        throw DistNetworkError(fmt::format(
            "status: the page of rank {} at port {} is of a process of user {}, and this is user {}: it was "
            "not asked; run tutti status as the user of the job",
            a.rank, port, *answer.foreign_user, ::geteuid()));
    if (!answer.body)
        throw DistNetworkError(fmt::format(
            "status: no page {} from 127.0.0.1:{}: {}", page.substr(1), port,
            answer.status.empty() ? "no answer in 10 s; the process is stopped, or is none of tutti" : answer.status));
    return answer.body;
}

// Throws DistNetworkError where nobody listens.
std::string here(const StatusArguments& a, const std::string& page, int port, const security::Secret& secret) {
    if (auto found = page_of(a, page, port, secret)) return *std::move(found);
    throw DistNetworkError(
        fmt::format("status: nobody listens at 127.0.0.1:{}: is rank {} of a job with TUTTI_STATUS_PORT={} on this "
                    "host, and has it a group?",
                    port, a.rank, port - a.rank));
}

// Writes the page again and again, until the job has ended: the browser cannot ask for it, as it has no secret.
void keep_page(const StatusArguments& a, int port, const security::Secret& secret) {
    record::write_file(a.html, here(a, "/status.html", port, secret));
    fmt::print("{} shows the job, as long as it runs and this does\n", a.html);
    std::fflush(stdout);
    for (;;) {
        std::this_thread::sleep_for(until_next);
        try {
            const auto page = page_of(a, "/status.html", port, secret);
            if (!page) return;
            record::write_file(a.html, *page);
        } catch (const DistNetworkError&) {  // it ends just now, or is stopped for a while
        }
    }
}

int status(const StatusArguments& a) {
    if (a.stacks && a.page != "status")
        throw InvalidArgument(fmt::format("status: --stacks with the page {}: expected it with status alone", a.page));
    if (!a.html.empty() && (a.stacks || a.page != "status"))
        throw InvalidArgument("status: --html: expected it with status alone, without --stacks");
    const auto given = env::get_int("TUTTI_STATUS_PORT", 1, 65535);
    if (a.port == 0 && !given && a.page != "token")
        throw InvalidArgument("status: no port: expected --port, or the job's TUTTI_STATUS_PORT in the environment");
    const auto secret = security::Secret::from_environment();
    if (!secret)
        throw InvalidArgument(
            "status: no secret: expected the job's TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE in the environment");
    if (a.page == "token") {
        fmt::print("{}\n", record::page_token(*secret).to_text());
        return 0;
    }
    const int port = (a.port != 0 ? a.port : static_cast<int>(*given)) + a.rank;
    if (port > 65535) throw InvalidArgument(fmt::format("status: there is no port {}", port));
    if (!a.html.empty()) {
        keep_page(a, port, *secret);
        return 0;
    }
    std::fputs(here(a, "/" + a.page, port, *secret).c_str(), stdout);
    if (a.stacks) std::fputs(here(a, "/stacks", port, *secret).c_str(), stdout);
    return 0;
}

}  // namespace

Command add_status(CLI::App& app) {
    auto a = std::make_shared<StatusArguments>();
    CLI::App* sub = app.add_subcommand("status", "Print what the ranks of a running job on this host wait for");
    sub->add_option("page", a->page,
                    "status (default), status.json, status.html, stack, stacks, metrics or trace; token: with which "
                    "others read them")
        ->check(one_of({"status", "status.json", "status.html", "stack", "stacks", "metrics", "trace", "token"}));
    sub->add_option("--rank", a->rank, "whose page; any of this host shows the status of all (default 0)")
        ->check(CLI::Range(0, 65535));
    sub->add_option("--port", a->port, "the job's TUTTI_STATUS_PORT (default: that of the environment)")
        ->check(CLI::Range(1, 65535));
    sub->add_flag("--stacks", a->stacks, "also print where the threads of the ranks of this host are now");
    sub->add_option("--html", a->html,
                    "write the status as a page that reloads itself, every two seconds until the job ends")
        ->type_name("FILE");
    sub->footer(
        "The job's secret is taken from TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE.\n\n"
        "Examples:\n"
        "  export TUTTI_STATUS_PORT=9400 TUTTI_JOB_SECRET_FILE=secret\n"
        "  tutti run -n 4 ./program &\n"
        "  tutti status --stacks\n"
        "  tutti status --html status.html\n"
        "  tutti status metrics --rank 2\n"
        "  curl -H \"Authorization: Bearer $(tutti status token)\" http://127.0.0.1:9400/status.json");
    return [a] { return status(*a); };
}

}  // namespace tutti::cli
