#include "cli/manual/completion.hpp"

namespace tutti::cli::manual {

Values values_of(const Entry& entry) {
    if (entry.value.empty()) return Values::none;
    if (!entry.words.empty()) return entry.list ? Values::list : Values::words;
    if (entry.value == "FILE") return Values::files;
    if (entry.value == "FOLDER") return Values::folders;
    if (entry.value == "COMMAND") return Values::command;
    return Values::anything;
}

std::string command_of(const Page& page) {
    return page.name.substr(page.name.rfind(' ') + 1);
}

std::vector<Entry> flags_of(const Page& page) {
    std::vector<Entry> flags;
    for (const Section& section : page.sections)
        flags.insert(flags.end(), section.entries.begin(), section.entries.end());
    return flags;
}

std::string in_quotes(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

}  // namespace tutti::cli::manual
