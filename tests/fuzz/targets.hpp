// What parses bytes that come from outside, each as one function: of a connection, a file, a variable. A target takes
// any bytes. It returns when the parser has accepted them or refused them in the way that its header promises;
// anything else (another exception, a crash, memory out of proportion) is a bug.
//
// `make fuzz` runs them under libFuzzer; fuzz_test runs what is in corpus/, and changes of it, in `make test`.
#pragma once

#include <span>
#include <string_view>

namespace tutti::fuzz {

struct Target {
    std::string_view name;  ///< of its folder in corpus/, too
    void (*run)(std::string_view bytes);
};
std::span<const Target> targets();

/// Ends the process with a sentence: a parser accepted what it should not have, or gave back something else.
[[noreturn]] void wrong(std::string_view what);

// One file each.
void store_stream(std::string_view bytes);
void store_requests(std::string_view bytes);
void handshake(std::string_view bytes);
void mailbox(std::string_view bytes);
void object(std::string_view bytes);
void cards(std::string_view bytes);
void dump(std::string_view bytes);
void record_file(std::string_view bytes);
void tuning(std::string_view bytes);
void hostfile(std::string_view bytes);
void rank_table(std::string_view bytes);
void faults(std::string_view bytes);
void schedules(std::string_view bytes);
void graphs(std::string_view bytes);
void lifeline(std::string_view bytes);
void http(std::string_view bytes);

}  // namespace tutti::fuzz
