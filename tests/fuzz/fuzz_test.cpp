// Each target on what is in its corpus and on changes of that, the same in every run. What `make fuzz` found wrong is a
// file there.
#include "core/split_mix.hpp"
#include "targets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tutti::fuzz {
namespace {

std::vector<std::string> corpus_of(std::string_view target) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(FUZZ_CORPUS) / target))
        files.push_back(entry.path());
    std::ranges::sort(files);
    std::vector<std::string> corpus;
    for (const auto& path : files) {
        std::ifstream file(path, std::ios::binary);
        corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return corpus;
}

// A few of the changes that fuzzers make: bits, bytes of a meaning, pieces cut out, repeated, or taken from another.
class Changes {
 public:
    explicit Changes(std::uint64_t seed) : state_(seed << 32) {}

    std::string of(std::string bytes, const std::string& other) {
        for (std::uint64_t count = 1 + below(4); count > 0; --count) change(bytes, other);
        return bytes;
    }

 private:
    std::size_t below(std::size_t limit) { return limit == 0 ? 0 : split_mix(state_++) % limit; }
    void change(std::string& bytes, const std::string& other) {
        constexpr char telling[] = {'\0', '\x01', '\x7f', '\x80', '\xff', '\n', ' ', '"'};
        const std::size_t at = below(bytes.size());
        const std::size_t count = below(std::min<std::size_t>(bytes.size() - at, 16) + 1);
        switch (below(6)) {
            case 0:
                if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
                break;
            case 1:
                if (!bytes.empty()) bytes[at] = telling[below(sizeof telling)];
                break;
            case 2: bytes.erase(at, count); break;
            case 3: bytes.insert(at, bytes.substr(at, count)); break;
            case 4: bytes.resize(at); break;
            default: bytes.replace(at, count, other, below(other.size()), count); break;
        }
    }
    std::uint64_t state_;
};

class Fuzz : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(Of, Fuzz, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(Fuzz, takes_its_corpus_and_changes_of_it) {
    constexpr int changed = 300;
    const std::vector<std::string> corpus = corpus_of(GetParam().name);
    ASSERT_FALSE(corpus.empty());
    GetParam().run("");
    for (std::size_t i = 0; i < corpus.size(); ++i) {
        GetParam().run(corpus[i]);
        Changes changes(i);
        for (int k = 0; k < changed; ++k) GetParam().run(changes.of(corpus[i], corpus[(i + 1) % corpus.size()]));
    }
}

}  // namespace
}  // namespace tutti::fuzz
