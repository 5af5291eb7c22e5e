// What a shell proposes for a command line of tutti's: the shells' scripts ask the program itself.
#include "cli/manual/page.hpp"
#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

namespace tutti::cli::manual {
namespace {

using Lines = std::vector<std::string>;

// Each script passes the words up to the one that is typed, without the program's name, to `tutti __complete`, and
// reads lines of proposals(): words with their explanations, and at most one that begins with a colon.
constexpr const char* bash_script =
    R"(# Completion of tutti's command line for bash: asks the program itself. Printed by: tutti completion bash
_tutti() {
    local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]/#\~/$HOME} line
    # bash takes --flag=value for three words.
    [[ $word == = ]] && word=
    COMPREPLY=()
    while IFS=$'\t' read -r line _; do
        case $line in
            :files | :arguments*)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
                ;;
            :folders)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -d -- "$word")
                ;;
            :program)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
                ;;
            :list) compopt -o nospace 2>/dev/null ;;
            *) COMPREPLY+=("$line") ;;
        esac
    done < <("$program" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _tutti tutti
)";

constexpr const char* zsh_script = R"(#compdef tutti
# Completion of tutti's command line for zsh: asks the program itself. Printed by: tutti completion zsh
_tutti() {
    local line action=
    local -a proposed
    for line in "${(@f)$("${${(Q)words[1]}/#\~/$HOME}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            :*) action=$line ;;
            *$'\t'*) proposed+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            ?*) proposed+=("${line//:/\\:}") ;;
        esac
    done
    case $action in
        :files) _files ;;
        :folders) _files -/ ;;
        :program) _command_names -e ;;
        :arguments*)
            shift ${action#* } words
            ((CURRENT -= ${action#* }))
            _normal
            ;;
        :list) _describe value proposed -S '' ;;
        *) _describe word proposed ;;
    esac
}

if [ "$funcstack[1]" = _tutti ]; then
    _tutti "$@"
else
    compdef _tutti tutti
fi
)";

constexpr const char* fish_script =
    R"(# Completion of tutti's command line for fish: asks the program itself. Printed by: tutti completion fish
function __tutti_propose
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
        switch $line
            case :files ':arguments*'
                __fish_complete_path $word
            case :folders
                __fish_complete_directories $word
            case :program
                __fish_complete_command
            case :list
            case '*'
                echo $line
        end
    end
end
complete -c tutti -f -a '(__tutti_propose)'
)";

class Proposer {
 public:
    explicit Proposer(std::string_view word) : word_(word) {}

    Lines take() { return std::move(lines_); }
    void propose(const std::string& word, const std::string& text = "") {
        if (word.starts_with(word_)) lines_.push_back(text.empty() ? word : word + '\t' + text);
    }
    void commands(const Page& program) {
        for (const auto& [name, summary] : program.commands) propose(name, summary);
    }
    void flags(const Page& page) {
        for (const Section& section : page.sections) {
            for (const Entry& entry : section.entries) {
                for (const std::string& name : entry.names) propose(name, entry.text);
            }
        }
    }
    // Of an entry, behind `before`, which is a part of the word: "--dtype=" or nothing.
    void values(const Entry& entry, const std::string& before = "") {
        TUTTI_ASSERT(before.size() <= word_.size());
        if (entry.value == "FILE")
            lines_.emplace_back(":files");
        else if (entry.value == "FOLDER" || entry.value == "DIR")
            lines_.emplace_back(":folders");
        else if (entry.value == "COMMAND")
            lines_.emplace_back(":program");
        const std::string_view typed = word_.substr(before.size());
        const std::size_t comma = entry.list ? typed.rfind(',') : std::string_view::npos;
        const auto chosen = std::string(typed.substr(0, comma == std::string_view::npos ? 0 : comma + 1));
        for (const std::string& word : entry.words) propose(before + chosen + word);
        if (entry.list) lines_.emplace_back(":list");
    }

 private:
    const std::string_view word_;  // that is typed
    Lines lines_;
};

// The flag of that name that takes a value.
const Entry* flag_with_value(const Page& page, std::string_view name) {
    for (const Section& section : page.sections) {
        for (const Entry& entry : section.entries) {
            if (!entry.value.empty() && std::ranges::find(entry.names, name) != entry.names.end()) return &entry;
        }
    }
    return nullptr;
}

// The place of the program that `tutti run` starts, among words before the one that is typed.
std::optional<std::size_t> program_in(const Page& page, const Lines& words) {
    for (std::size_t i = 1; i + 1 < words.size(); ++i) {
        if (words[i] == "--") return i + 2 < words.size() ? std::optional(i + 1) : std::nullopt;
        if (!words[i].starts_with('-')) return i;
        if (i + 2 < words.size() && words[i + 1] == "=")
            i += 2;
        else if (flag_with_value(page, words[i]) != nullptr)
            ++i;
    }
    return std::nullopt;
}

}  // namespace

std::string completion_script(std::string_view shell) {
    TUTTI_ASSERT(shell == "bash" || shell == "zsh" || shell == "fish");
    return shell == "bash" ? bash_script : shell == "zsh" ? zsh_script : fish_script;
}

std::vector<std::string> proposals(const std::vector<Page>& pages, std::vector<std::string> words) {
    TUTTI_ASSERT(!pages.empty());
    if (words.empty()) words.emplace_back();
    if (words.back() == "=") words.emplace_back();
    const std::string typed = words.back();
    const std::size_t last = words.size() - 1;
    Proposer proposer(typed);
    if (last == 0 || words.front() == "help") {
        proposer.commands(pages.front());
        if (last == 0) proposer.propose("help", "Print what a command takes");
        if (last == 0) proposer.flags(pages.front());
        return proposer.take();
    }
    const auto page = std::ranges::find(pages, "tutti " + words.front(), &Page::name);
    if (page == pages.end()) return {};
    const Entry* positional = page->positionals.empty() ? nullptr : &page->positionals.front();
    if (positional != nullptr && positional->value == "COMMAND") {
        // Words of a shell's line count from the program's name.
        if (const auto program = program_in(*page, words)) return {fmt::format(":arguments {}", *program + 1)};
    }
    const bool splits = last >= 2 && words[last - 1] == "=";
    const std::size_t equals = typed.starts_with("--") ? typed.find('=') : std::string::npos;
    if (const Entry* flag = flag_with_value(*page, words[last - (splits ? 2 : 1)]))
        proposer.values(*flag);
    else if (const Entry* named = flag_with_value(*page, typed.substr(0, equals)); named && equals != std::string::npos)
        proposer.values(*named, typed.substr(0, equals + 1));
    else if (typed.starts_with('-'))
        proposer.flags(*page);
    else if (positional != nullptr)
        proposer.values(*positional);
    return proposer.take();
}

}  // namespace tutti::cli::manual
