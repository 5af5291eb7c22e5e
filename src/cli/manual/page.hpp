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
    std::vector<std::string> names;  ///< "-n", "--np"; one word where there is no flag; without other spellings
    std::string value;               ///< the word after it: FILE, N; empty: none
    std::string text;                ///< a sentence
    std::string fallback;            ///< the value when it is not given; may be empty
    std::vector<std::string> words;  ///< its possible values; empty: anything
    bool list = false;               ///< several of the words, with commas between
    bool required = false, repeats = false;
};
struct Section {
    std::string title;  ///< empty: that of the flags that have no other
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
    std::vector<std::pair<std::string, std::string>> commands;  ///< names and sentences; of the program alone
    std::vector<Note> notes;
};

Page page_of(const CLI::App& command);
/// The program's, then each command's that has flags of its own.
std::vector<Page> pages_of(const CLI::App& program);

/// Words of `text` in lines of at most `width` columns; each line after the first begins with `indent` spaces. A word
/// that is longer than a line stays whole.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);
/// Columns of the terminal that standard output is; 100 where it is none, and at most that many.
std::size_t width_of_output();

/// The output of `--help`.
std::string help(const Page& page);
/// A man page of section 1 (man(7)).
std::string roff(const Page& page);
/// The script by which bash, zsh or fish asks `tutti __complete` for proposals.
std::string completion_script(std::string_view shell);
/// The lines that it prints, for words after the program's name of which the last is being typed. A line is a word that
/// begins so, and behind a tabulator its explanation; or, with a colon before, what else there is to propose: ":files",
/// ":folders", ":program", ":list" (further words may follow behind a comma), ":arguments N": the Nth word is a program
/// and this one of its arguments.
std::vector<std::string> proposals(const std::vector<Page>& pages, std::vector<std::string> words);

}  // namespace tutti::cli::manual
