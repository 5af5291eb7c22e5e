#include "cli/manual/page.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace tutti::cli::manual {
namespace {

// "--no_check" where "--no-check" is there too; both are taken.
bool other_spelling(const std::string& name, const std::vector<std::string>& names) {
    std::string dashed = name;
    std::ranges::replace(dashed, '_', '-');
    return dashed != name && std::ranges::find(names, dashed) != names.end();
}

// Checks describe themselves after the type: "TEXT:{auto,shm,tcp}" and "INT:INT in [1 - 65535]" are CLI11's forms,
// "TEXT:{...},..." is that of a list of words.
void read_type(const std::string& type, Entry& entry) {
    entry.value = type.substr(0, type.find_first_of(": "));
    if (entry.value == "INT" || entry.value == "UINT") entry.value = "N";
    if (entry.value == "FLOAT") entry.value = "NUMBER";
    if (entry.value == "TEXT") entry.value = "WORD";
    const std::size_t open = type.find('{'), close = type.rfind('}');
    if (open != std::string::npos && close != std::string::npos) {
        std::istringstream in(type.substr(open + 1, close - open - 1));
        for (std::string word; std::getline(in, word, ',');) entry.words.push_back(word);
        entry.list = type.substr(close) == "},...";
        if (entry.value == "WORD" && entry.list) entry.value = "LIST";
    }
    const std::size_t from = type.find(" in ["), to = type.rfind(']');
    if (from != std::string::npos && to != std::string::npos) {
        std::string range = type.substr(from + 5, to - from - 5);
        if (const std::size_t dash = range.find(" - "); dash != std::string::npos) range.replace(dash, 3, " to ");
        entry.text += fmt::format(" ({})", range);
    }
}

Entry entry_of(const CLI::Option& option) {
    Entry entry{.text = option.get_description()};
    std::vector<std::string> all;
    for (const std::string& name : option.get_snames()) all.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) all.push_back("--" + name);
    for (const std::string& name : all) {
        if (!other_spelling(name, all)) entry.names.push_back(name);
    }
    if (option.get_positional()) {
        entry.names = {option.get_name(true)};
        for (char& c : entry.names.front()) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    if (option.get_expected_min() > 0) read_type(option.get_type_name(), entry);
    entry.fallback = option.get_default_str();
    entry.required = option.get_required();
    entry.repeats = option.get_expected_max() > 1;
    TUTTI_ASSERT(!entry.names.empty());
    return entry;
}

std::vector<Note> notes_of(const std::string& footer) {
    std::vector<Note> notes;
    std::istringstream in(footer);
    bool begins = true;
    for (std::string line; std::getline(in, line);) {
        if (line.empty()) {
            begins = true;
            continue;
        }
        if (begins) notes.emplace_back();
        if (begins) {
            for (const char* title : {"Examples", "Exit status"}) {
                const std::string word = fmt::format("{}:", title);
                if (!line.starts_with(word)) continue;
                notes.back().title = title;
                line.erase(0, std::min(line.size(), word.size() + 1));
            }
        }
        begins = false;
        if (!line.empty()) notes.back().lines.push_back(line);
    }
    return notes;
}

std::string usage_of(const Page& page) {
    if (!page.commands.empty()) return "COMMAND [FLAG...]";
    std::string usage = page.sections.empty() ? "" : "[FLAG...]";
    for (const Entry& entry : page.positionals) {
        if (entry.value == "COMMAND") return usage + fmt::format(" [--] {} [ARGUMENT...]", entry.names.front());
        const std::string word = entry.names.front() + (entry.repeats ? "..." : "");
        usage += entry.required ? fmt::format(" {}", word) : fmt::format(" [{}]", word);
    }
    return usage;
}

}  // namespace

Page page_of(const CLI::App& command) {
    Page page{.name = command.get_name(), .summary = command.get_description()};
    for (const CLI::App* parent = command.get_parent(); parent != nullptr; parent = parent->get_parent())
        page.name = fmt::format("{} {}", parent->get_name(), page.name);
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App* s) { return !s->get_group().empty(); }))
        page.commands.emplace_back(sub->get_name(), sub->get_description());
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_group().empty()) continue;  // hidden
        if (option->get_positional()) {
            page.positionals.push_back(entry_of(*option));
            continue;
        }
        const std::string title = option->get_group() == "Options" ? "" : option->get_group();
        auto section = std::ranges::find(page.sections, title, &Section::title);
        if (section == page.sections.end()) section = page.sections.insert(section, Section{title, {}});
        section->entries.push_back(entry_of(*option));
    }
    // --help and its like stand last.
    std::ranges::stable_partition(page.sections, [](const Section& s) { return !s.title.empty(); });
    page.notes = notes_of(command.get_footer());
    page.usage = usage_of(page);
    TUTTI_ASSERT(page.name.starts_with("tutti") && !page.summary.empty());
    return page;
}

std::vector<Page> pages_of(const CLI::App& program) {
    std::vector<Page> pages{page_of(program)};
    for (const auto& [name, summary] : pages.front().commands) {
        Page page = page_of(*program.get_subcommand(name));
        const bool flags = !page.positionals.empty() || page.sections.size() > 1 ||
                           (page.sections.size() == 1 && page.sections.front().entries.size() > 1);
        if (flags) pages.push_back(std::move(page));
    }
    return pages;
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
    TUTTI_ASSERT(width > 0);
    std::string result;
    std::size_t column = 0;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        const auto letters = static_cast<std::size_t>(
            std::ranges::count_if(word, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; }));
        if (column > 0 && column + 1 + letters > width) {
            result += '\n' + std::string(indent, ' ');
            column = 0;
        }
        if (column > 0) result += ' ';
        column += letters + (column > 0 ? 1 : 0);
        result += word;
    }
    return result;
}

std::size_t width_of_output() {
    constexpr std::size_t most = 100, least = 40;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return most;
    return std::clamp<std::size_t>(size.ws_col, least, most);
}

}  // namespace tutti::cli::manual
