// Lifelines that are made while their owner goes on: what the test's attempts meet, and when they end.
#include "rendezvous/background_dials.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>

namespace tutti::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Attempts that go as the test says, by their rank.
class Attempts {
 public:
    security::Connection attach(int rank, const Deadline& deadline, const AbortFlag* abort) {
        ++begun_;
        while (!may_end_.at(rank)) {
            check_wait(deadline, abort, "attach");
            std::this_thread::sleep_for(milliseconds(1));
        }
        throw DistNetworkError("nobody listens there");
    }
    void let_end(int rank) { may_end_.at(rank) = true; }
    int begun() const { return begun_; }

 private:
    std::map<int, std::atomic<bool>> may_end_ = [] {
        std::map<int, std::atomic<bool>> ranks;
        for (int rank = 0; rank < 4; ++rank) ranks.try_emplace(rank, false);
        return ranks;
    }();
    std::atomic<int> begun_{0};
};

class Dialled : public testing::Test {
 protected:
    // What take() brings, until it has brought so many.
    std::vector<BackgroundDials::Result> take(std::size_t count) {
        std::vector<BackgroundDials::Result> all;
        const Deadline limit = Deadline::after(seconds(20));
        while (all.size() < count && !limit.expired()) {
            for (auto& result : dials_.take()) all.push_back(std::move(result));
            std::this_thread::sleep_for(milliseconds(1));
        }
        return all;
    }

    Attempts attempts_;
    std::atomic<int> ends_{0};
    BackgroundDials dials_{[this](int rank, const Deadline& deadline, const AbortFlag* abort) {
                               return attempts_.attach(rank, deadline, abort);
                           },
                           [this] { ++ends_; }};
};

TEST_F(Dialled, attempts_go_on_beside_each_other_and_each_is_taken_once) {
    dials_.start({.rank = 1, .role = Role::parent, .limit = seconds(20)});
    dials_.start({.rank = 2, .role = Role::child, .limit = seconds(20)});
    EXPECT_TRUE(dials_.take().empty());
    attempts_.let_end(2);
    const auto first = take(1);
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first[0].dial.rank, 2);
    EXPECT_EQ(first[0].dial.role, Role::child);
    EXPECT_EQ(ends_, 1);
    attempts_.let_end(1);
    const auto second = take(1);
    ASSERT_EQ(second.size(), 1U);
    EXPECT_EQ(second[0].dial.rank, 1);
    EXPECT_TRUE(dials_.take().empty());
    EXPECT_EQ(ends_, 2);
}

TEST_F(Dialled, attempts_that_fail_were_refused_before_their_limit_and_met_silence_at_it) {
    attempts_.let_end(1);
    dials_.start({.rank = 1, .role = Role::parent, .limit = seconds(20)});
    dials_.start({.rank = 2, .role = Role::parent, .limit = milliseconds(5)});
    const auto results = take(2);
    ASSERT_EQ(results.size(), 2U);
    for (const auto& result : results) {
        EXPECT_LT(result.connection.fd.get(), 0);
        EXPECT_EQ(result.failure, result.dial.rank == 1 ? DialFailure::refused : DialFailure::silent);
    }
}

TEST_F(Dialled, attempts_end_when_their_owner_stops_and_none_begins_any_more) {
    dials_.start({.rank = 1, .role = Role::parent, .limit = seconds(20)});
    dials_.start({.rank = 2, .role = Role::parent, .limit = seconds(20)});
    dials_.stop();
    EXPECT_EQ(ends_, 2) << "it has waited for them";
    EXPECT_EQ(dials_.take().size(), 2U);
    const int begun = attempts_.begun();
    dials_.start({.rank = 3, .role = Role::parent, .limit = seconds(20)});
    EXPECT_TRUE(dials_.take().empty());
    EXPECT_EQ(attempts_.begun(), begun);
}

TEST(DialledThrough, connections_are_handed_over_also_after_the_stop) {
    std::promise<void> go;
    BackgroundDials dials(
        [&](int, const Deadline&, const AbortFlag*) {
            go.get_future().wait();
            security::Connection connection;
            connection.fd = UniqueFd(::dup(0));
            return connection;
        },
        [] {});
    dials.start({.rank = 1, .role = Role::parent, .limit = seconds(20)});
    go.set_value();
    dials.stop();
    const auto results = dials.take();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_GE(results[0].connection.fd.get(), 0);
}

}  // namespace
}  // namespace tutti::rendezvous
