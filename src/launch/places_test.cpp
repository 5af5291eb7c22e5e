#include "launch/places.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

// Launchers that are keys of a store, in a time of the test's own.
class PlacesOfThree : public testing::Test {
 protected:
    PlacesOfThree() : store_(HashStore()) { places_.emplace(store_, card(0, "zero"), 4000, "run 7"); }
    ~PlacesOfThree() override { tutti::Clock::simulate(nullptr); }

    static NodeCard card(int node, const std::string& id, int ranks = 2) {
        return {.node = node,
                .id = id,
                .ranks = ranks,
                .nodes = 3,
                .max_restarts = 2,
                .pid = 10 + node,
                .address = "10.0.0.1",
                .host = "host of " + id};
    }
    void beats(const std::string& id) { store_.set("launch/beat/" + id, std::to_string(++beats_)); }
    void comes(const NodeCard& card) {
        beats(card.id);
        store_.append("launch/came", card.to_text() + "\n");
    }
    void connection_ends(const std::string& id) { store_.set("launch/gone/" + id, "1"); }
    std::string answer_to(const std::string& id) {
        return store_.check({"launch/answer/" + id}) ? store_.get("launch/answer/" + id) : "";
    }
    // Time passes, in which these give signs of life and node 0 looks.
    void pass(Clock::duration time, const std::vector<std::string>& living) {
        for (const Instant end = now_ + time; now_ < end;) {
            now_ += 500ms;
            for (const std::string& id : living) beats(id);
            places_->look();
        }
    }
    std::string missing(int attempt) {
        const auto missing = places_->missing(attempt);
        return missing ? missing->text : "";
    }
    void begin_with_one_and_two() {
        comes(card(1, "one"));
        comes(card(2, "two"));
        pass(500ms, {"one", "two"});
        ASSERT_EQ(missing(0), "");
        places_->begin(0);
    }
    NodesRoster roster(int attempt) { return NodesRoster::from_text(store_.get(attempt_key(attempt, "roster"))); }
    static void expect_has(const std::string& text, const std::string& part) {
        EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks " << part;
    }

    Instant now_ = Instant{} + 1h;
    const bool simulated_ = (tutti::Clock::simulate(&now_), true);
    Store store_;
    std::optional<Places> places_;
    int beats_ = 0;
};

TEST_F(PlacesOfThree, are_named_until_all_have_come) {
    places_->look();
    EXPECT_EQ(missing(0), "no launcher of node 1, 2 has come");
    comes(card(2, "two", 5));
    places_->look();
    EXPECT_EQ(missing(0), "no launcher of node 1 has come");
    EXPECT_EQ(store_.get("launch/missing"), missing(0));
    EXPECT_EQ(answer_to("two"), "");
    comes(card(1, "one"));
    places_->look();
    EXPECT_EQ(missing(0), "");
    places_->begin(0);
    EXPECT_EQ(answer_to("one"), "joins 0 1");
    EXPECT_EQ(answer_to("two"), "joins 0 2");
    const NodesRoster formed = roster(0);
    EXPECT_EQ(formed.ranks_port, 4000);
    EXPECT_EQ(formed.run_id, "run 7");
    ASSERT_EQ(formed.cards.size(), 3U);
    EXPECT_EQ(formed.cards[2].to_text(), card(2, "two", 5).to_text());
    EXPECT_EQ(formed.cards[2].host, "host of two");
    EXPECT_FALSE(places_->lost());
}

TEST_F(PlacesOfThree, of_a_launcher_that_lives_are_refused_to_another) {
    begin_with_one_and_two();
    comes(card(1, "second"));
    pass(3s, {"one", "two", "second"});
    expect_has(answer_to("second"),
               "refused --node-rank 1: another launcher of this job has it (host of one, 10.0.0.1, pid 11)");
    EXPECT_FALSE(places_->lost());
}

