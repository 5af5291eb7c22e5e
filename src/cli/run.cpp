// tutti run: starts the ranks of a job on this host.
#include "cli/arguments.hpp"
#include "launch/launcher.hpp"

#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace tutti::cli {
namespace {

struct RunArguments {
    int ranks = 1;
    std::string transport;
    std::string colour = "auto";
    bool no_prefix = false;
    double timeout_s = 0, grace_s = 3;
};

}  // namespace

Command add_run(CLI::App& app, const std::vector<std::string>& command) {
    auto a = std::make_shared<RunArguments>();
    CLI::App* sub = app.add_subcommand("run", "Start N ranks of a program: tutti run -n 4 [--] program args...");
    sub->add_option(both_spellings("-n,--nproc-per-node"), a->ranks, "number of ranks")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
    sub->add_option("--transport", a->transport, "what carries the data (sets TUTTI_TRANSPORT)")
        ->check(CLI::IsMember({"auto", "shm", "tcp"}));
    sub->add_option("--timeout", a->timeout_s, "end the job after so many seconds, with exit status 124")
        ->check(CLI::PositiveNumber);
    sub->add_option("--grace", a->grace_s, "seconds between SIGTERM and SIGKILL when the job is stopped")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    sub->add_option("--color", a->colour, "colour the names of the ranks")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
    sub->add_flag(both_spellings("--no-prefix"), a->no_prefix, "pass lines on as they are");
    sub->footer("Exit status: that of the first rank that fails (128 + signal when it was killed), 0 when none does.");
    return [a, &command] {
        launch::Options options;
        options.command = command;
        options.ranks = a->ranks;
        options.prefix = !a->no_prefix;
        const char* no_colour = std::getenv("NO_COLOR");  // counts when it is not empty (no-color.org)
        const bool plain = no_colour != nullptr && *no_colour != '\0';
        options.colour =
            a->colour == "always" || (a->colour == "auto" && ::isatty(1) != 0 && ::isatty(2) != 0 && !plain);
        if (!a->transport.empty()) options.environment.push_back("TUTTI_TRANSPORT=" + a->transport);
        if (a->timeout_s > 0)
            options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(a->timeout_s * 1000));
        options.grace = std::chrono::milliseconds(static_cast<std::int64_t>(a->grace_s * 1000));
        return launch::launch(options);
    };
}

}  // namespace tutti::cli
