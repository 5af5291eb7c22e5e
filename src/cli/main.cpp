// tutti: the command-line program.
#include "bench/collectives/command.hpp"
#include "cli/commands.hpp"
#include "cli/manual/page.hpp"
#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>
#include <tutti/version.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

namespace tutti::cli {
namespace {

int fail(const std::string& text) {
    std::fprintf(stderr, "tutti: %s\n", visible(text).c_str());
    return 2;
}

// The message about words that CLI11 could not place.
std::string unexpected(const CLI::App& sub, const std::vector<std::string>& words) {
    TUTTI_ASSERT(!sub.get_name().empty());
    const std::string help = fmt::format("; tutti {} --help lists them", sub.get_name());
    for (const std::string& word : words) {
        if (word.size() < 2 || word.front() != '-') continue;
        const std::string near = nearest(word.substr(0, word.find('=')), option_names(sub));
        return fmt::format("{}: unknown option {}{}", sub.get_name(), word,
                           near.empty() ? help : fmt::format("; did you mean {}?", near));
    }
    return fmt::format("{}: unexpected words: {}{}", sub.get_name(), fmt::join(words, " "), help);
}

std::string unknown_command(const std::string& word, const std::vector<std::string>& known) {
    const std::string meant = did_you_mean(word, known);
    return fmt::format("unknown command \"{}\"{}", word, meant.empty() ? "; tutti --help lists them" : meant);
}

// All that was printed has to be somewhere: a full disk is a failure, of whatever command.
int finish(int status) {
    TUTTI_ASSERT(status >= 0);
    errno = 0;
    const bool flushed = std::fflush(stdout) == 0;
    if (flushed && std::ferror(stdout) == 0) return status;
    // What could not be written before is gone, and the reason with it: another byte meets the same one.
    if (flushed && ::write(1, "\n", 1) >= 0) errno = 0;
    std::fprintf(stderr, "tutti: standard output cannot be written%s%s\n", errno != 0 ? ": " : "",
                 errno != 0 ? std::strerror(errno) : "");
    return status == 0 ? 1 : status;
}

int main(int argc, char** argv) {
    CLI::App app("Collective communication between processes: tutti starts them, measures them, explains them.",
                 "tutti");
    app.require_subcommand(1);
    app.formatter_fn([](const CLI::App* command, const std::string& /*name*/, CLI::AppFormatMode /*mode*/) {
        return manual::help(manual::page_of(*command));
    });
    app.set_help_flag("-h,--help", "print this");
    app.set_version_flag("-V,--version", std::string("tutti ") + tutti::version(), "print the version");
    std::vector<std::string> command;  // of run and launch
    std::map<std::string, Command> commands;
    commands["run"] = add_run(app, command);
    commands["launch"] = add_launch(app, command);
    commands["bench"] = bench::add_bench(app);
    commands["explain"] = add_explain(app);
    commands["simulate"] = add_simulate(app);
    commands["doctor"] = add_doctor(app);
    commands["status"] = add_status(app);
    commands["trace"] = add_trace(app);
    commands["completion"] = add_completion(app);
    commands["manual"] = add_manual(app);
    app.add_subcommand("version", "Print the version");
    commands["version"] = [] {
        std::printf("tutti %s\n", tutti::version());
        return 0;
    };
    app.footer(
        "tutti help COMMAND, or tutti COMMAND --help: what a command takes.\n\n"
        "Examples:\n"
        "  tutti run -n 4 ./program\n"
        "  tutti bench all_reduce -n 2\n"
        "  tutti doctor\n\n"
        "Exit status: 2 for a command line that is wrong, with a sentence on standard error; otherwise each "
        "command's.");

    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.empty()) arguments = {"--help"};
    if (arguments.front() == "help") {
        arguments.erase(arguments.begin());
        arguments.emplace_back("--help");
    }
    const std::string& first = arguments.front();
    if (first == "__complete") {  // for the shells' scripts
        for (const std::string& line :
             manual::proposals(manual::pages_of(app), {arguments.begin() + 1, arguments.end()}))
            std::printf("%s\n", line.c_str());
        return 0;
    }
    std::vector<std::string> names;
    for (const auto& [name, summary] : manual::page_of(app).commands) names.push_back(name);
    if (first.empty() || (first.front() != '-' && commands.count(first) == 0))
        return fail(unknown_command(first, names));
    if (first == "bench" || first == "explain" || first == "simulate")
        std::ranges::replace(arguments, "-np", "--np");  // mpirun's
    if (first == "run" || first == "launch") command = take_command(*app.get_subcommand(first), arguments);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ExtrasError& error) {
        return fail(unexpected(*app.get_subcommands().front(), app.remaining(true)));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        const auto subs = app.get_subcommands();
        return fail((subs.empty() ? "" : subs.front()->get_name() + ": ") + error.what());
    }
    try {
        return commands.at(app.get_subcommands().front()->get_name())();
    } catch (const CLI::ParseError& error) {
        return fail(error.what());
    } catch (const InvalidArgument& error) {
        const std::string text = error.what();
        return fail(text.starts_with("tutti ") ? text.substr(6) : text);
    } catch (const DistError& error) {
        const std::string text = error.what();
        std::fprintf(stderr, "%s%s\n", text.starts_with("tutti ") ? "" : "tutti: ", visible(text).c_str());
        return 1;
    } catch (const std::exception& error) {
        if (std::ferror(stdout) != 0) return 1;  // finish() says it
        return fail(error.what());
    }
}

}  // namespace
}  // namespace tutti::cli

int main(int argc, char** argv) {
    return tutti::cli::finish(tutti::cli::main(argc, argv));
}
