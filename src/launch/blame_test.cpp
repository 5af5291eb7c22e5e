// Whom the launcher names, in a table of situations: what it knows of four ranks, and the answer.
#include "launch/blame.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <utility>
#include <vector>

namespace tutti::launch {
namespace {

using rendezvous::FailureReport;
using std::chrono::milliseconds;
using Way = Blame::Way;

constexpr int exited(int status) {
    return status << 8;
}

// The evidence about four ranks, or about others.
class Situation {
 public:
    explicit Situation(int first_rank = 0) {
        for (int r = 0; r < 4; ++r) {
            Entry& entry = entries_.emplace_back();
            entry.child.pid = 100 + r;
            entry.rank = first_rank + r;
        }
    }
    Situation& ends(int rank, int status, int after_ms) {
        at(rank).child.status = status;
        at(rank).ended_ms = after_ms;
        return *this;
    }
    Situation& stopped(int rank) {
        at(rank).stopped = true;
        return ends(rank, SIGTERM, 3000);
    }
    Situation& says(int rank, ErrorCode code, int culprit, int after_ms, const std::string& text = "all_reduce #6") {
        const char* place = code == ErrorCode::invalid_argument && culprit < 0 ? "" : "node07, pid 4711";
        at(rank).said = FailureReport{rank, static_cast<int>(code), culprit, place, text};
        at(rank).said_ms = after_ms;
        return *this;
    }
    Situation& not_started(int rank) {
        at(rank).child.pid = -1;
        at(rank).child.not_started = NotStarted{127, "No such file or directory"};
        return *this;
    }
    std::vector<Suspect> suspects() const {
        std::vector<Suspect> all;
        for (const Entry& e : entries_) {
            all.push_back({"rank " + std::to_string(e.rank), e.rank, &e.child, start_ + milliseconds(e.ended_ms),
                           e.stopped, &e.said, start_ + milliseconds(e.said_ms)});
        }
        return all;
    }
    std::string words() const {
        const auto all = suspects();
        const auto blame = find_culprit(all);
        return blame ? in_words(*blame, all, start_, false) : "";
    }
    std::string others() const {
        const auto all = suspects();
        return the_others(*find_culprit(all), all);
    }

 private:
    struct Entry {
        int rank = 0;
        Child child{};
        int ended_ms = 0, said_ms = 0;
        bool stopped = false;
        std::optional<FailureReport> said{};
    };
    Entry& at(int rank) { return entries_[static_cast<std::size_t>(rank - entries_.front().rank)]; }

