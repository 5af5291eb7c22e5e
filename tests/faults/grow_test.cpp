// Groups that take newcomers in, as they are and after a death.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "faults/use.hpp"
#include "support/covers.hpp"
#include "support/forwarding_store.hpp"

#include <tutti/newcomers.hpp>

#include <algorithm>

namespace tutti::test {
namespace {

class Growing : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Growing, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

/// A group of the processes 0 to `size` - 1; the others come later.
ProcessGroup first_group(const RankProcess& me, TransportKind transport, int size) {
    return ProcessGroup(
        {.store = me.store(), .rank = me.rank(), .world_size = size, .timeout = 20s, .transport = transport});
}

/// What `count` processes report, sorted.
std::vector<std::string> texts_of(Job& job, int count) {
    std::vector<std::string> texts;
    for (const Report& r : job.collect(count, 20s)) {
        EXPECT_EQ(r.code, 0) << r.text;
        texts.emplace_back(r.text);
    }
    std::ranges::sort(texts);
    return texts;
}

void wait_for_newcomers(const RankProcess& me, int count) {
    while (newcomers_waiting({.place = me.store()}) < count) std::this_thread::sleep_for(5ms);
}

std::string place_in(const ProcessGroup& g) {
    return g.name() + ": " + std::to_string(g.rank()) + " of " + std::to_string(g.size());
}

/// What only old ranks know comes to all.
void adopt_and_check(const ProcessGroup& g, bool is_newcomer) {
    std::vector<float> weights(100'000, is_newcomer ? 0.0F : 7.0F);
    std::vector<std::int64_t> step(1, is_newcomer ? 0 : 42);
    g.adopt({weights, step});
    if (weights != std::vector<float>(weights.size(), 7.0F) || step[0] != 42) throw std::runtime_error("not adopted");
}

TEST_P(Growing, newcomers_come_behind_and_the_old_group_still_works) {
    Job job(5, [](const RankProcess& me) {
        const bool is_newcomer = me.rank() >= 3;
        ProcessGroup old, g;
        if (is_newcomer) {
            if (me.rank() == 4) wait_for_newcomers(me, 1);  // the second of the two
            g = join({.place = me.store()});
        } else {
            old = first_group(me, GetParam(), 3);
            EXPECT_EQ(old.grow({.place = me.store(), .name = "elsewhere"}), old) << "nobody waits there";
            if (me.rank() == 0) wait_for_newcomers(me, 2);
            barrier({.group = old});
            g = old.grow({.place = me.store()});
            use(old);
        }
        me.report(place_in(g) + ", " + g.description());
        use(g);
        adopt_and_check(g, is_newcomer);
        if (old) old.destroy();
        use(g);
        EXPECT_EQ(newcomers_waiting({.place = me.store()}), 0);
        g.destroy();
    });
    const std::vector<std::string> texts = texts_of(job, 5);
    ASSERT_EQ(texts.size(), 5U);
    for (std::size_t r = 0; r < 5; ++r)
        EXPECT_EQ(texts[r], "world.1: " + std::to_string(r) + " of 5, ranks 0, 1, 2 of \"world\" and 2 newcomers");
    for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(job.wait(rank), 0) << rank;
}

TEST_P(Growing, without_enough_newcomers_all_are_told_the_same_and_the_group_works_on) {
    Job job(4, [](const RankProcess& me) {
        if (me.rank() == 3) {
            for (int i = 0; i < 2; ++i) {
                me.report_end_of([&] {
                    ProcessGroup g = join({.place = me.store(), .timeout = i == 0 ? 10s : 300ms});
                    g.destroy();
                });
            }
            return;
        }
        ProcessGroup old = first_group(me, GetParam(), 3);
        me.report_end_of([&] { (void)old.grow({.place = me.store(), .count = 2, .timeout = 400ms}); });
        use(old);
        old.destroy();
    });
    std::vector<std::string> texts;
    for (const Report& r : job.collect(5, 10s)) {
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::timeout)) << r.text;
        texts.emplace_back(r.text);
    }
    ASSERT_EQ(texts.size(), 5U);
    std::ranges::sort(texts);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(texts[i].find("grow of group \"world\" (3 ranks): 1 of 2 newcomers came to "), 0U) << texts[i];
        EXPECT_EQ(texts[i], texts[0]);
    }
    EXPECT_EQ(texts[4].find("join: no group took this process in at "), 0U) << texts[4];
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job.wait(rank), 0) << rank;
}

