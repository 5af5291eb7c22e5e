#include "cli/manual/completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::cli::manual {
namespace {

// The possible values of a flag, as a call of one of the script's functions.
std::string bash_action(const Entry& entry) {
    switch (values_of(entry)) {
        case Values::words:
            return fmt::format("_tutti_words {}", in_quotes(fmt::format("{}", fmt::join(entry.words, " "))));
        case Values::list:
            return fmt::format("_tutti_list {}", in_quotes(fmt::format("{}", fmt::join(entry.words, " "))));
        case Values::files: return "_tutti_files -f";
        case Values::folders: return "_tutti_files -d";
        case Values::command: return "_tutti_command";
        case Values::none:
        case Values::anything: break;
    }
    return ":";  // nothing to propose
}

// One command: its flags' values, its positional arguments, and its flags.
std::string part_of(const Page& page) {
    std::vector<std::string> names, with_value;
    std::string cases;
    for (const Entry& entry : flags_of(page)) {
        names.insert(names.end(), entry.names.begin(), entry.names.end());
        if (entry.value.empty()) continue;
        with_value.insert(with_value.end(), entry.names.begin(), entry.names.end());
        cases += fmt::format("        {}) {}; return ;;\n", fmt::join(entry.names, "|"), bash_action(entry));
    }
    std::string text = fmt::format("_tutti_{}() {{\n", command_of(page));
    if (!cases.empty()) text += fmt::format("    case $before in\n{}    esac\n", cases);
    text += fmt::format("    if [[ $word == -* ]]; then _tutti_words {}; return; fi\n",
                        in_quotes(fmt::format("{}", fmt::join(names, " "))));
    if (!page.positionals.empty() && values_of(page.positionals.front()) == Values::command)
        text += fmt::format("    _tutti_program {}\n", in_quotes(fmt::format(" {} ", fmt::join(with_value, " "))));
    else
        text += fmt::format("    {}\n", page.positionals.empty() ? ":" : bash_action(page.positionals.front()));
    return text + "}\n\n";
}

constexpr const char* functions = R"(# What begins as the word that is typed.
_tutti_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word"); }

# The last of several words with commas between.
_tutti_list() {
    local done=
    [[ $word == *,* ]] && done=${word%,*},
    mapfile -t COMPREPLY < <(compgen -W "$1" -P "$done" -- "${word##*,}")
    compopt -o nospace 2>/dev/null
}

_tutti_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$1" -- "$word")
}

_tutti_command() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
}

# The program that is run, unless it stands there already: then its arguments, which are files for all that is known.
_tutti_program() {
    local at
    for ((at = 2; at < COMP_CWORD; ++at)); do
        case ${COMP_WORDS[at]} in
            --) ((at + 1 < COMP_CWORD)) && { _tutti_files -f; return; } ;;
            -*) [[ $1 == *" ${COMP_WORDS[at]} "* ]] && ((++at)); [[ ${COMP_WORDS[at]} == = ]] && ((++at)) ;;
            *) _tutti_files -f; return ;;
        esac
    done
    _tutti_command
}

)";

}  // namespace

std::string bash_completion(const std::vector<Page>& pages) {
    std::vector<std::string> commands;
    for (const auto& [name, summary] : pages.front().commands) commands.push_back(name);
    std::string text = "# Completion of tutti's command line for bash, made by: tutti completion bash\n\n";
    text += functions;
    std::string cases;
    for (const Page& page : pages) {
        if (!page.commands.empty()) continue;
        text += part_of(page);
        cases += fmt::format("        {0}) _tutti_{0} ;;\n", command_of(page));
    }
    const std::string words = fmt::format("{}", fmt::join(commands, " "));
    text += fmt::format(R"(_tutti() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
    COMPREPLY=()
    # bash takes --flag=value for three words.
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    if ((COMP_CWORD == 1)); then
        _tutti_words {}
        return
    fi
    case ${{COMP_WORDS[1]}} in
        help) _tutti_words {} ;;
{}    esac
}}
complete -F _tutti tutti
)",
                        in_quotes(words + " help --help --version"), in_quotes(words), cases);
    return text;
}

}  // namespace tutti::cli::manual