TEST_F(PlacesOfThree, of_a_launcher_whose_connection_has_ended_are_anothers) {
    begin_with_one_and_two();
    connection_ends("one");
    pass(2s, {"two"});
    ASSERT_TRUE(places_->lost());
    EXPECT_EQ(places_->lost()->node, 1);
    expect_has(places_->lost()->text,
               "its launcher (host of one, 10.0.0.1, pid 11) was lost: its connection has ended");
    store_.append(attempt_key(0, "stopped"), "zero\n");
    expect_has(missing(1), "node 1: its launcher (host of one");
    expect_has(missing(1), "node 2 (host of two, 10.0.0.1, pid 12) has not ended its ranks yet");
    store_.append(attempt_key(0, "stopped"), "two\n");
    comes(card(1, "newer", 4));
    pass(500ms, {"two", "newer"});
    EXPECT_EQ(missing(1), "");
    EXPECT_TRUE(places_->lost()) << "it was of the attempt that runs";
    places_->begin(1);
    EXPECT_FALSE(places_->lost());
    EXPECT_EQ(answer_to("newer"), "joins 1 1");
    EXPECT_EQ(roster(1).cards[1].id, "newer");
    EXPECT_EQ(roster(1).cards[1].ranks, 4);
    EXPECT_EQ(roster(1).cards[2].id, "two");
}

TEST_F(PlacesOfThree, of_a_silent_launcher_are_anothers_after_the_time_that_it_has_to_end) {
    begin_with_one_and_two();
    comes(card(1, "newer"));
    pass(14s, {"two", "newer"});
    EXPECT_FALSE(places_->lost());
    pass(2s, {"two", "newer"});
    ASSERT_TRUE(places_->lost());
    expect_has(places_->lost()->text, "nothing was heard of it for 16.0 s");
    EXPECT_EQ(answer_to("newer"), "");
    store_.append(attempt_key(0, "stopped"), "zero\ntwo\n");
    expect_has(missing(1), "its last sign of life came at 00:00:00 UTC; another with --node-rank 1 can take its place");
    pass(6s, {"two", "newer"});
    EXPECT_EQ(missing(1), "");
    places_->begin(1);
    EXPECT_EQ(answer_to("newer"), "joins 1 1");
    // It comes back: its words count no more.
    beats("one");
    store_.append(attempt_key(0, "stopped"), "one\n");
    pass(1s, {"one", "two", "newer"});
    EXPECT_FALSE(places_->lost());
    EXPECT_EQ(roster(1).cards[1].id, "newer");
}

TEST_F(PlacesOfThree, stay_those_of_a_launcher_that_is_heard_of_again_in_time) {
    begin_with_one_and_two();
    comes(card(1, "newer"));
    pass(16s, {"two", "newer"});
    ASSERT_TRUE(places_->lost());
    pass(1s, {"one", "two", "newer"});
    EXPECT_FALSE(places_->lost());
    expect_has(answer_to("newer"), "refused --node-rank 1: another launcher");
    store_.append(attempt_key(0, "stopped"), "zero\none\ntwo\n");
    EXPECT_EQ(missing(1), "");
}

TEST_F(PlacesOfThree, are_kept_while_node_0_itself_stands_still) {
    begin_with_one_and_two();
    now_ += 60s;
    places_->look();
    EXPECT_FALSE(places_->lost());
    pass(14s, {"two"});
    EXPECT_FALSE(places_->lost());
    pass(2s, {"two"});
    EXPECT_TRUE(places_->lost());
}

TEST_F(PlacesOfThree, go_to_the_next_of_several_launchers_that_die_while_they_wait) {
    begin_with_one_and_two();
    connection_ends("one");
    comes(card(1, "b"));
    connection_ends("b");
    comes(card(1, "c"));
    pass(5s, {"two", "c"});
    store_.append(attempt_key(0, "stopped"), "zero\ntwo\n");
    EXPECT_EQ(missing(1), "");
    places_->begin(1);
    EXPECT_EQ(roster(1).cards[1].id, "c");
    EXPECT_EQ(answer_to("c"), "joins 1 1");
}

TEST_F(PlacesOfThree, are_refused_to_launchers_with_other_numbers_and_after_the_end) {
    NodeCard other = card(2, "other");
    other.max_restarts = 0;
    comes(other);
    places_->look();
    expect_has(places_->disagreement(),
               "node 2 was started with --nnodes 3 --max-restarts 0, node 0 with --nnodes 3 --max-restarts 2");
    EXPECT_EQ(answer_to("other"), "refused " + places_->disagreement());
    comes(card(1, "one"));
    comes(card(1, "second"));
    places_->close("rank 3 failed");
    EXPECT_EQ(answer_to("one"), "refused the job has ended: rank 3 failed");
    EXPECT_EQ(answer_to("second"), "refused the job has ended: rank 3 failed");
    EXPECT_THROW((void)NodeCard::from_text("1 one 0 3"), DistStoreError);
}