TEST_P(Growing, a_newcomer_that_ended_is_not_taken_in) {
    Job job(3, [](const RankProcess& me) {
        Store store = me.store();
        ProcessGroup g;
        if (me.rank() == 0) {
            ProcessGroup old = first_group(me, GetParam(), 1);
            wait_for_newcomers(me, 1);
            me.report("asked");
            while (newcomers_waiting({.place = store}) > 0) std::this_thread::sleep_for(5ms);
            store.set("ended", "");
            g = old.grow({.place = store, .count = 1});
        } else {
            if (me.rank() == 2) store.wait({"ended"});
            g = join({.place = store});
        }
        me.report(place_in(g));
        use(g);
        g.destroy();
    });
    EXPECT_EQ(texts_of(job, 1), std::vector<std::string>{"asked"});
    job.signal(1, SIGKILL);
    EXPECT_EQ(texts_of(job, 2), (std::vector<std::string>{"world.1: 0 of 2", "world.1: 1 of 2"}));
    EXPECT_EQ(job.wait(0), 0);
    EXPECT_EQ(job.wait(2), 0);
}

TEST_P(Growing, after_a_death_a_newcomer_takes_the_lost_rank_s_number) {
    for (const int victim : {0, 2}) {
        Job job(5, [victim](const RankProcess& me) {
            if (me.rank() == 4) {
                ProcessGroup g = join({.place = me.store()});
                adopt_and_check(g, true);
                me.report(place_in(g) + ", " + std::to_string(me.rank()));
                use(g);
                return g.destroy();
            }
            ProcessGroup old = first_group(me, GetParam(), 4);
            me.report("running");
            std::vector<float> x(1 << 20);
            try {
                for (;;) all_reduce(x, {.group = old});
            } catch (const PeerLost& error) {
                EXPECT_EQ(error.context().peer, victim);
            }
            ProcessGroup g = old.grow({.place = me.store()});
            old.destroy();
            adopt_and_check(g, false);
            me.report(place_in(g) + ", " + std::to_string(me.rank()));
            use(g);
            g.destroy();
        });
        EXPECT_EQ(texts_of(job, 4), std::vector<std::string>(4, "running"));
        std::this_thread::sleep_for(43ms);
        job.signal(victim, SIGKILL);
        const std::vector<std::string> texts = texts_of(job, 4);
        ASSERT_EQ(texts.size(), 4U);
        for (int r = 0; r < 4; ++r) {
            const int process = r == victim ? 4 : r;
            EXPECT_EQ(texts[static_cast<std::size_t>(r)],
                      "world.1: " + std::to_string(r) + " of 4, " + std::to_string(process));
        }
        for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(job.wait(rank) == 0, rank != victim) << rank;
    }
}

TEST_P(Growing, a_death_meanwhile_is_told_to_all_and_the_next_call_succeeds) {
    Job job(4, [](const RankProcess& me) {
        if (me.rank() == 3) {
            for (;;) {
                try {
                    ProcessGroup g = join({.place = me.store()});
                    me.report(place_in(g));
                    use(g);
                    return g.destroy();
                } catch (const PeerLost& error) {
                    me.report("told");
                }
            }
        }
        ProcessGroup old = first_group(me, GetParam(), 3);
        if (me.rank() == 2) {
            me.report("late");
            std::this_thread::sleep_for(30s);
        }
        const auto begin = SteadyClock::now();
        try {
            (void)old.grow({.place = me.store(), .count = 1});
            throw std::runtime_error("a group without rank 2");
        } catch (const PeerLost& error) {
            EXPECT_LT(SteadyClock::now() - begin, 10s);
            me.report("told");
        }
        ProcessGroup g = old.grow({.place = me.store()});
        old.destroy();
        me.report(place_in(g));
        use(g);
        g.destroy();
    });
    const auto late = job.next();
    ASSERT_TRUE(late);
    EXPECT_STREQ(late->text, "late");
    std::this_thread::sleep_for(500ms);  // all others wait for rank 2 in the new world
    job.signal(2, SIGKILL);
    EXPECT_EQ(texts_of(job, 3), std::vector<std::string>(3, "told"));
    EXPECT_EQ(texts_of(job, 3), (std::vector<std::string>{"world.1: 0 of 3", "world.1: 1 of 3", "world.1: 2 of 3"}));
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job.wait(rank) == 0, rank != 2) << rank;
}

