#include "cli/manual/completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::cli::manual {
namespace {

std::string fish_values(const Entry& entry) {
    switch (values_of(entry)) {
        case Values::none: return {};
        case Values::words: return fmt::format(" -x -a {}", in_quotes(fmt::format("{}", fmt::join(entry.words, " "))));
        case Values::list:
            return fmt::format(" -x -a {}",
                               in_quotes(fmt::format("(__fish_append , {})", fmt::join(entry.words, " "))));
        case Values::files: return " -r -F";
        case Values::folders: return " -x -a '(__fish_complete_directories)'";
        case Values::command: return " -x -a '(__fish_complete_command)'";
        case Values::anything: return " -x";
    }
    return {};
}

std::string fish_names(const Entry& entry) {
    std::string text;
    for (const std::string& name : entry.names) {
        const bool is_long = name.starts_with("--");
        text += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
    }
    return text;
}

}  // namespace

std::string fish_completion(const std::vector<Page>& pages) {
    std::string text = "# Completion of tutti's command line for fish, made by: tutti completion fish\n";
    text += "complete -c tutti -f\n";
    for (const auto& [name, summary] : pages.front().commands)
        text += fmt::format("complete -c tutti -n __fish_use_subcommand -a {} -d {}\n", name, in_quotes(summary));
    text += "complete -c tutti -n __fish_use_subcommand -a help -d 'what a command takes'\n";
    for (const Entry& entry : flags_of(pages.front()))
        text += fmt::format("complete -c tutti -n __fish_use_subcommand{} -d {}\n", fish_names(entry),
                            in_quotes(entry.text));
    for (const Page& page : pages) {
        if (!page.commands.empty()) continue;
        const std::string here = fmt::format("complete -c tutti -n '__fish_seen_subcommand_from {}'", command_of(page));
        for (const Entry& entry : flags_of(page))
            text += fmt::format("{}{}{} -d {}\n", here, fish_names(entry), fish_values(entry), in_quotes(entry.text));
        for (const Entry& entry : page.positionals) {
            if (values_of(entry) == Values::anything) continue;
            const std::string what = fish_values(entry);  // " -x -a ...": of a flag, its value; here a positional
            text += fmt::format("{}{}\n", here, what == " -r -F" ? " -F" : what.substr(what.find(" -a")));
        }
    }
    return text;
}

}  // namespace tutti::cli::manual
