#include "cli/manual/completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::cli::manual {
namespace {

// In an argument of _arguments: brackets end an explanation and colons the parts.
std::string explained(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
        result += c;
    }
    return result;
}

std::string zsh_action(const Entry& entry) {
    switch (values_of(entry)) {
        case Values::words: return fmt::format("({})", fmt::join(entry.words, " "));
        case Values::list: return fmt::format("_values -s , {} {}", entry.value, fmt::join(entry.words, " "));
        case Values::files: return "_files";
        case Values::folders: return "_files -/";
        case Values::command: return "_command_names -e";
        case Values::none:
        case Values::anything: break;
    }
    return {};
}

// '(-n --np)'{-n,--np}'[text]:N:action'
std::string argument(const Entry& entry) {
    std::string end = fmt::format("[{}]", explained(entry.text));
    if (!entry.value.empty()) end += fmt::format(":{}:{}", entry.value, zsh_action(entry));
    if (entry.names.size() == 1) return in_quotes(entry.names.front() + end);
    return fmt::format("'({})'{{{}}}{}", fmt::join(entry.names, " "), fmt::join(entry.names, ","), in_quotes(end));
}

std::string positional(const Entry& entry) {
    if (values_of(entry) == Values::command) return "'(-)1:program:_command_names -e' '*::arguments:_normal'";
    return in_quotes(fmt::format("{}:{}:{}", entry.repeats ? "*" : "1", entry.names.front(), zsh_action(entry)));
}

}  // namespace

std::string zsh_completion(const std::vector<Page>& pages) {
    std::string text =
        "#compdef tutti\n# Completion of tutti's command line for zsh, made by: tutti completion zsh\n\n";
    text +=
        "_tutti() {\n    local -a commands\n    local state context line\n    typeset -A opt_args\n    commands=(\n";
    for (const auto& [name, summary] : pages.front().commands)
        text += fmt::format("        {}\n", in_quotes(fmt::format("{}:{}", name, explained(summary))));
    text +=
        "        'help:what a command takes'\n    )\n"
        "    _arguments -C '(-h --help)'{-h,--help}'[print what it can do]' '(-V --version)'{-V,--version}'[print the "
        "version]' \\\n        '1:command:->command' '*::argument:->argument'\n"
        "    case $state in\n        command) _describe command commands ;;\n        argument)\n"
        "            case $words[1] in\n                help) _describe command commands ;;\n";
    for (const Page& page : pages) {
        if (!page.commands.empty()) continue;
        text += fmt::format("                {})\n                    _arguments -s", command_of(page));
        for (const Entry& entry : flags_of(page))
            text += fmt::format(" \\\n                        {}", argument(entry));
        for (const Entry& entry : page.positionals)
            text += fmt::format(" \\\n                        {}", positional(entry));
        text += "\n                    ;;\n";
    }
    return text +
           "            esac\n            ;;\n    esac\n}\n\n"
           "if [ \"$funcstack[1]\" = _tutti ]; then\n    _tutti \"$@\"\nelse\n    compdef _tutti tutti\nfi\n";
}

}  // namespace tutti::cli::manual
