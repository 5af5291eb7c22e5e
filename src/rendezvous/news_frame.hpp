// NewsFrame: a verdict, or a word between two neighbours, as a lifeline carries it (LIFELINES.md); NewsReader cuts the
// bytes of a lifeline into frames.
//
// Threads: values.
#pragma once

#include "rendezvous/verdict.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti::rendezvous {

/// Equal for the same news from any rank.
using NewsId = std::uint64_t;

/// Between two neighbours only, where a verdict's kind stands otherwise.
enum class Word : std::uint32_t {
    attached = 64,     ///< a lifeline counts once both ends have said this: until then its end is nobody's death
    moved = 65,        ///< this end has another parent now; its closing is no death either
    has_it = 66,       ///< the rank has the news with that id
    all_have_it = 67,  ///< and so have all ranks to which it passed them on
};

struct NewsFrame {
    std::uint32_t kind = 0;  ///< a VerdictKind, or a Word
    std::int32_t rank = -1;
    std::uint32_t text_bytes = 0;
    std::uint32_t group = 0;
    std::int32_t from = -1;
    std::uint32_t sequence = 0;
    NewsId id = 0;

    static constexpr std::uint32_t text_max = 16384;
    bool is_word() const noexcept { return kind >= static_cast<std::uint32_t>(Word::attached); }
    Word word() const noexcept { return static_cast<Word>(kind); }
};
static_assert(sizeof(NewsFrame) == 32);

/// A verdict as it goes over lifelines.
struct News {
    NewsId id = 0;
    std::string bytes;
    explicit News(const Verdict& verdict);
};
/// A word of rank `rank`, about the news `id` if it is an answer.
std::string to_bytes(Word word, int rank, NewsId id = 0);

/// A frame of a lifeline with its text.
struct ReadNews {
    NewsFrame frame;
    std::string text;
    Verdict verdict() &&;
};

class NewsReader {
 public:
    explicit NewsReader(int world_size) : world_size_(world_size) {}
    void feed(std::span<const std::byte> bytes);
    /// The next whole frame.
    std::optional<ReadNews> next();
    /// The neighbour has sent something that no rank of this world sends; nothing behind it is read.
    bool is_broken() const noexcept { return broken_; }

 private:
    bool makes_sense(const NewsFrame& frame) const;

    int world_size_;
    std::string bytes_;
    bool broken_ = false;
};

}  // namespace tutti::rendezvous
