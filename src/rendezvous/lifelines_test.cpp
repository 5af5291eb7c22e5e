// What one rank does about its lifelines, with a neighbour at each that the test plays. Whole worlds:
// tests/simulation/lifelines_simulation_test.cpp.
#include "rendezvous/lifelines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using How = LineEnd::How;

// Rank 4 of eight: its parent is 0, its children 5 and 6; 7 is behind 6.
class RankFour : public testing::Test {
 protected:
    explicit RankFour(const std::vector<std::string>& hosts = std::vector<std::string>(8, "here"))
        : roster_{4, {}, {}, 1, security::Secret::from_text("secret")} {
        std::vector<Card> cards;
        for (const std::string& host : hosts) {
            Card& card = cards.emplace_back();
            card.host_key = card.host_name = host;
            card.process = 100 + static_cast<int>(cards.size());
        }
        roster_.cards = std::make_shared<const std::vector<Card>>(std::move(cards));
        lines_.emplace(roster_, LifelineOptions{13s, [this](int rank) { return rank == stopped_; }});
        parent_ = lines_->attach(0, Role::parent, true, now_);
        five_ = lines_->attach(5, Role::child, false, now_);
        six_ = lines_->attach(6, Role::child, false, now_);
        for (const auto& [line, rank] : {std::pair{five_, 5}, std::pair{six_, 6}}) says(line, Word::attached, rank);
        for (const LineId line : {parent_, five_, six_}) says(line, Word::has_it, lines_->tree().lines().at(line).rank);
        lines_->take_effects();
    }

    void hears(LineId line, const std::string& bytes) {
        ASSERT_TRUE(lines_->on_bytes(line, std::as_bytes(std::span(bytes)), now_));
    }
    void says(LineId line, Word word, int rank, NewsId id = 0) { hears(line, to_bytes(word, rank, id)); }
    template <class Kind>
    std::vector<Kind> effects() {
        std::vector<Kind> all;
        for (Effect& effect : lines_->take_effects()) {
            if (auto* one = std::get_if<Kind>(&effect)) all.push_back(std::move(*one));
        }
        return all;
    }
    // The news that go over lifelines now, in the order of sending; this takes the effects.
    std::vector<std::pair<LineId, std::uint32_t>> sent() {
        std::vector<std::pair<LineId, std::uint32_t>> kinds;
        for (const SendBytes& one : effects<SendBytes>()) {
            NewsReader reader(8);
            reader.feed(std::as_bytes(std::span(one.bytes)));
            while (const auto news = reader.next()) kinds.emplace_back(one.line, news->frame.kind);
        }
        return kinds;
    }
    // Time passes, and the rank looks as often as it asks for.
    std::vector<Inform> informed_within(Clock::duration time) {
        std::vector<Inform> all;
        for (const Instant end = now_ + time; now_ < end;) {
            now_ += 10ms;
            lines_->on_time(now_);
            for (Inform& one : effects<Inform>()) all.push_back(std::move(one));
        }
        return all;
    }
    static std::uint32_t kind(Word word) { return static_cast<std::uint32_t>(word); }
    static std::uint32_t kind(VerdictKind verdict) { return static_cast<std::uint32_t>(verdict); }
    using Sent = std::vector<std::pair<LineId, std::uint32_t>>;

    int stopped_ = -1;
    Instant now_{1h};
    Roster roster_;
    std::optional<Lifelines> lines_;
    LineId parent_ = 0, five_ = 0, six_ = 0;
};

const Verdict enough{VerdictKind::aborted, 0, "enough"};

TEST_F(RankFour, passes_news_on_and_answers_when_those_behind_it_have) {
    const News news(enough);
    hears(parent_, news.bytes);
    EXPECT_EQ(
        sent(),
        (Sent{{five_, kind(VerdictKind::aborted)}, {six_, kind(VerdictKind::aborted)}, {parent_, kind(Word::has_it)}}));
    lines_->informed(news.id);
    says(five_, Word::all_have_it, 5, news.id);
    says(six_, Word::has_it, 6, news.id);
    lines_->on_time(now_);
    EXPECT_TRUE(sent().empty()) << "7 may not have them";
    says(six_, Word::all_have_it, 6, news.id);
    lines_->on_time(now_);
    EXPECT_EQ(sent(), (Sent{{parent_, kind(Word::all_have_it)}}));
}

