// A whole job whose store loses its host: with a standby in one of the ranks the job goes on.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "faults/use.hpp"

#include <tutti/newcomers.hpp>

namespace tutti::test {
namespace {

class StoreLoses : public LeftoverCheck {};

TCPStore store_at(std::uint16_t port, bool is_standby = false) {
    return TCPStore({.port = port, .timeout = 20s, .secret = "a secret of the tests", .is_standby = is_standby});
}

TEST_F(StoreLoses, its_host_and_the_job_makes_groups_shrinks_and_grows) {
    int ports[2];
    ASSERT_EQ(::pipe2(ports, O_CLOEXEC), 0);
    const pid_t primary = ::fork();
    if (primary == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const TCPStore store({.is_master = true, .secret = "a secret of the tests", .with_standby = true});
        const std::uint16_t port = store.port();
        if (::write(ports[1], &port, sizeof port) == static_cast<ssize_t>(sizeof port)) ::pause();
        ::_exit(0);
    }
    std::uint16_t port = 0;
    ASSERT_EQ(::read(ports[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    // The ranks' own store only tells the newcomer, which comes after the loss, where the standby is.
    Job job(5, [port](const RankProcess& me) {
        Store signs = me.store();
        if (me.rank() == 4) {
            const auto standby = static_cast<std::uint16_t>(std::stoi(signs.get("standby", 60s)));
            me.report_end_of([&] {
                const ProcessGroup g = join({.place = store_at(standby)});
                use(g);
            });
            return;
        }
        TCPStore store = store_at(port, me.rank() == 1);
        if (me.rank() == 1) signs.set("standby of the job", std::to_string(store.standby_port()));
        signs.wait({"standby of the job"}, 20s);
        const ProcessGroup world({.store = store, .rank = me.rank(), .world_size = 4, .timeout = 20s});
        use(world);
        me.report("running");
        signs.wait({"primary is lost"}, 20s);
        me.report_end_of([&] {
            const ProcessGroup low = new_group({0, 1}, {.world = world}), high = new_group({2, 3}, {.world = world});
            std::vector<int> x(1000, me.rank());
            all_reduce(x, {.group = me.rank() < 2 ? low : high});
            if (x[999] != (me.rank() < 2 ? 1 : 5)) throw std::runtime_error("a wrong sum: " + std::to_string(x[999]));
            use(world);
            store.add("after", 1);
        });
        if (me.rank() == 3) {
            ::pause();
            return;
        }
        me.report_end_of([&] {
            std::vector<float> x(1 << 20);
            try {
                for (;;) all_reduce(x, {.group = world});
            } catch (const PeerLost&) {
            }
            ProcessGroup smaller = world.shrink();
            use(smaller);
            if (me.rank() == 1) signs.set("standby", std::to_string(store.standby_port()));
            ProcessGroup larger = smaller.grow({.place = store, .count = 1});
            use(larger);
            if (store.get("after") != "4") throw std::runtime_error("a wrong number: " + store.get("after"));
        });
        signs.add("ended", 1);
        while (signs.add("ended", 0) < 3) std::this_thread::sleep_for(5ms);  // rank 1 has the store
    });
    for (const Report& r : job.collect(4)) EXPECT_STREQ(r.text, "running");
    ::kill(primary, SIGKILL);
    ::waitpid(primary, nullptr, 0);
    job.store().set("primary is lost", "1");
    const auto lost = SteadyClock::now();
    const auto groups = job.collect(4);
    EXPECT_EQ(groups.size(), 4U);
    for (const Report& r : groups) {
        EXPECT_STREQ(r.text, "done") << r.rank;
        EXPECT_LT(r.at - lost, 5s);
    }
    job.signal(3, SIGKILL);
    const auto ends = job.collect(4);
    EXPECT_EQ(ends.size(), 4U);
    for (const Report& r : ends) EXPECT_STREQ(r.text, "done") << r.rank;
    ::close(ports[0]);
    ::close(ports[1]);
}

}  // namespace
}  // namespace tutti::test
