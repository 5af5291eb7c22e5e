// tutti status: a page of a running job on this host, with the secret from the environment and not from the command
// line, which others could read.
#include "cli/commands.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "record/http.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

namespace tutti::cli {
namespace {

struct StatusArguments {
    int rank = 0;
    std::string page = "status";
    int port = 0;
    bool stacks = false;
};

void print_page(const StatusArguments& a, const std::string& page, int port, const security::Secret& secret) {
    TUTTI_ASSERT(page.starts_with('/') && port >= 1 && port <= 65535);
    const AbortFlag stop;
    const auto answer = record::http_get({static_cast<std::uint16_t>(port)}, page, record::page_token(secret),
                                         Deadline::after(std::chrono::seconds(10)), stop)
                            .at(0);
    if (answer.refused)
        throw DistNetworkError(
            fmt::format("status: nobody listens at 127.0.0.1:{}: is rank {} of a job with TUTTI_STATUS_PORT={} on this "
                        "host, and has it a group?",
                        port, a.rank, port - a.rank));
    if (answer.foreign_user)
        throw DistNetworkError(fmt::format(
            "status: the page of rank {} at port {} is of a process of user {}, and this is user {}: it was "
            "not asked; run tutti status as the user of the job",
            a.rank, port, *answer.foreign_user, ::geteuid()));
    if (!answer.body)
        throw DistNetworkError(fmt::format(
            "status: no page {} from 127.0.0.1:{}: {}", page.substr(1), port,
            answer.status.empty() ? "no answer in 10 s; the process is stopped, or is none of tutti" : answer.status));
    std::fputs(answer.body->c_str(), stdout);
}

int status(const StatusArguments& a) {
    if (a.stacks && a.page != "status")
        throw InvalidArgument(fmt::format("status: --stacks with the page {}: expected it with status alone", a.page));
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
    print_page(a, "/" + a.page, port, *secret);
    if (a.stacks) print_page(a, "/stacks", port, *secret);
    return 0;
}

}  // namespace

Command add_status(CLI::App& app) {
    auto a = std::make_shared<StatusArguments>();
    CLI::App* sub = app.add_subcommand("status", "Print what the ranks of a running job on this host wait for");
    sub->add_option(
           "page", a->page,
           "status (default), status.json, stack, stacks, metrics or trace; token: with which others read them")
        ->check(one_of({"status", "status.json", "stack", "stacks", "metrics", "trace", "token"}));
    sub->add_option("--rank", a->rank, "whose page; any of this host shows the status of all (default 0)")
        ->check(CLI::Range(0, 65535));
    sub->add_option("--port", a->port, "the job's TUTTI_STATUS_PORT (default: that of the environment)")
        ->check(CLI::Range(1, 65535));
    sub->add_flag("--stacks", a->stacks, "also print where the threads of the ranks of this host are now");
    sub->footer(
        "The job's secret is taken from TUTTI_JOB_SECRET or TUTTI_JOB_SECRET_FILE.\n\n"
        "Examples:\n"
        "  export TUTTI_STATUS_PORT=9400 TUTTI_JOB_SECRET_FILE=secret\n"
        "  tutti run -n 4 ./program &\n"
        "  tutti status --stacks\n"
        "  tutti status metrics --rank 2\n"
        "  curl -H \"Authorization: Bearer $(tutti status token)\" http://127.0.0.1:9400/status.json");
    return [a] { return status(*a); };
}

}  // namespace tutti::cli
