#include "launch/lines.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace tutti::launch {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

// Two ranks' lines into one file.
class TwoRanks : public testing::TestWithParam<Lines::Style> {
 protected:
    TwoRanks() : file_(::memfd_create("lines", 0)) {}
    ~TwoRanks() override { ::close(file_); }
    std::string prefix(int rank) const {
        return GetParam() == Lines::Style::unchanged ? "" : "[rank " + std::to_string(rank) + "] ";
    }
    Lines make(int rank) {
        return {GetParam(), prefix(rank), file_, tails_[static_cast<std::size_t>(rank)], place_, [] { return true; }};
    }
    std::string written() const {
        std::string all(static_cast<std::size_t>(::lseek(file_, 0, SEEK_END)), '\0');
        EXPECT_EQ(::pread(file_, all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
        return all;
    }
    const int file_;
    std::array<Tail, 2> tails_;
    Unfinished place_;
    Lines zero_ = make(0), one_ = make(1);
};

// Parts, as pipes deliver them.
void add(Lines& lines, const std::string& text) {
    for (std::size_t at = 0; at < text.size(); at += 65536) ASSERT_FALSE(lines.add(text.substr(at, 65536)));
}

TEST_P(TwoRanks, a_line_of_less_than_a_mebibyte_is_passed_on_whole) {
    const std::string line(900'000, 'x');
    add(zero_, line);
    EXPECT_FALSE(one_.must_wait());
    add(one_, "short\n");
    add(zero_, "\n");
    EXPECT_EQ(written(), prefix(1) + "short\n" + prefix(0) + line + "\n");
}

TEST_P(TwoRanks, others_wait_for_the_end_of_a_longer_one) {
    const std::string line(5 * mebibyte, 'x');
    add(zero_, line);
    EXPECT_EQ(written().size(), prefix(0).size() + line.size()) << "it is passed on as it comes";
    EXPECT_TRUE(zero_.holds());
    EXPECT_TRUE(one_.must_wait());
    EXPECT_FALSE(zero_.must_wait());
    add(zero_, "end\nnext");
    EXPECT_FALSE(one_.must_wait());
    add(one_, "short\n");
    EXPECT_FALSE(zero_.finish());
    const std::string end = GetParam() == Lines::Style::unchanged ? "" : "\n";
    EXPECT_EQ(written(), prefix(0) + line + "end\n" + prefix(1) + "short\n" + prefix(0) + "next" + end);
    EXPECT_EQ(tails_[0].lines().front(), std::string(Tail::length_max, 'x'));
}

TEST_P(TwoRanks, a_long_line_that_is_let_go_holds_nobody_up_again_before_its_end) {
    const std::string part(mebibyte + 1, 'x');
    add(zero_, part);
    zero_.let_go();
    EXPECT_FALSE(one_.must_wait());
    add(zero_, part);
    EXPECT_FALSE(one_.must_wait());
    add(one_, "short\n");
    const std::string cut = GetParam() == Lines::Style::unchanged ? "" : "\n";
    add(zero_, "rest\n" + part);
    EXPECT_EQ(written(), prefix(0) + part + part + cut + prefix(1) + "short\n" + prefix(0) + "rest\n" +
                             (GetParam() == Lines::Style::unchanged ? "" : prefix(0)) + part);
    EXPECT_TRUE(one_.must_wait()) << "the next line is another";
}

TEST_P(TwoRanks, a_long_line_without_end_is_ended) {
    const std::string line(mebibyte + 1, 'x');
    add(zero_, line);
    EXPECT_FALSE(zero_.finish());
    EXPECT_FALSE(one_.must_wait());
    add(one_, "short\n");
    const std::string end = GetParam() == Lines::Style::unchanged ? "" : "\n";
    EXPECT_EQ(written(), prefix(0) + line + end + prefix(1) + "short\n");
}

TEST_P(TwoRanks, a_long_line_that_nobody_sees_is_not_kept) {
    Lines hidden(GetParam(), prefix(0), -1, tails_[0], place_, [] { return true; });
    add(hidden, std::string(3 * mebibyte, 'x'));
    EXPECT_FALSE(one_.must_wait());
    add(hidden, "\n");
    EXPECT_EQ(tails_[0].lines().front(), std::string(Tail::length_max, 'x'));
    EXPECT_EQ(written(), "");
}

INSTANTIATE_TEST_SUITE_P(Styles, TwoRanks, testing::Values(Lines::Style::prefixed, Lines::Style::unchanged));

TEST(WriteAll, tells_why_it_cannot) {
    const auto always = [] { return true; };
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(write_all(full, "x", always).value(), ENOSPC);
    ::close(full);
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    EXPECT_FALSE(write_all(ends[1], "x", always));
    EXPECT_EQ(write_all(ends[1], std::string(mebibyte, 'x'), [] { return false; }).value(), ECANCELED);
    ::close(ends[0]);
    ::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(write_all(ends[1], "x", always).value(), EPIPE);
    ::close(ends[1]);
}

}  // namespace
}  // namespace tutti::launch
