// tutti: the command-line program.
#include "cli/arguments.hpp"
#include "core/suggestion.hpp"

#include <tutti/error.hpp>
#include <tutti/version.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

namespace tutti::cli {
namespace {

int fail(const std::string& text) {
    std::fprintf(stderr, "tutti: %s\n", text.c_str());
    return 2;
}

int main(int argc, char** argv) {
    CLI::App app("Collective communication between processes: starts them, measures them, explains them.", "tutti");
    app.require_subcommand(1);
    app.set_version_flag("-V,--version", std::string("tutti ") + tutti::version());
    std::vector<std::string> command;  // of run and launch
    std::map<std::string, Command> commands;
    commands["run"] = add_run(app, command);
    commands["launch"] = add_launch(app, command);
    commands["bench"] = add_bench(app);
    commands["explain"] = add_explain(app);
    commands["doctor"] = add_doctor(app);
    commands["trace"] = add_trace(app);
    app.add_subcommand("version", "Print the version");
    commands["version"] = [] {
        std::printf("tutti %s\n", tutti::version());
        return 0;
    };
    app.footer("tutti help COMMAND, or tutti COMMAND --help: what a command takes.");

    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.empty()) arguments = {"--help"};
    if (arguments.front() == "help") {
        arguments.erase(arguments.begin());
        arguments.emplace_back("--help");
    }
    const std::string& first = arguments.front();
    if (first.front() != '-' && commands.count(first) == 0) {
        std::vector<std::string> names;
        for (const auto& [name, action] : commands) names.push_back(name);
        const std::string near = nearest(first, names);
        return fail("unknown command \"" + first + "\"" +
                    (near.empty() ? "; tutti --help lists them" : "; did you mean \"" + near + "\"?"));
    }
    if (first == "bench") std::ranges::replace(arguments, "-np", "--np");  // mpirun's
    if (first == "run" || first == "launch") command = take_command(*app.get_subcommand(first), arguments);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ExtrasError& error) {
        const auto& sub = *app.get_subcommands().front();
        for (const std::string& word : app.remaining(true)) {
            if (word.size() < 2 || word.front() != '-') continue;
            const std::string near = nearest(word.substr(0, word.find('=')), option_names(sub));
            return fail(
                sub.get_name() + ": unknown option " + word +
                (near.empty() ? "; tutti " + sub.get_name() + " --help lists them" : "; did you mean " + near + "?"));
        }
        return fail(error.what());
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
        std::fprintf(stderr, "%s%s\n", text.starts_with("tutti ") ? "" : "tutti: ", text.c_str());
        return 1;
    } catch (const std::exception& error) {
        return fail(error.what());
    }
}

}  // namespace
}  // namespace tutti::cli

int main(int argc, char** argv) {
    return tutti::cli::main(argc, argv);
}
