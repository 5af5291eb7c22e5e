#include "cli/manual/page.hpp"
#include "core/assert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti::cli::manual {
namespace {

constexpr std::size_t text_column = 28;

std::string with_values(const Entry& entry) {
    std::string text = entry.text;
    if (!entry.words.empty() && entry.list)
        text += fmt::format("{}some of {}", text.empty() ? "" : "; ", fmt::join(entry.words, ", "));
    else if (!entry.words.empty())
        text += fmt::format("{}one of {}", text.empty() ? "" : "; ", fmt::join(entry.words, ", "));
    if (!entry.fallback.empty()) text += fmt::format(" [{}]", entry.fallback);
    return text;
}

std::string line(const std::string& head, const std::string& text, std::size_t width) {
    TUTTI_ASSERT(width > text_column);
    std::string result = "  " + head;
    const bool below = result.size() + 2 > text_column;
    result += below ? '\n' + std::string(text_column, ' ') : std::string(text_column - result.size(), ' ');
    return result + wrapped(text, width - text_column, text_column) + '\n';
}

std::string line(const Entry& entry, std::size_t width) {
    TUTTI_ASSERT(!entry.names.empty() && !entry.names.front().empty());
    std::string head = fmt::format("{}", fmt::join(entry.names, ", "));
    if (!entry.value.empty() && entry.names.front().front() == '-') head += ' ' + entry.value;
    return line(head, with_values(entry), width);
}

}  // namespace

std::string help(const Page& page) {
    const std::size_t width = width_of_output();
    std::string text = wrapped(page.summary, width, 0) + fmt::format("\n\nUsage: {} {}\n", page.name, page.usage);
    if (!page.commands.empty()) text += "\nCommands:\n";
    for (const auto& [name, summary] : page.commands) text += line(name, summary, width);
    if (!page.positionals.empty()) text += '\n';
    for (const Entry& entry : page.positionals) text += line(entry, width);
    for (const Section& section : page.sections) {
        text += fmt::format("\n{}:\n", section.title.empty() ? "Flags" : section.title);
        for (const Entry& entry : section.entries) text += line(entry, width);
    }
    for (const Note& note : page.notes) {
        text += note.title.empty() ? "\n" : fmt::format("\n{}:\n", note.title);
        for (const std::string& one : note.lines) {
            const bool as_it_is = one.starts_with("  ");
            text += as_it_is ? one : note.title.empty() ? wrapped(one, width, 0) : "  " + wrapped(one, width - 2, 2);
            text += '\n';
        }
    }
    return text;
}

}  // namespace tutti::cli::manual