TEST_F(RankFour, does_not_answer_before_its_own_code_is_informed) {
    const News news(enough);
    hears(parent_, news.bytes);
    for (const auto& [line, rank] : {std::pair{five_, 5}, std::pair{six_, 6}})
        says(line, Word::all_have_it, rank, news.id);
    lines_->on_time(now_);
    const auto effects = lines_->take_effects();
    EXPECT_TRUE(std::ranges::any_of(effects, [](const Effect& effect) {
        return std::holds_alternative<Inform>(effect) && std::get<Inform>(effect).verdict.text == "enough";
    }));
    lines_->informed(news.id);
    EXPECT_EQ(sent(), (Sent{{parent_, kind(Word::all_have_it)}}));
}

TEST_F(RankFour, passes_the_same_news_on_once) {
    const News news(enough);
    hears(parent_, news.bytes);
    lines_->take_effects();
    hears(five_, news.bytes);
    EXPECT_EQ(sent(), (Sent{{five_, kind(Word::has_it)}}));
    EXPECT_FALSE(lines_->flood(enough, now_));
}

// Found by simulation: rank 4 was stopped, and 5 told 0 past it. When 4 ran again it had the news of 5, said to 0 at
// once that all had them, and 0 passed that on, though 6 and 7 had yet to hear.
TEST_F(RankFour, answers_a_neighbour_that_sends_news_again_when_those_behind_it_have_them) {
    const News news(enough);
    hears(five_, news.bytes);
    lines_->informed(news.id);
    hears(parent_, news.bytes);
    says(parent_, Word::all_have_it, 0, news.id);
    lines_->on_time(now_);
    lines_->take_effects();
    says(six_, Word::all_have_it, 6, news.id);
    lines_->on_time(now_);
    EXPECT_EQ(sent(), (Sent{{parent_, kind(Word::all_have_it)}, {five_, kind(Word::all_have_it)}}));
}

TEST_F(RankFour, knows_when_all_have_its_own_news) {
    ASSERT_TRUE(lines_->flood(enough, now_));
    const NewsId id = News(enough).id;
    says(parent_, Word::all_have_it, 0, id);
    says(five_, Word::all_have_it, 5, id);
    EXPECT_FALSE(lines_->settled());
    says(six_, Word::all_have_it, 6, id);
    EXPECT_TRUE(lines_->settled());
}

TEST_F(RankFour, tells_a_lifeline_that_comes_later_all_news_so_far) {
    lines_->flood({VerdictKind::left, 6, {}}, now_);
    lines_->take_effects();
    const LineId seven = lines_->attach(7, Role::child, false, now_);
    EXPECT_EQ(sent(), (Sent{{seven, kind(Word::attached)}, {seven, kind(VerdictKind::left)}}));
}

TEST_F(RankFour, calls_a_rank_dead_whose_lifeline_closes_without_a_goodbye) {
    lines_->on_end(six_, {.process_end = "killed by SIGKILL"}, now_);
    const auto effects = lines_->take_effects();
    const auto informed =
        std::ranges::find_if(effects, [](const auto& e) { return std::holds_alternative<Inform>(e); });
    ASSERT_NE(informed, effects.end());
    EXPECT_EQ(std::get<Inform>(*informed).verdict.text, "rank 6 (here, pid 107) is gone: killed by SIGKILL");
}

// Found by drills: a rank of a host that was cut off failed, named the others, and left; its neighbour, which did not
// yet name them to its own code, took the goodbye for the reason.
TEST_F(RankFour, hears_of_a_goodbye_after_the_loss_that_may_be_its_reason) {
    lines_->on_end(parent_, {.how = How::host_lost}, now_);
    EXPECT_TRUE(effects<Inform>().empty()) << "it may be the only one to know";
    hears(six_, News(Verdict{VerdictKind::left, 6, {}}).bytes);
    EXPECT_TRUE(effects<Inform>().empty());
    now_ += 1s;
    lines_->on_time(now_);
    const auto informed = effects<Inform>();
    ASSERT_EQ(informed.size(), 2U);
    EXPECT_EQ(informed[0].verdict.kind, VerdictKind::host_lost);
    EXPECT_EQ(informed[1].verdict.kind, VerdictKind::left);
}

TEST_F(RankFour, calls_nobody_dead_whose_lifeline_was_not_there_on_both_ends_unless_its_process_has_ended) {
    const LineId seven = lines_->attach(7, Role::child, false, now_),
                 again = lines_->attach(7, Role::child, false, now_);
    lines_->on_end(seven, {}, now_);
    EXPECT_TRUE(effects<Inform>().empty());
    lines_->on_end(again, {.process_end = "exited with status 1"}, now_);
    ASSERT_EQ(informed_within(1s).size(), 1U);
}