// The newcomer that was taken in already must not wait for a plan that never comes.
TEST_P(Growing, a_death_while_newcomers_are_awaited_is_told_to_those_that_are_taken_in) {
    Job job(4, [](const RankProcess& me) {
        if (me.rank() == 2) {
            try {
                (void)join({.place = me.store()});
                throw std::runtime_error("a group that was lost took it in");
            } catch (const Timeout&) {
                me.report("told");
            }
        }
        if (me.rank() >= 2) {
            if (me.rank() == 3) std::this_thread::sleep_for(900ms);
            ProcessGroup g = join({.place = me.store()});
            use(g);
            me.report(std::to_string(g.size()));
            return g.destroy();
        }
        ProcessGroup old = first_group(me, GetParam(), 2);
        if (me.rank() == 0) wait_for_newcomers(me, 1);
        barrier({.group = old});
        me.report("grows");
        ProcessGroup g = old.grow({.place = me.store(), .count = 2});
        old.destroy();
        use(g);
        me.report(std::to_string(g.size()));
        g.destroy();
    });
    EXPECT_EQ(texts_of(job, 2), std::vector<std::string>(2, "grows"));
    std::this_thread::sleep_for(300ms);
    job.signal(1, SIGKILL);
    EXPECT_EQ(texts_of(job, 4), (std::vector<std::string>{"3", "3", "3", "told"}));
    for (const int rank : {0, 2, 3}) EXPECT_EQ(job.wait(rank), 0) << rank;
}

/// A newcomer's store that kills its process when it first asks for a key of a kind: an answer, a plan.
class KillingStore final : public ForwardingStore {
 public:
    KillingStore(const Store& inner, std::string key)
        : ForwardingStore(inner.backend()), inner_(inner.backend()), key_("newcomers/newcomers/" + std::move(key)) {}
    std::string get(std::string_view key, Milliseconds timeout) override {
        std::string value = ForwardingStore::get(key, timeout);
        if (key.starts_with(key_)) ::raise(SIGKILL);
        return value;
    }
    bool set_will(std::string_view key, std::string_view value, Milliseconds timeout) override {
        return inner_->set_will(key, value, timeout);
    }

 private:
    std::shared_ptr<StoreBackend> inner_;
    std::string key_;
};

/// The ranks 0 to 2 grow by 3 and 4, and 4 is killed as soon as it has read that key. All others are told the same
/// within a second, and those that go on do.
void check_that_its_end_is_told(TransportKind transport, const std::string& key, bool after_a_death) {
    Job job(6, [=](const RankProcess& me) {
        if (me.rank() == 4) {
            (void)join({.place = Store(std::make_shared<KillingStore>(me.store(), key)), .label = "the one that ends"});
            return;
        }
        if (me.rank() >= 3) {
            if (me.rank() == 5) Store(me.store()).wait({"told"}, 20s);
            for (bool again = true; again;) {
                me.report_end_of([&] {
                    const ProcessGroup g = join({.place = me.store()});
                    use(g);
                    again = false;
                });
            }
            return;
        }
        ProcessGroup old = first_group(me, transport, 3);
        if (me.rank() == 0) wait_for_newcomers(me, 2);
        barrier({.group = old});
        if (after_a_death) {
            if (me.rank() == 1) ::raise(SIGKILL);
            try {
                for (;;) barrier({.group = old});
            } catch (const PeerLost&) {
            }
        }
        me.report_end_of([&] { (void)old.grow({.place = me.store(), .count = 2}); });
        if (!after_a_death) use(old);
        if (me.rank() == 0) Store(me.store()).set("told", "");
        me.report_end_of([&] { use(old.grow({.place = me.store(), .count = 2})); });
    });
    const std::size_t told = after_a_death ? 3 : 4;
    std::vector<std::string> texts;
    SteadyClock::time_point first = SteadyClock::time_point::max(), last{};
    int done = 0;
    for (const Report& r : job.collect(static_cast<int>(2 * told + 1), 20s)) {
        if (r.code == 0) {
            ++done;
            continue;
        }
        EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << r.text;
        texts.emplace_back(r.text);
        first = std::min(first, r.at);
        last = std::max(last, r.at);
    }
    ASSERT_EQ(texts.size(), told);
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
    EXPECT_NE(texts[0].find("is gone: the one that ends ended before it had joined"), std::string::npos) << texts[0];
    EXPECT_LT(last - first, 1s);
    EXPECT_EQ(done, static_cast<int>(told) + 1);
}

// It has no card in the new world yet, so the meeting does not see its end.
TEST_P(Growing, a_newcomer_that_ends_between_being_taken_in_and_joining_is_named_to_all_at_once) {
    for (const char* key : {"answer/", "plan/"}) {
        for (const bool after_a_death : {false, true}) {
            SCOPED_TRACE(std::string(key) + (after_a_death ? ", after a death" : ""));
            check_that_its_end_is_told(GetParam(), key, after_a_death);
        }
    }
}

