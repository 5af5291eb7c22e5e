// Man pages: man(7), the macros that every formatter knows.
#include "cli/manual/page.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"

#include <tutti/version.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>

namespace tutti::cli::manual {
namespace {

// A backslash begins a command there, and a dash may become a hyphen that cannot be copied.
std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '\\')
            result += "\\e";
        else if (c == '-')
            result += "\\-";
        else
            result += c;
    }
    return result;
}

// Lines that begin with a dot or an apostrophe would be macros.
std::string lines_of(const std::string& text) {
    constexpr std::size_t columns = 70;  // letters: some formatters write others than ASCII longer
    std::string result;
    for (const char c : wrapped(text, columns, 0)) {
        if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
        result += c;
    }
    return result + '\n';
}

std::string upper(std::string text) {
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return text;
}

// tutti-run of "tutti run".
std::string title_of(std::string name) {
    std::ranges::replace(name, ' ', '-');
    return name;
}

std::string bold(const std::string& text) {
    return fmt::format("\\fB{}\\fR", escaped(text));
}
std::string italic(const std::string& text) {
    return fmt::format("\\fI{}\\fR", escaped(text));
}

std::string tagged(const Entry& entry) {
    TUTTI_ASSERT(!entry.names.empty() && !entry.names.front().empty());
    const bool flag = entry.names.front().front() == '-';
    std::string head;
    for (const std::string& name : entry.names) head += (head.empty() ? "" : ", ") + (flag ? bold(name) : italic(name));
    if (flag && !entry.value.empty()) head += ' ' + italic(entry.value);
    std::string text = escaped(entry.text.empty() ? "what it takes" : entry.text);
    if (!entry.words.empty()) {
        text += entry.list ? "; some of " : "; one of ";
        for (const std::string& word : entry.words) text += (&word == entry.words.data() ? "" : ", ") + bold(word);
    }
    if (!entry.fallback.empty()) text += fmt::format(" [{}]", escaped(entry.fallback));
    return fmt::format(".TP\n{}\n{}", head, lines_of(text));
}

std::string section_of(const Note& note) {
    if (note.title == "Examples") {
        std::string text = ".SH EXAMPLES\n.EX\n";
        for (const std::string& line : note.lines) text += "\\&" + escaped(line) + '\n';
        return text + ".EE\n";
    }
    std::string text = note.title.empty() ? ".PP\n" : fmt::format(".SH {}\n", upper(note.title));
    for (const std::string& line : note.lines) text += lines_of(escaped(line));
    return text;
}

// Of the release where a package says when that was (reproducible-builds.org), else of today.
std::string date() {
    const char* const epoch = std::getenv("SOURCE_DATE_EPOCH");
    const std::time_t time = epoch != nullptr ? std::strtoll(epoch, nullptr, 10) : std::time(nullptr);
    return fmt::format("{:%Y-%m-%d}", fmt::gmtime(time));
}

std::string variables() {
    std::string text =
        ".SH ENVIRONMENT\nThese are the library's, too: programs that use tutti take them from the\nenvironment.\n";
    for (const env::Variable& variable : env::known_variables())
        text += fmt::format(".TP\n{}\n{}", bold(std::string(variable.name)),
                            lines_of(escaped(std::string(variable.meaning))));
    return text;
}

}  // namespace

std::string roff(const Page& page) {
    const bool program = !page.commands.empty();
    const std::string title = title_of(page.name);
    std::string summary = page.summary.substr(0, page.summary.find(": tutti "));
    TUTTI_ASSERT(!summary.empty());
    if (!program) summary.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(summary.front())));
    while (summary.ends_with('.')) summary.pop_back();
    std::string text = fmt::format(".TH {} 1 {} \"tutti {}\" \"User Commands\"\n.SH NAME\n{}", escaped(upper(title)),
                                   date(), version(), lines_of(escaped(title) + " \\- " + escaped(summary)));
    text += fmt::format(".SH SYNOPSIS\n{} {}\n.SH DESCRIPTION\n{}", bold(page.name), escaped(page.usage),
                        lines_of(escaped(page.summary.substr(0, page.summary.find_last_not_of('.') + 1)) + "."));
    for (const Note& note : page.notes) {
        if (note.title.empty()) text += section_of(note);
    }
    if (program) text += ".SH COMMANDS\n";
    for (const auto& [name, sentence] : page.commands)
        text += fmt::format(".TP\n{}\n{}", bold(name), lines_of(escaped(sentence)));
    if (!page.positionals.empty()) text += ".SH ARGUMENTS\n";
    for (const Entry& entry : page.positionals) text += tagged(entry);
    if (!page.sections.empty()) text += ".SH OPTIONS\n";
    for (const Section& section : page.sections) {
        if (page.sections.size() > 1)
            text += fmt::format(".SS {}\n", section.title.empty() ? "Others" : escaped(section.title));
        for (const Entry& entry : section.entries) text += tagged(entry);
    }
    if (program) text += variables();
    for (const Note& note : page.notes) {
        if (!note.title.empty()) text += section_of(note);
    }
    text += ".SH SEE ALSO\n";
    if (!program) return text + fmt::format("{}(1)\n", bold("tutti"));
    std::vector<std::string> others;
    for (const auto& [name, sentence] : page.commands) {
        if (name != "version") others.push_back(fmt::format("{}(1)", bold("tutti-" + name)));
    }
    return text + lines_of(fmt::format("{}", fmt::join(others, ", ")));
}

}  // namespace tutti::cli::manual