// Found by simulation: a parent said goodbye to those that were connected to it, and was killed while it waited for a
// child that was yet to come. That child alone knew of a death, and the others had no lifeline to it any more.
TEST_F(RankFour, turns_to_those_beside_a_dead_rank_to_which_it_was_not_yet_connected) {
    says(parent_, Word::moved, 0);
    lines_->on_end(parent_, {}, now_);
    const LineId unseen = lines_->attach(0, Role::parent, false, now_);
    lines_->take_effects();
    lines_->on_end(unseen, {.process_end = "killed by SIGKILL"}, now_);
    std::vector<int> dialed;
    for (const Dial& dial : effects<Dial>()) dialed.push_back(dial.rank);
    EXPECT_EQ(dialed, (std::vector{1, 2}));
}

// A lifeline that was being made when its rank left: the goodbye came over another.
TEST_F(RankFour, calls_nobody_dead_who_has_said_goodbye_anywhere) {
    const LineId seven = lines_->attach(7, Role::child, false, now_);
    hears(six_, News({VerdictKind::left, 7, {}}).bytes);
    lines_->take_effects();
    EXPECT_FALSE(lines_->would_be_missed(seven));
    lines_->on_end(seven, {.process_end = "exited with status 0"}, now_);
    EXPECT_TRUE(effects<Inform>().empty());
}

TEST_F(RankFour, calls_nobody_dead_who_has_another_parent) {
    says(six_, Word::moved, 6);
    EXPECT_FALSE(lines_->would_be_missed(six_));
    lines_->on_end(six_, {}, now_);
    EXPECT_TRUE(effects<Inform>().empty());
}

TEST_F(RankFour, keeps_its_parent_until_it_has_another) {
    hears(parent_, News({VerdictKind::left, 0, {}}).bytes);
    lines_->on_time(now_);
    EXPECT_TRUE(effects<Dial>().empty()) << "others may leave as well";
    EXPECT_EQ(lines_->next_look(now_), now_ + Reparenter::delay);
    now_ += Reparenter::delay;
    lines_->on_time(now_);
    const auto wanted = effects<Dial>();
    ASSERT_EQ(wanted.size(), 1U);
    EXPECT_EQ(wanted[0].rank, 1);
    EXPECT_EQ(wanted[0].role, Role::parent);
    lines_->on_dial_failed(wanted[0], DialFailure::refused, now_);
    lines_->on_time(now_);
    ASSERT_EQ(effects<Dial>().at(0).rank, 2);
    const LineId two = lines_->attach(2, Role::parent, true, now_);
    EXPECT_EQ(sent(), (Sent{{two, kind(Word::attached)},
                            {two, kind(VerdictKind::left)},
                            {two, kind(Word::has_it)},
                            {parent_, kind(Word::moved)}}));
    lines_->on_end(parent_, {}, now_);
    lines_->on_time(now_);
    EXPECT_TRUE(effects<Dial>().empty());
}

TEST_F(RankFour, lets_its_parent_go_when_it_is_the_lowest_that_is_left) {
    for (const int rank : {1, 2, 3, 0}) hears(parent_, News({VerdictKind::left, rank, {}}).bytes);
    lines_->take_effects();
    lines_->on_time(now_ + Reparenter::delay);
    EXPECT_EQ(sent(), (Sent{{parent_, kind(Word::moved)}}));
}

TEST_F(RankFour, looks_for_no_parent_once_the_world_has_ended) {
    const Verdict lost_parent{VerdictKind::peer_lost, 0, "rank 0 (here, pid 101) is gone: killed by SIGKILL"};
    hears(five_, News(enough).bytes);
    lines_->on_end(parent_, {.process_end = "killed by SIGKILL"}, now_);
    lines_->on_time(now_);
    EXPECT_TRUE(effects<Dial>().empty());
    EXPECT_TRUE(lines_->is_counted_on()) << "6 may not have the news";
    for (const Verdict& verdict : {enough, lost_parent}) says(six_, Word::has_it, 6, News(verdict).id);
    says(five_, Word::has_it, 5, News(lost_parent).id);
    EXPECT_FALSE(lines_->is_counted_on());
}

