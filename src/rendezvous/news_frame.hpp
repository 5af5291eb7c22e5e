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

/// A message between two neighbours only; a frame has it in place of a verdict's kind.
enum class Word : std::uint32_t {
    attached = 64,     ///< sent first by both ends: before it arrives, the lifeline's end is no death
    moved = 65,        ///< the sender has another parent now: the end of this lifeline is no death
    has_it = 66,       ///< the sender has the news `id`
    all_have_it = 67,  ///< all ranks to which the sender passed the news `id` on have it, too
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

/// A verdict, encoded for lifelines.
struct News {
    NewsId id = 0;
    std::string bytes;
    explicit News(const Verdict& verdict);
};
/// A word from rank `rank`; `id`: the news that it answers, if any.
std::string to_bytes(Word word, int rank, NewsId id = 0);

/// A frame received on a lifeline, with its text.
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
    /// The neighbour has sent something that no rank of this world sends; the reader ignores all later bytes.
    bool is_broken() const noexcept { return broken_; }

 private:
    bool makes_sense(const NewsFrame& frame) const;

    int world_size_;
    std::string bytes_;
    bool broken_ = false;
};

}  // namespace tutti::rendezvous
