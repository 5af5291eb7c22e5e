// SourceLines: finds the source file and line of an address in the program, if its binaries have debug information and
// libdw (elfutils) is installed; else the function's name, if they have symbols. libdw is loaded at the first look-up:
// the library needs it neither to build nor to run. A process that resolves its own addresses can do so on any host,
// and its lines, unlike raw addresses, stay readable when the program's file is gone.
//
// Each look-up is short: it reads a file's index and one compilation unit. The time limit is checked between look-ups.
//
// Threads: each object by one thread at a time; all objects share a cache of results.
#pragma once

#include "core/deadline.hpp"

#include <chrono>
#include <memory>
#include <string>

namespace tutti::record {

/// The C++ name of a symbol; the symbol itself if it is not a C++ symbol.
std::string demangled(const char* symbol);

class SourceLines {
 public:
    /// `patience`: time limit of all look-ups together. Afterwards only places found before are returned.
    explicit SourceLines(std::chrono::milliseconds patience);
    ~SourceLines();
    SourceLines(const SourceLines&) = delete;
    SourceLines& operator=(const SourceLines&) = delete;

    /// "train.cpp:12 in train_step(int)" for a call that returns to this address. Without debug information, if only
    /// the file, not the dynamic linker, knows the function: "train_step(int)+0x1f in train+0x4a1f". Empty: neither is
    /// known.
    std::string of(const void* return_address);
    /// As of(), for the instruction at the address.
    std::string at(const void* address);

 private:
    class Files;
    std::string look(const void* address, const void* shown);

    Clock::duration left_;
    std::unique_ptr<Files> files_;  // open while this lives
};

}  // namespace tutti::record