TEST_F(RankFour, turns_to_those_behind_a_rank_that_is_stopped) {
    stopped_ = 6;
    lines_->flood(enough, now_);
    lines_->take_effects();
    lines_->on_time(now_);
    std::vector<int> dialed;
    std::vector<Verdict> informed;
    for (const Effect& effect : lines_->take_effects()) {
        if (const auto* dial = std::get_if<Dial>(&effect)) dialed.push_back(dial->rank);
        if (const auto* news = std::get_if<Inform>(&effect)) informed.push_back(news->verdict);
    }
    EXPECT_EQ(dialed, std::vector{7});
    ASSERT_EQ(informed.size(), 1U);
    EXPECT_EQ(informed[0].kind, VerdictKind::silent);
    EXPECT_EQ(informed[0].rank, 6);
}

// Found by simulation: 0 was stopped after it had brought the news, and the rank that began them turned to this one.
TEST_F(RankFour, answers_one_that_turned_to_it_around_a_silent_rank_when_those_behind_have_answered) {
    const News news(enough);
    hears(parent_, news.bytes);
    lines_->informed(news.id);
    const LineId one = lines_->attach(1, Role::child, false, now_);
    lines_->take_effects();
    hears(one, news.bytes);
    lines_->on_time(now_);
    EXPECT_EQ(sent(), (Sent{{one, kind(Word::has_it)}})) << "5 and 6 may not have them";
    for (const auto& [line, rank] : {std::pair{five_, 5}, std::pair{six_, 6}})
        says(line, Word::all_have_it, rank, news.id);
    lines_->on_time(now_);
    EXPECT_EQ(sent(), (Sent{{parent_, kind(Word::all_have_it)}, {one, kind(Word::all_have_it)}}));
}

// Found by simulation: news that began before such a lifeline was there were known too early.
TEST_F(RankFour, waits_for_those_to_whom_it_turns_while_the_lifeline_to_them_is_made) {
    stopped_ = 6;
    hears(parent_, News({VerdictKind::aborted, 0, "first"}).bytes);
    lines_->on_time(now_);
    ASSERT_EQ(effects<Dial>().size(), 1U);
    lines_->flood(enough, now_);
    const NewsId id = News(enough).id;
    says(parent_, Word::all_have_it, 0, id);
    says(five_, Word::all_have_it, 5, id);
    EXPECT_FALSE(lines_->settled());
    const LineId seven = lines_->attach(7, Role::beside, true, now_);
    says(seven, Word::all_have_it, 7, id);
    EXPECT_TRUE(lines_->settled());
}

// Found by simulation: 2 left before it heard, and 3, its child, has a silent parent since then.
TEST_F(RankFour, turns_to_those_that_a_goodbye_puts_behind_a_silent_rank) {
    stopped_ = 0;
    lines_->flood(enough, now_);
    lines_->on_time(now_);
    ASSERT_EQ(effects<Dial>().size(), 2U);
    const LineId one = lines_->attach(1, Role::beside, true, now_);
    hears(one, News({VerdictKind::left, 2, {}}).bytes);
    lines_->on_time(now_);
    const auto wanted = effects<Dial>();
    ASSERT_EQ(wanted.size(), 1U);
    EXPECT_EQ(wanted[0].rank, 3);
    EXPECT_EQ(wanted[0].role, Role::beside);
}

// Found by simulation: 0, whose second was over, left before it could turn to those behind 1.
TEST_F(RankFour, turns_to_those_behind_a_silent_rank_beside_which_a_goodbye_puts_it) {
    hears(parent_, News({VerdictKind::left, 0, {}, 0, 0}).bytes);
    hears(five_, News(enough).bytes);
    lines_->informed(News(enough).id);
    for (const Word word : {Word::has_it, Word::all_have_it}) says(six_, word, 6, News(enough).id);
    lines_->on_time(now_);
    EXPECT_TRUE(effects<Dial>().empty());
    hears(five_, News({VerdictKind::silent, 1, {}}).bytes);
    lines_->on_time(now_);
    const auto wanted = effects<Dial>();
    ASSERT_EQ(wanted.size(), 1U);
    EXPECT_EQ(wanted[0].rank, 2);
    const LineId two = lines_->attach(2, Role::beside, true, now_);
    EXPECT_TRUE(lines_->is_counted_on()) << "2 may not have the news";
    says(two, Word::has_it, 2, News(enough).id);
    EXPECT_FALSE(lines_->is_counted_on());
}

