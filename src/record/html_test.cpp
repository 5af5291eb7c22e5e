#include "record/html.hpp"

#include "record/test_dumps.hpp"

#include <gtest/gtest.h>

namespace tutti::record {
namespace {

using test::dump_of, test::entry_of, test::message_of;

Entry send_of(int peer, const char* what) {
    Entry entry = message_of(Kind::send, peer, State::completed);
    entry.what = what;
    return entry;
}

TEST(Html, sums_up_the_bytes_of_messages_and_all_to_alls_by_pair) {
    Entry exchange = entry_of(1, State::completed);
    exchange.what = "all_to_all of float64";
    exchange.sent = {100, 5};
    const auto worlds = merge({dump_of(0, 2, {send_of(1, "float32 × 10"), send_of(1, "bool × 3"), exchange}),
                               dump_of(1, 2, {send_of(0, "float8_e4m3fn × 7"), send_of(0, "bfloat16 × 1")})});
    const auto bytes = bytes_by_pair(worlds.at(0));
    EXPECT_EQ(bytes, (std::vector<std::vector<std::uint64_t>>{{0, 40 + 3 + 5 * 8}, {7 + 2, 0}}));
    const std::string page = html_of(worlds, "");
    EXPECT_NE(page.find("title=\"83 bytes from rank 0 to rank 1\">83 B"), std::string::npos) << page;
    EXPECT_EQ(page.find("waiting now"), std::string::npos) << "nobody waits";
}

TEST(Html, shows_for_whom_each_rank_waits_and_takes_no_names_as_marks) {
    Dump waiting = dump_of(0, 2, {entry_of(1, State::started)}), late = dump_of(1, 2, {});
    waiting.group = late.group = "<b>\"&";
    const std::string page = html_of(merge({waiting, late}), "no answer from <rank 7>\n");
    EXPECT_NE(page.find("waiting now"), std::string::npos) << page;
    EXPECT_NE(page.find("title=\"rank 0 waits for rank 1 in #1 operation 7: it has not called it"), std::string::npos)
        << page;
    EXPECT_NE(page.find("&lt;b&gt;&quot;&amp;"), std::string::npos) << page;
    EXPECT_NE(page.find("no answer from &lt;rank 7&gt;\n"), std::string::npos) << page;
    EXPECT_EQ(page.find("<b>"), std::string::npos);
}

TEST(Html, has_words_alone_for_more_ranks_than_a_matrix_has_room_for) {
    std::vector<Dump> dumps;
    const int size = static_cast<int>(matrix_ranks_max) + 1;
    for (int rank = 0; rank < size; ++rank) dumps.push_back(dump_of(rank, size, {entry_of(1, State::started)}));
    const std::string page = html_of(merge(std::move(dumps)), "");
    EXPECT_EQ(page.find("<table>"), std::string::npos);
    EXPECT_NE(page.find("rank 64 waits for"), std::string::npos);
}

}  // namespace
}  // namespace tutti::record