    const Suspect::Moment start_ = std::chrono::steady_clock::now();
    std::deque<Entry> entries_;
};

struct Expected {
    std::optional<Way> way;  // nothing: nobody failed
    int culprit = -1;        // -1: none of these
    int decisive = 0;
};

void expect(const char* what, const Situation& situation, const Expected& expected) {
    SCOPED_TRACE(what);
    const auto suspects = situation.suspects();
    const auto blame = find_culprit(suspects);
    ASSERT_EQ(blame.has_value(), expected.way.has_value());
    if (!blame) return;
    EXPECT_EQ(blame->way, *expected.way);
    EXPECT_EQ(blame->culprit ? static_cast<int>(*blame->culprit) : -1, expected.culprit);
    EXPECT_EQ(blame->decisive(), static_cast<std::size_t>(expected.decisive));
}

TEST(Blame, names_whoever_the_evidence_names) {
    constexpr auto timeout = ErrorCode::timeout, lost = ErrorCode::peer_lost, mismatch = ErrorCode::collective_mismatch,
                   aborted = ErrorCode::aborted, invalid = ErrorCode::invalid_argument;
    expect("nobody has ended", Situation(), {});
    expect("all have ended well", Situation().ends(0, 0, 10).ends(1, 0, 10), {});
    expect("the launcher has ended them", Situation().stopped(0).stopped(1), {});
    expect("one could not be started", Situation().ends(0, exited(1), 10).not_started(1), {Way::ended, 1, 1});
    expect("one exits", Situation().ends(2, exited(3), 10).stopped(0), {Way::ended, 2, 2});
    expect("two exit", Situation().ends(2, exited(3), 10).ends(1, exited(1), 9), {Way::ended, 1, 1});
    expect("one is killed in the moment in which another exits",
           Situation().ends(0, exited(1), 10).ends(3, SIGKILL, 150), {Way::ended, 3, 3});
    expect("one is killed long after", Situation().ends(0, exited(1), 10).ends(3, SIGKILL, 500), {Way::ended, 0, 0});
    expect("one aborts after another exited", Situation().ends(0, exited(1), 10).ends(3, SIGABRT, 50),
           {Way::ended, 0, 0});
    expect("one aborts as another exits", Situation().ends(0, exited(1), 10).ends(3, SIGABRT, 10), {Way::ended, 3, 3});
    expect("one hangs, and the others wait in vain",
           Situation()
               .says(0, timeout, 2, 9)
               .ends(0, exited(1), 10)
               .says(1, timeout, 2, 9)
               .ends(1, exited(1), 11)
               .stopped(2),
           {Way::accused, 2, 0});
    expect("it ends badly afterwards",
           Situation().says(0, timeout, 2, 9).ends(0, exited(1), 10).ends(2, exited(7), 900), {Way::accused, 2, 0});
    expect("it is killed while the others fail",
           Situation().says(0, lost, 2, 9).ends(0, exited(1), 10).ends(2, SIGKILL, 12), {Way::ended, 2, 2});
    expect("it has left, and well", Situation().ends(3, 0, 5).says(0, lost, 3, 9).ends(0, exited(1), 10),
           {Way::accused, 3, 0});
    expect("an exception ends one, which tells the others",
           Situation().says(0, aborted, 3, 9).ends(0, SIGABRT, 10).says(3, aborted, 3, 8).ends(3, exited(1), 11),
           {Way::ended, 3, 3});
    expect("a rank crashes after the others' verdict, which it shares",
           Situation().says(0, timeout, 2, 9).says(1, timeout, 2, 9).ends(1, SIGSEGV, 12).stopped(2),
           {Way::accused, 2, 1});
    expect("the first says nothing, and others had blamed a third",
           Situation().says(0, timeout, 2, 9).ends(1, exited(1), 12).stopped(2), {Way::accused, 2, 1});
    expect("the first says nothing, and others blame a third later",
           Situation().says(0, timeout, 2, 30).ends(1, exited(1), 12).stopped(2), {Way::ended, 1, 1});
    expect("the first was killed, and others had blamed a third",
           Situation().says(0, timeout, 2, 9).ends(1, SIGKILL, 12).stopped(2), {Way::ended, 1, 1});
    expect("the accused accuses another",
           Situation().says(0, timeout, 2, 9).ends(0, exited(1), 10).says(2, timeout, 3, 9).stopped(2).stopped(3),
           {Way::accused, 3, 0});
    expect("two accuse each other",
           Situation().says(0, timeout, 2, 9).ends(0, exited(1), 10).says(2, timeout, 0, 9).ends(2, exited(1), 15),
           {Way::accused, 0, 0});
    expect("ranks wait for each other, and the one that is blamed ends first",
           Situation().says(0, timeout, 2, 9).ends(0, SIGABRT, 12).says(2, timeout, 2, 9).ends(2, SIGABRT, 10),
           {Way::accused, 2, 2});
    expect("ranks call different things", Situation().says(0, mismatch, 1, 9).ends(0, exited(1), 10).stopped(1),
           {Way::disagree, -1, 0});
    expect("ranks of different sizes", Situation().says(0, invalid, 3, 9).ends(0, exited(1), 10).stopped(3),
           {Way::disagree, -1, 0});
    expect("its own arguments are wrong", Situation().says(0, invalid, -1, 9).ends(0, exited(1), 10),
           {Way::ended, 0, 0});
    expect("the accused is on another node", Situation(4).says(4, timeout, 1, 9).ends(4, exited(1), 10),
           {Way::accused, -1, 0});
}

TEST(Blame, says_it_in_words) {
    const std::string verdict =
        "all_reduce #6 in group \"default\" (4 ranks): timed out after 3 s; rank 0 has nothing from rank 1"
        "\n  ranks 0, 1, 3: called all_reduce #6\n  rank 2: has not called it: it is in barrier #2 for 3 s";
    Situation hang;
    hang.says(0, ErrorCode::timeout, 2, 9, verdict).ends(0, exited(1), 3100).stopped(2).stopped(3);
    EXPECT_EQ(
        hang.words(),
        "the ranks blame rank 2 (pid 102, still running), after 3.1 s: all_reduce #6 in group \"default\" (4 ranks): "
        "timed out after 3 s; rank 0 has nothing from rank 1\n  rank 2: has not called it: it is in barrier #2 for "
        "3 s");
    EXPECT_EQ(
        hang.others(),
        "  the others: rank 0 exited with status 1; rank 3 killed by signal 15 (SIGTERM) (stopped by tutti run)\n");
    EXPECT_EQ(Situation().ends(2, SIGKILL, 100).words(),
              "rank 2 (pid 102) was the first to fail, after 0.1 s: killed by signal 9 (SIGKILL)");
    EXPECT_EQ(Situation().ends(2, exited(137), 100).words(),
              "rank 2 (pid 102) was the first to fail, after 0.1 s: exited with status 137, which a shell gives for a "
              "program that SIGKILL ended");
    EXPECT_EQ(Situation().says(0, ErrorCode::peer_lost, 3, 1, "gone").ends(3, 0, 5).ends(0, exited(1), 100).words(),
              "the ranks blame rank 3 (pid 103, exited with status 0), after 0.1 s: gone");
    EXPECT_EQ(Situation(4).says(4, ErrorCode::timeout, 1, 1, "late").ends(4, exited(1), 100).words(),
              "the ranks blame rank 1 (node07, pid 4711), after 0.1 s: late");
    EXPECT_EQ(Situation(4).says(4, ErrorCode::timeout, -1, 1, "late").ends(4, exited(1), 100).words(),
              "the ranks blame a process (node07, pid 4711), after 0.1 s: late");
    Situation different;
    different.says(0, ErrorCode::collective_mismatch, 1, 9, verdict).ends(0, exited(1), 100).stopped(1);
    EXPECT_EQ(different.words(), "the ranks disagree, after 0.1 s: " + verdict.substr(0, verdict.find('\n')));
    EXPECT_EQ(different.others(),
              "  the ranks here: rank 0 exited with status 1; rank 1 killed by signal 15 (SIGTERM) (stopped by tutti "
              "run)\n");
}

}  // namespace
}  // namespace tutti::launch
