// News as bytes, whole and in pieces, and bytes that no rank sends.
#include "rendezvous/news_frame.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tutti::rendezvous {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

TEST(NewsFrames, carry_a_verdict_and_its_text) {
    const News news({VerdictKind::mismatch, -1, "rank 1 calls something else", 7, 2});
    NewsReader reader(3);
    reader.feed(as_bytes(news.bytes));
    auto read = reader.next();
    ASSERT_TRUE(read);
    EXPECT_FALSE(read->frame.is_word());
    EXPECT_EQ(read->frame.id, news.id);
    const Verdict verdict = std::move(*read).verdict();
    EXPECT_EQ(verdict.kind, VerdictKind::mismatch);
    EXPECT_EQ(verdict.rank, -1);
    EXPECT_EQ(verdict.text, "rank 1 calls something else");
    EXPECT_EQ(verdict.group, 7U);
    EXPECT_EQ(verdict.from, 2);
    EXPECT_FALSE(reader.next());
    EXPECT_FALSE(reader.is_broken());
}

TEST(NewsFrames, have_equal_ids_for_equal_news_only) {
    const Verdict verdict{VerdictKind::aborted, 1, "enough"};
    EXPECT_EQ(News(verdict).id, News(verdict).id);
    EXPECT_NE(News(verdict).id, News({VerdictKind::aborted, 1, "enough!"}).id);
    EXPECT_NE(News(verdict).id, News({VerdictKind::aborted, 2, "enough"}).id);
}

TEST(NewsFrames, come_whole_whatever_the_pieces_of_their_bytes) {
    const std::string bytes = News({VerdictKind::aborted, 1, "enough"}).bytes + to_bytes(Word::has_it, 1, 5);
    NewsReader reader(2);
    std::vector<ReadNews> all;
    for (const char byte : bytes) {
        reader.feed(as_bytes(std::string(1, byte)));
        while (auto news = reader.next()) all.push_back(std::move(*news));
    }
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].text, "enough");
    EXPECT_TRUE(all[1].frame.is_word());
    EXPECT_EQ(all[1].frame.word(), Word::has_it);
    EXPECT_EQ(all[1].frame.id, 5U);
}

TEST(NewsFrames, cut_long_texts) {
    const News news({VerdictKind::aborted, 0, std::string(100'000, 'a')});
    EXPECT_EQ(news.bytes.size(), sizeof(NewsFrame) + NewsFrame::text_max);
    NewsReader reader(1);
    reader.feed(as_bytes(news.bytes));
    EXPECT_TRUE(reader.next());
}

TEST(NewsFrames, that_no_rank_sends_break_a_lifeline_for_good) {
    const auto broken = [](NewsFrame frame) {
        NewsReader reader(3);
        std::string bytes(sizeof frame, '\0');
        std::memcpy(bytes.data(), &frame, sizeof frame);
        reader.feed(as_bytes(bytes));
        const bool is_read = reader.next().has_value();
        EXPECT_EQ(reader.is_broken(), !is_read);
        reader.feed(as_bytes(to_bytes(Word::moved, 1)));
        EXPECT_EQ(reader.next().has_value(), is_read) << "nothing behind it is read";
        return !is_read;
    };
    constexpr auto lost = static_cast<std::uint32_t>(VerdictKind::peer_lost);
    EXPECT_FALSE(broken({.kind = lost, .rank = 2}));
    EXPECT_TRUE(broken({.kind = lost, .rank = 3})) << "no such rank";
    EXPECT_TRUE(broken({.kind = lost, .rank = -1})) << "somebody has died";
    EXPECT_FALSE(broken({.kind = static_cast<std::uint32_t>(VerdictKind::aborted), .rank = -1}));
    EXPECT_TRUE(broken({.kind = lost, .rank = 2, .from = 3}));
    EXPECT_TRUE(broken({.kind = lost, .rank = 2, .text_bytes = NewsFrame::text_max + 1}));
    EXPECT_TRUE(broken({.kind = 0, .rank = 2}));
    EXPECT_TRUE(broken({.kind = 10, .rank = 2}));
    EXPECT_TRUE(broken({.kind = 68, .rank = 2}));
    EXPECT_TRUE(broken({.kind = static_cast<std::uint32_t>(Word::moved), .rank = -1}));
}

}  // namespace
}  // namespace tutti::rendezvous
