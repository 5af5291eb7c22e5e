// MemoryKills: how many processes the kernel's out-of-memory killer has killed since this object was made: in the
// control group of this process (version 2 or 1), and on this host.
//
// Threads: from one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tutti::launch {

class MemoryKills {
 public:
    /// `root`: where proc/ and sys/ are.
    explicit MemoryKills(const std::filesystem::path& root = "/");

    struct Found {
        std::uint64_t count = 0;     ///< 0: none
        std::filesystem::path in{};  ///< the file that counts them
        bool on_host = false;        ///< `in` counts all processes of this host
    };
    Found since() const;

 private:
    struct Counter {
        std::filesystem::path file;
        std::uint64_t before;
        bool on_host;
    };
    void add(const std::filesystem::path& file, bool on_host);

    std::vector<Counter> counters_;
};

/// "the kernel's out-of-memory killer has ended 1 process of this control group meanwhile (oom_kill in FILE)"; empty:
/// none.
std::string in_words(const MemoryKills::Found& found);

}  // namespace tutti::launch
