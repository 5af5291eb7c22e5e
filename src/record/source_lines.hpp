// SourceLines: files and lines of a program's source for addresses in it, where its files have debug information and
// libdw (elfutils) is installed; else names of functions, where its files have symbols. libdw is loaded when a line is
// first asked for: the library needs it neither to be built nor to run. A process that resolves its own addresses can
// do so on any host, and its lines stay readable when the program's file is gone; raw addresses would not.
//
// Each look-up is short: it reads the index of a file, and one unit of compilation. Between look-ups the clock is read.
//
// Threads: an object by one thread at a time; what is known of addresses is shared by all.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace tutti::record {

/// A symbol as C++ writes it; the symbol itself where it is none of C++.
std::string demangled(const char* symbol);

class SourceLines {
 public:
    /// `patience`: for all look-ups together. Afterwards only places that were found before are told.
    explicit SourceLines(std::chrono::milliseconds patience);
    ~SourceLines();
    SourceLines(const SourceLines&) = delete;
    SourceLines& operator=(const SourceLines&) = delete;

    /// "train.cpp:12 in train_step(int)" for a call that returns to that address. Without debug information, for a
    /// function that the dynamic linker does not know, but the file does: "train_step(int)+0x1f in train+0x4a1f".
    /// Empty: neither is known.
    std::string of(const void* return_address);
    /// The same for the instruction at the address.
    std::string at(const void* address);

 private:
    class Files;
    std::string look(const void* address, const void* shown);

    Clock::duration left_;
    std::unique_ptr<Files> files_;  // open while this lives
};

}  // namespace tutti::record