// Two nodes are enough, and ranks are replaced.
class PlacesThatChange : public PlacesOfThree {
 protected:
    PlacesThatChange() {
        store_ = HashStore();
        places_.emplace(store_, of(0, "zero"), 4000, "run 7", 3s);
    }
    static NodeCard of(int node, const std::string& id) {
        NodeCard changing = card(node, id);
        changing.least = 2;
        return changing;
    }
    static NodeCard of_any(const std::string& id) {
        NodeCard any = card(-1, id);
        any.nodes = 0;
        return any;
    }
    void begin_with_two() {
        comes(of(2, "two"));
        pass(4s, {"two"});  // the last call
        ASSERT_EQ(missing(0), "");
        places_->begin(0);
    }
};

TEST_F(PlacesThatChange, begin_without_some_after_a_last_call) {
    pass(5s, {});
    EXPECT_EQ(missing(0), "no launcher of node 1, 2 has come");
    comes(of(2, "two"));
    pass(1s, {"two"});
    EXPECT_EQ(missing(0), "no launcher of node 1 has come");
    pass(3s, {"two"});
    EXPECT_EQ(missing(0), "");
    places_->begin(0);
    ASSERT_EQ(roster(0).cards.size(), 2U);
    EXPECT_EQ(roster(0).cards.back().node, 2);
    EXPECT_EQ(answer_to("two"), "joins 0 2");
}

TEST_F(PlacesThatChange, are_given_while_an_attempt_runs) {
    begin_with_two();
    comes(of_any("some"));
    comes(of_any("more"));
    pass(1s, {"two", "some", "more"});
    EXPECT_EQ(answer_to("some"), "joins 0 1");
    EXPECT_EQ(answer_to("more"), "refused --join: all 3 nodes of the job (--nnodes) are there");
    EXPECT_EQ(places_->living(), 3);
    EXPECT_TRUE(places_->take_lost().empty());
}

TEST_F(PlacesThatChange, go_to_the_node_that_names_them_until_an_attempt_begins) {
    comes(of_any("some"));
    pass(500ms, {"some"});
    comes(of(1, "one"));
    pass(1s, {"some", "one"});
    EXPECT_EQ(missing(0), "") << "the other one has moved";
    comes(of(2, "two"));
    pass(1s, {"some", "one", "two"});
    EXPECT_EQ(missing(0), "");
    places_->begin(0);
    EXPECT_EQ(answer_to("one"), "joins 0 1");
    EXPECT_EQ(answer_to("two"), "joins 0 2");
    EXPECT_EQ(answer_to("some"), "refused --join: all 3 nodes of the job (--nnodes) are there");
}

TEST_F(PlacesThatChange, that_one_which_takes_any_has_are_no_reason_to_refuse_the_node_that_names_them) {
    comes(of_any("some"));
    pass(4s, {"some"});
    ASSERT_EQ(missing(0), "");
    places_->begin(0);
    comes(of(1, "one"));
    pass(1s, {"some", "one"});
    EXPECT_EQ(answer_to("some"), "joins 0 1");
    EXPECT_EQ(answer_to("one"), "joins 0 2");
}

TEST_F(PlacesThatChange, are_lost_once_and_taken_again) {
    begin_with_two();
    connection_ends("two");
    pass(2s, {});
    EXPECT_EQ(places_->living(), 1);
    const auto lost = places_->take_lost();
    ASSERT_EQ(lost.size(), 1U);
    EXPECT_EQ(lost[0].node, 2);
    expect_has(lost[0].text, "its launcher (host of two, 10.0.0.1, pid 12) was lost: its connection has ended");
    EXPECT_TRUE(places_->take_lost().empty());
    comes(of(2, "again"));
    pass(1s, {"again"});
    EXPECT_EQ(answer_to("again"), "joins 0 2");
    EXPECT_EQ(places_->living(), 2);
    // All ranks are to start again: those that are there do.
    places_->rest();
    expect_has(missing(1), "node 2 (host of again, 10.0.0.1, pid 12) has not ended its ranks yet");
    store_.append(attempt_key(0, "stopped"), "zero\nagain\n");
    EXPECT_EQ(missing(1), "");
    places_->begin(1);
    EXPECT_EQ(roster(1).cards.back().id, "again");
}

