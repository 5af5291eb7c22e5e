// The arguments of a command, read from CLI11's tree of commands. Help, man pages and shell completion are all made
// from them, so they agree.
//
// A command's footer has paragraphs. One that begins with "Examples:" or "Exit status:" becomes a section of the man
// page; the others come before these sections.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::cli::manual {

struct Entry {
    std::vector<std::string> names;  ///< "-n", "--np"; a positional's one word; no alternative spellings
    std::string value;               ///< the placeholder of its value: FILE, N; empty: it takes no value
    std::string text;                ///< a sentence
    std::string fallback;            ///< the default value; may be empty
    std::vector<std::string> words;  ///< its possible values; empty: anything
    bool list = false;               ///< takes several of the words, separated by commas
    bool required = false, repeats = false;
};
struct Section {
    std::string title;  ///< empty: the section of flags without a title of their own
    std::vector<Entry> entries;
};
struct Note {
    std::string title;  ///< empty, "Examples" or "Exit status"
    std::vector<std::string> lines;
};
struct Page {
    std::string name;     ///< "tutti run"
    std::string summary;  ///< a sentence
    std::string usage;    ///< the text after the name
    std::vector<Entry> positionals;
    std::vector<Section> sections;
    std::vector<std::pair<std::string, std::string>> commands;  ///< names and sentences; only on the program's page
    std::vector<Note> notes;
};

Page page_of(const CLI::App& command);
/// The page of the program, then the pages of all commands that have flags of their own.
std::vector<Page> pages_of(const CLI::App& program);

/// `text` wrapped to lines of at most `width` columns; each line after the first begins with `indent` spaces. A word
/// that is longer than a line stays whole.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);
/// The width, in columns, of the terminal on standard output, at most 100; 100 if it is not a terminal.
std::size_t width_of_output();

/// The output of `--help`.
std::string help(const Page& page);
/// A man page of section 1 (man(7)).
std::string roff(const Page& page);
/// The script by which bash, zsh or fish asks `tutti __complete` for proposals.
std::string completion_script(std::string_view shell);
/// The lines that `tutti __complete` prints. `words`: those after the program's name; the last one is being typed. A
/// line is a possible completion of that word, with its explanation after a tab; or a directive for the shell:
/// ":files", ":folders" and ":program" (propose such names), ":list" (further words may follow after a comma),
/// ":arguments N" (the Nth word is a program, and the typed word one of its arguments).
std::vector<std::string> proposals(const std::vector<Page>& pages, std::vector<std::string> words);

}  // namespace tutti::cli::manual