// Nobody takes a rank that is stopped for dead. After the time limit of an operation, and the patience that the caller
// gives, the others go on without it; when it runs again it is told so, and comes back as a newcomer.
TEST_P(Growing, a_rank_that_was_stopped_is_left_out_after_the_patience_and_comes_back_as_a_newcomer) {
    constexpr auto operation = 1500ms, patience = 600ms;
    for (const int silent : {0, 2}) {
        Job job(3, [=](const RankProcess& me) {
            ProcessGroup old = first_group(me, GetParam(), 3);
            std::vector<float> x(1000);
            all_reduce(x, {.group = old});
            me.report("running");
            if (me.rank() == silent) ::raise(SIGSTOP);
            const auto begin = SteadyClock::now();
            try {
                for (;;) all_reduce(x, {.group = old, .timeout = operation});
            } catch (const DistError&) {
            }
            ProcessGroup g;
            if (me.rank() == silent) {
                me.report_end_of([&] { (void)old.shrink(); });
                old.destroy();
                g = join({.place = me.store()});
            } else {
                g = old.shrink({.timeout = 10s, .patience = patience});
                const auto took = SteadyClock::now() - begin;
                if (took < operation + patience - 100ms || took > 8s)
                    throw std::runtime_error("left out at the wrong time");
                old.destroy();
                use(g);
                me.report(place_in(g));
                g = g.grow({.place = me.store(), .count = 1, .timeout = 15s});
            }
            use(g);
            me.report(place_in(g));
            g.destroy();
        });
        EXPECT_EQ(texts_of(job, 3), std::vector<std::string>(3, "running"));
        EXPECT_EQ(texts_of(job, 2), (std::vector<std::string>{"world.1: 0 of 2", "world.1: 1 of 2"}));
        job.signal(silent, SIGCONT);
        const auto told = job.next(10s);
        ASSERT_TRUE(told);
        EXPECT_EQ(told->rank, silent);
        EXPECT_EQ(told->code, static_cast<int>(ErrorCode::peer_lost)) << told->text;
        EXPECT_NE(std::string(told->text).find("go on without this rank"), std::string::npos) << told->text;
        EXPECT_EQ(texts_of(job, 3),
                  (std::vector<std::string>{"world.2: 0 of 3", "world.2: 1 of 3", "world.2: 2 of 3"}));
        for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(job.wait(rank), 0) << rank;
    }
}

TEST(GrowingAlone, a_newcomer_that_says_late_who_it_is_is_not_passed_over) {
    HashStore place;
    PrefixStore room("newcomers/newcomers", place);
    room.add("asked", 2);
    room.set("who/2", "the second");
    EXPECT_EQ(newcomers_waiting({.place = place}), 1);
    room.set("who/1", "the first");
    EXPECT_EQ(newcomers_waiting({.place = place}), 2);
}

TEST(GrowingAlone, says_what_is_wrong_with_its_arguments) {
    ProcessGroup g({.store = HashStore(), .rank = 0, .world_size = 1});
    const auto said = [](const auto& call) -> std::string {
        try {
            call();
        } catch (const InvalidArgument& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(said([&] { (void)g.grow({}); }),
              "grow: place is no store: expected the one in which newcomers and ranks meet");
    EXPECT_EQ(said([&] { (void)g.grow({.place = HashStore(), .count = -1}); }),
              "grow: count is -1: expected zero or more newcomers");
    EXPECT_EQ(
        said([&] { (void)g.grow({.place = HashStore(), .timeout = 300ms, .patience = 2s}); }),
        "grow: patience 2000 ms is not shorter than timeout 300 ms: expected it to be, as the timeout would end the "
        "call before anybody is left out");
    EXPECT_EQ(
        said([&] { (void)g.shrink({.timeout = 2s, .patience = 2s}); }),
        "shrink: patience 2000 ms is not shorter than timeout 2000 ms: expected it to be, as the timeout would end "
        "the call before anybody is left out");
    EXPECT_EQ(said([&] { (void)g.shrink({.timeout = 1ms, .patience = -1ms}); }),
              "shrink: patience -1 ms: expected zero or more");
    EXPECT_EQ(said([&] { (void)g.grow({.place = HashStore(), .name = ""}); }),
              "grow: name is empty: expected the name of the newcomers' place");
    EXPECT_EQ(said([&] { (void)join({}); }),
              "join: place is no store: expected the one in which newcomers and ranks meet");
    EXPECT_EQ(said([&] { (void)join({.place = HashStore(), .timeout = 0s}); }),
              "join: timeout 0 ms: expected more than zero");
    EXPECT_EQ(said([] { (void)ProcessGroup().grow({.place = HashStore()}); }),
              "grow: this rank has no such group: expected a group that it is in");
}

}  // namespace
}  // namespace tutti::test
