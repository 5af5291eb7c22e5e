// What each rank is told when something goes wrong: one sentence. Each rank is a process of its own, as a library and
// its faults are chosen once for a process.
#pragma once

#include "device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

namespace tutti::test {

/// What one rank is told; empty: nothing went wrong.
inline std::string told(const std::function<void()>& f) {
    try {
        f();
    } catch (const DistError& error) {
        return error.what();
    } catch (const std::exception& error) {
        return "not an error of tutti's: " + std::string(error.what());
    }
    return {};
}

/// `parts` are regular expressions that the sentence contains, each.
inline void expect_sentence(const std::string& text, const std::vector<std::string>& parts) {
    ASSERT_FALSE(text.empty()) << "nothing was said";
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0) << "one sentence: " << text;
    for (const std::string& part : parts)
        EXPECT_TRUE(std::regex_search(text, std::regex(part))) << "no " << part << " in: " << text;
}

/// The file's name of the library that is chosen.
inline std::string library() {
    const char* file = std::getenv("TUTTI_NCCL_LIB");
    return file != nullptr ? std::filesystem::path(file).filename().string() : "no TUTTI_NCCL_LIB";
}

/// The body on `size` ranks, each a process of its own with variables by rank; the sentences by rank. Groups live until
/// all ranks have theirs, as an error's other side is that a rank is gone.
using MakeGroup = std::function<ProcessGroup(const GpuWorld&)>;
using RankBody = std::function<void(int rank, const MakeGroup& make)>;
inline std::vector<std::string> sentences_of(int size, const std::function<Variables(int)>& variables,
                                             const RankBody& body) {
    const TemporaryFolder folder;
    const auto file_of = [&](int rank) { return folder.path() + "/" + std::to_string(rank); };
    std::vector<std::unique_ptr<Flag>> told_ranks;
    for (int rank = 0; rank < size; ++rank) told_ranks.push_back(std::make_unique<Flag>());
    in_processes(size, variables, [&](int rank) {
        const FileStore store(folder.path() + "/store", size);
        std::vector<ProcessGroup> groups;
        const auto make = [&](const GpuWorld& world) {
            return groups.emplace_back(ProcessGroupOptions{
                .store = PrefixStore(world.name, store),
                .rank = rank,
                .world_size = size,
                .timeout = world.timeout,
                .name = world.name,
                .backend = world.backend,
                .device_id = Device{Device::Type::cuda, world.devices[static_cast<std::size_t>(rank)]}});
        };
        const std::string text = told([&] { body(rank, make); });
        std::ofstream(file_of(rank)) << text;
        told_ranks[static_cast<std::size_t>(rank)]->set();
        for (const auto& other : told_ranks) EXPECT_TRUE(other->wait()) << "a rank is told nothing";
    });
    std::vector<std::string> sentences;
    for (int rank = 0; rank < size; ++rank) {
        std::ifstream file(file_of(rank));
        sentences.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return sentences;
}

inline std::function<Variables(int)> on_all(Variables variables) {
    return [variables](int) { return variables; };
}

/// Of a case, far below what a hang would take.
class Limit {
 public:
    ~Limit() { EXPECT_LT(std::chrono::steady_clock::now() - began_, 40s); }

 private:
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace tutti::test