TEST_F(RankFour, turns_to_those_behind_one_that_refuses_too) {
    stopped_ = 6;
    lines_->flood(enough, now_);
    lines_->on_time(now_);
    lines_->on_dial_failed({7, Role::beside, 1s}, DialFailure::refused, now_);
    says(parent_, Word::all_have_it, 0, News(enough).id);
    says(five_, Word::all_have_it, 5, News(enough).id);
    EXPECT_TRUE(lines_->settled()) << "nobody can be reached of those that are left";
}

// Found by simulation: a rank had died unnoticed, as those that would have seen it had left or died; the one that
// looked for a parent asked it again and again, and never heard what the ranks behind it knew.
TEST_F(RankFour, turns_to_those_beside_a_parent_that_refuses_and_has_not_said_goodbye) {
    lines_->on_dial_failed({0, Role::parent, 300ms}, DialFailure::refused, now_);
    std::vector<int> dialed;
    for (const Dial& dial : effects<Dial>()) dialed.push_back(dial.rank);
    EXPECT_EQ(dialed, (std::vector{1, 2}));
}

TEST_F(RankFour, waits_for_a_sign_of_life_of_a_process_that_is_not_stopped) {
    lines_->flood(enough, now_);
    lines_->take_effects();
    EXPECT_TRUE(informed_within(1990ms).empty());
    EXPECT_EQ(informed_within(20ms).size(), 3U);
}

// Found by simulation: a rank that had been stopped accused its neighbours of silence before it read their answers.
TEST_F(RankFour, accuses_nobody_of_a_silence_in_which_it_did_not_look_itself) {
    lines_->flood(enough, now_);
    lines_->on_time(now_);
    lines_->take_effects();
    now_ += 5s;
    lines_->on_time(now_);
    EXPECT_TRUE(effects<Inform>().empty());
    for (const auto& [line, rank] : {std::pair{parent_, 0}, std::pair{five_, 5}})
        says(line, Word::has_it, rank, News(enough).id);
    const auto silent = informed_within(2s);
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent[0].verdict.rank, 6);
}

// Found by simulation: two lifelines led to one neighbour, and it took the answer to the second copy for the first's.
TEST_F(RankFour, does_not_answer_earlier_where_news_come_by_two_lifelines_of_a_neighbour) {
    const LineId again = lines_->attach(6, Role::child, false, now_);
    const News news(enough);
    hears(six_, news.bytes);
    lines_->take_effects();
    hears(again, news.bytes);
    EXPECT_EQ(sent(), (Sent{{again, kind(Word::has_it)}}));
}

TEST_F(RankFour, expects_no_answer_of_the_neighbour_that_brought_the_news_whatever_lifelines_lead_to_it) {
    lines_->attach(6, Role::child, false, now_);
    hears(six_, News(enough).bytes);
    lines_->informed(News(enough).id);
    for (const auto& [line, rank] : {std::pair{parent_, 0}, std::pair{five_, 5}})
        says(line, Word::all_have_it, rank, News(enough).id);
    EXPECT_FALSE(lines_->is_counted_on());
}

// Found by simulation: a rank left before it heard of the end, its parent's other child had turned to another by then.
TEST_F(RankFour, tells_a_neighbour_again_where_one_of_two_lifelines_to_it_takes_the_news_along) {
    const LineId second = lines_->attach(5, Role::child, false, now_);
    says(second, Word::attached, 5);
    lines_->take_effects();
    lines_->flood({VerdictKind::aborted, 4, "it"}, now_);
    lines_->take_effects();
    says(second, Word::moved, 5);  // it gave that one up before the news came
    lines_->on_end(second, {.how = How::closed}, now_);
    const auto again = sent();
    EXPECT_EQ(std::ranges::count(again, std::pair{five_, static_cast<std::uint32_t>(VerdictKind::aborted)}), 1);
    EXPECT_TRUE(std::ranges::none_of(again, [&](const auto& one) { return one.first == second; }));
}

TEST_F(RankFour, tells_its_next_parent_of_the_end_where_the_last_one_left_without_knowing_of_it) {
    hears(parent_, News({VerdictKind::left, 0, {}}).bytes);
    lines_->take_effects();
    hears(five_, News(enough).bytes);
    const auto wanted = effects<Dial>();
    ASSERT_EQ(wanted.size(), 1U);
    EXPECT_EQ(wanted[0].rank, 1);
    EXPECT_EQ(wanted[0].role, Role::beside);
}