// The launcher of node 2 keeps the store's standby, and goes on when node 0's is lost.
class PlacesThatAreInherited : public PlacesThatChange {
 protected:
    void begin_and_take_over(const std::string& heir, std::optional<int> running = 0) {
        beats("zero");
        begin_with_two();
        comes(of_any("some"));
        pass(1s, {"two", "some"});
        ASSERT_EQ(answer_to("some"), "joins 0 1");
        comes(of_any("late"));
        places_.emplace(store_, Inheritance{.id = heir, .lost_id = "zero", .roster = roster(0), .running = running},
                        4004);
    }
};

TEST_F(PlacesThatAreInherited, have_lost_the_launcher_that_served) {
    begin_and_take_over("two");
    EXPECT_EQ(places_->own().node, 2);
    EXPECT_EQ(places_->living(), 2);
    EXPECT_EQ(places_->others(), std::vector<std::string>{"some"});
    const auto lost = places_->take_lost();
    ASSERT_EQ(lost.size(), 1U);
    EXPECT_EQ(lost[0].node, 0);
    expect_has(lost[0].text, "its launcher (host of zero, 10.0.0.1, pid 10) was lost: it served the job's store");
    pass(3s, {"some"});
    EXPECT_TRUE(places_->take_lost().empty());
    connection_ends("some");
    pass(2s, {});
    EXPECT_EQ(places_->take_lost().size(), 1U);
    EXPECT_EQ(answer_to("late"), "joins 0 1");
    EXPECT_EQ(places_->living(), 2);
}

TEST_F(PlacesThatAreInherited, are_given_again_when_ranks_that_were_cut_off_have_ended) {
    begin_and_take_over("two");
    pass(14s, {"some", "late"});
    EXPECT_EQ(answer_to("late"), "") << "neither given, nor refused";
    pass(2s, {"some", "late"});
    EXPECT_EQ(answer_to("late"), "joins 0 0");
    EXPECT_EQ(places_->another(1), "another by --join");
}

TEST_F(PlacesThatAreInherited, begin_the_next_attempt_with_the_ranks_of_the_one_that_serves) {
    begin_and_take_over("two", std::nullopt);
    store_.append(attempt_key(0, "stopped"), "two\n");
    places_->look();
    expect_has(missing(1), "node 1 (host of some, 10.0.0.1, pid 9) has not ended its ranks yet");
    store_.append(attempt_key(0, "stopped"), "some\n");
    EXPECT_EQ(missing(1), "");
    places_->begin(1);
    ASSERT_EQ(roster(1).cards.size(), 2U);
    EXPECT_EQ(roster(1).cards[0].id, "two");
    EXPECT_EQ(roster(1).cards[1].id, "some");
    EXPECT_EQ(roster(1).ranks_port, 4004);
    EXPECT_EQ(roster(1).run_id, "run 7");
}

TEST_F(PlacesThatAreInherited, may_be_taken_over_by_one_that_came_later) {
    begin_and_take_over("some");
    EXPECT_EQ(places_->own().node, 1);
    EXPECT_EQ(places_->own().least, 2);
    EXPECT_EQ(places_->others(), std::vector<std::string>{"two"});
}

TEST_F(PlacesOfThree, are_not_given_to_any_where_ranks_are_not_replaced) {
    NodeCard any = card(-1, "any");
    any.nodes = 0;
    comes(any);
    pass(500ms, {"any"});
    expect_has(answer_to("any"), "refused --join: the job's ranks are not replaced");
}

TEST(NodeCards, of_nodes_that_the_job_does_not_have_are_refused) {
    const auto text = [](int node) {
        return NodeCard{.node = node, .id = "one", .ranks = 2, .nodes = 3, .address = "10.0.0.1", .host = "h"}
            .to_text();
    };
    EXPECT_EQ(NodeCard::from_text(text(2)).node, 2);
    for (const int node : {-1, 3}) EXPECT_THROW((void)NodeCard::from_text(text(node)), DistStoreError) << node;
    const std::string all = fmt::format("29500 run\n{}\n{}\n{}\n", text(0), text(1), text(2));
    EXPECT_EQ(NodesRoster::from_text(all).cards.size(), 3U);
    const std::string twice = fmt::format("29500 run\n{}\n{}\n{}\n", text(0), text(2), text(2));
    EXPECT_THROW((void)NodesRoster::from_text(twice), DistStoreError);
    EXPECT_THROW((void)NodesRoster::from_text("29500 run\n" + text(0) + "\n"), DistStoreError);
}

}  // namespace
}  // namespace tutti::launch
