#include "core/text.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

TEST(Text, a_number_is_all_of_the_text_and_fits_its_type) {
    EXPECT_EQ(number_in<int>("-12"), -12);
    EXPECT_EQ(number_in<std::uint8_t>("255"), 255);
    EXPECT_EQ(number_in<std::uint64_t>("ff", 16), 255U);
    EXPECT_EQ(number_in<double>("2.5e3"), 2500);
    for (const std::string_view text : {"", " 1", "1 ", "+1", "1x", "x", "-"})
        EXPECT_FALSE(number_in<int>(text)) << text;
    EXPECT_FALSE(number_in<std::uint8_t>("256"));
    EXPECT_FALSE(number_in<unsigned>("-1"));
    EXPECT_FALSE(number_in<double>("1.5 "));
    EXPECT_FALSE(number_in<int>({})) << "no text at all";
}

TEST(Text, lines_are_taken_one_by_one_with_the_last_one_ended_or_not) {
    const auto lines = [](std::string_view text) {
        std::vector<std::string_view> all;
        while (!text.empty()) all.push_back(take_line(text));
        return all;
    };
    using Lines = std::vector<std::string_view>;
    EXPECT_EQ(lines(""), Lines{});
    EXPECT_EQ(lines("one"), Lines{"one"});
    EXPECT_EQ(lines("one\n\ntwo\n"), (Lines{"one", "", "two"}));
    EXPECT_EQ(lines("\nlast"), (Lines{"", "last"}));
}

TEST(Text, shows_what_would_steer_a_terminal) {
    EXPECT_EQ(visible("a\x1b[2J\r\tb\x7f\nc\xc2\x9b"
                      "d\xc3\xa9"),
              "a\\x1b[2J\\x0d\tb\\x7f\nc\\xc2\\x9bd\xc3\xa9");
    EXPECT_EQ(visible_line("two\nlines\xc2"), "two\\nlines\xc2");
    EXPECT_EQ(visible(""), "");
}

}  // namespace
}  // namespace tutti