TEST_F(RankFour, tells_nobody_of_the_end_for_a_parent_that_left_when_it_knew_of_it) {
    hears(parent_, News({VerdictKind::left, 0, {}, 0, 0}).bytes);
    lines_->take_effects();
    hears(five_, News(enough).bytes);
    EXPECT_TRUE(effects<Dial>().empty());
}

TEST_F(RankFour, says_goodbye_once_and_with_it_that_it_knew_of_the_end) {
    lines_->flood(enough, now_);
    lines_->take_effects();
    lines_->leave(now_);
    const News goodbye({VerdictKind::left, 4, {}, 0, 4});
    for (const SendBytes& one : effects<SendBytes>()) EXPECT_EQ(one.bytes, goodbye.bytes);
    EXPECT_FALSE(lines_->flood({VerdictKind::left, 4, {}}, now_));
}

// Found by simulation: the end of a lifeline on which only one of two ranks counts is a death for that one alone.
TEST_F(RankFour, turns_to_a_rank_whose_lifeline_broke_before_it_counted_there) {
    const LineId seven = lines_->attach(7, Role::child, false, now_);
    says(seven, Word::attached, 7);
    lines_->take_effects();
    lines_->on_end(seven, {}, now_);
    const auto wanted = effects<Dial>();
    EXPECT_TRUE(std::ranges::any_of(wanted, [](const Dial& dial) { return dial.rank == 7; }));
}

TEST_F(RankFour, looks_whether_a_child_that_comes_after_the_end_takes_the_news) {
    lines_->flood(enough, now_);
    for (const auto& [line, rank] : {std::pair{parent_, 0}, std::pair{five_, 5}, std::pair{six_, 6}})
        says(line, Word::all_have_it, rank, News(enough).id);
    lines_->on_time(now_);
    lines_->take_effects();
    lines_->attach(7, Role::child, false, now_);
    EXPECT_TRUE(lines_->settled()) << "that is about the ranks that were there";
    stopped_ = 7;
    lines_->on_time(now_);
    const auto silent = effects<Inform>();
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent[0].verdict.rank, 7);
}

TEST_F(RankFour, ends_a_lifeline_whose_bytes_make_no_sense) {
    const std::string nonsense(100, 'x');
    EXPECT_FALSE(lines_->on_bytes(five_, std::as_bytes(std::span(nonsense)), now_));
}

TEST_F(RankFour, blames_bytes_that_were_changed_over_the_lifeline_itself_too) {
    lines_->on_end(six_, {.how = How::altered, .fault = "bad record"}, now_);
    const auto effects = lines_->take_effects();
    const auto closed =
        std::ranges::find_if(effects, [](const auto& e) { return std::holds_alternative<CloseLine>(e); });
    const auto told = std::ranges::find_if(effects, [this](const auto& e) {
        return std::holds_alternative<SendBytes>(e) && std::get<SendBytes>(e).line == six_;
    });
    ASSERT_NE(told, effects.end());
    EXPECT_LT(told, closed);
}

// Ranks 5, 6 and 7 are on another host.
class FarChildren : public RankFour {
 protected:
    FarChildren() : RankFour({"here", "here", "here", "here", "here", "there", "there", "there"}) {}
};

TEST_F(FarChildren, are_lost_with_their_host_and_known_to_be_so_by_all_others_first) {
    lines_->on_end(six_, {.how = How::host_lost}, now_);
    EXPECT_TRUE(effects<Inform>().empty()) << "this rank may be the only one that knows";
    const Verdict loss{VerdictKind::host_lost, 5,
                       "rank 5 (there, pid 106) is gone: its host has not answered for 13.0 s: it has failed, or is "
                       "cut off, with ranks "
                       "5, 6, 7"};
    says(parent_, Word::all_have_it, 0, News(loss).id);
    lines_->on_time(now_);
    const auto informed = effects<Inform>();
    ASSERT_EQ(informed.size(), 1U);
    EXPECT_EQ(informed[0].verdict.text, loss.text);
    lines_->on_end(five_, {}, now_);
    EXPECT_TRUE(effects<Inform>().empty()) << "it is the same loss";
}

TEST_F(FarChildren, are_lost_though_others_do_not_answer) {
    lines_->on_end(six_, {.how = How::host_lost}, now_);
    lines_->on_time(now_ + 499ms);
    EXPECT_TRUE(effects<Inform>().empty());
    lines_->on_time(now_ + 500ms);
    EXPECT_EQ(effects<Inform>().size(), 1U);
}

}  // namespace
}  // namespace tutti::rendezvous
