// Ranks that fork: the child can do nothing to its parent's groups, and hides nobody's death.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"
#include "support/covers.hpp"

#include <sys/syscall.h>

#include <ctime>

namespace tutti::test {
namespace {

class Forks : public LeftoverCheck, public ::testing::WithParamInterface<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Over, Forks, ::testing::Values(TransportKind::shm, TransportKind::tcp),
                         [](const auto& instance) { return to_string(instance.param); });

// Empty: it is refused as it should be.
template <class F>
std::string not_refused(const char* what, F call) {
    try {
        call();
        return std::string(what) + " did nothing; ";
    } catch (const InvalidArgument& error) {
        const bool good = std::string(error.what()).find("this process is a fork of process") != std::string::npos;
        return good ? "" : std::string(what) + ": " + error.what() + "; ";
    } catch (const std::exception& error) {
        return std::string(what) + ": " + error.what() + "; ";
    }
}

std::string wrong_in_child(const ProcessGroup& world, const ProcessGroup& part, Work pending) {
    std::string wrong;
    std::vector<float> x(1000, 1);
    float one = 1;
    for (const ProcessGroup& g : {world, part}) {
        wrong += not_refused("all_reduce", [&] { all_reduce(x, {.group = g}); });
        wrong += not_refused("short all_reduce", [&] { all_reduce(std::span(&one, 1), {.group = g}); });
        wrong += not_refused("async", [&] { async::broadcast(x, {.src = 0, .group = g}).wait(); });
        wrong += not_refused("barrier", [&] { barrier({.group = g}); });
        wrong += not_refused("send", [&] { send(x, 1, {.group = g}); });
        wrong += not_refused("recv", [&] { recv(x, {.group = g}); });
        wrong += not_refused("split", [&] { (void)g.split({}); });
        wrong += not_refused("shrink", [&] { (void)g.shrink(); });
        wrong += not_refused("abort", [&] { ProcessGroup(g).abort("by a child"); });
        wrong += not_refused("object", [&] { (void)all_gather_object(5, {.group = g}); });
        wrong += not_refused("monitored_barrier", [&] { monitored_barrier({.group = g}); });
    }
    wrong += not_refused("new_group", [&] { (void)new_group({0, 1}, {.world = world}); });
    wrong += not_refused("empty_symmetric", [&] { (void)empty_symmetric(float32, {100}, {.group = world}); });
    wrong += not_refused("an operation of the parent", [&] { pending.wait(); });
    if (world.rank() != 0 || part.size() != 2) wrong += "its rank or size; ";
    ProcessGroup(part).destroy();
    ProcessGroup(world).destroy();
    const ProcessGroup own({.store = HashStore(), .rank = 0, .world_size = 1, .timeout = 5s});
    all_reduce(x, {.group = own});
    if (x != std::vector<float>(1000, 1)) wrong += "a world of its own; ";
    return wrong;
}

TEST_P(Forks, have_groups_that_refuse_everything_and_ends_that_do_not_harm_the_parent_s) {
    Job job(2, [](const RankProcess& me) {
        static ProcessGroup world;  // goes with static objects, at exit
        world = me.join(GetParam(), 10s);
        const ProcessGroup part = world.split({});
        std::vector<float> x(1000, 1), later(10);
        all_reduce(x, {.group = world});
        all_reduce(x, {.group = part});
        Work pending = irecv(later, {.src = 1 - me.rank(), .tag = 3, .group = world});
        if (me.rank() == 0) {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(10);
                const std::string wrong = wrong_in_child(world, part, pending);
                me.report(wrong.empty() ? "as it should be" : wrong);
                std::exit(wrong.empty() ? 0 : 5);
            }
            int status = 1;
            ::waitpid(child, &status, 0);
            me.report("child", status);
            send(later, 1, {.tag = 4, .group = world});
        } else {
            std::vector<float> after(10);  // the child has seen an operation that was not over
            recv(after, {.src = 0, .tag = 4, .group = world});
        }
        me.report_end_of([&] {
            send(std::vector<float>(10, 7), 1 - me.rank(), {.tag = 3, .group = world});
            pending.wait();
            if (later != std::vector<float>(10, 7)) throw std::runtime_error("the message is wrong");
            all_reduce(x, {.group = part});
            all_reduce(x, {.group = world});
            if (x != std::vector<float>(1000, 16)) throw std::runtime_error("the sum is wrong");
            world.destroy();
        });
        world = {};
    });
    for (const Report& r : job.collect(4, 15s)) {
        EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
        EXPECT_TRUE(std::string(r.text) == "done" || std::string(r.text) == "child" ||
                    std::string(r.text) == "as it should be")
            << r.text;
    }
    EXPECT_EQ(job.wait(0), 0);
    EXPECT_EQ(job.wait(1), 0);
}

enum class Made { by_fork, by_clone };  // a bare clone(2) calls nobody's fork handlers

pid_t child_that_sleeps(Made how) {
    const pid_t child = how == Made::by_fork ? ::fork() : static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (child != 0) return child;
    const timespec length{4, 0};
    ::syscall(SYS_nanosleep, &length, nullptr);
    ::syscall(SYS_exit_group, 0);
    return child;
}

TEST_P(Forks, do_not_hide_the_death_of_their_parent) {
    for (const Made how : {Made::by_fork, Made::by_clone}) {
        for (const int parent : {1, 0}) {
            Job job(3, [how, parent](const RankProcess& me) {
                const ProcessGroup g = me.join(GetParam());
                std::vector<float> x(100'000, 1);
                all_reduce(x, {.group = g});
                if (me.rank() == parent) {
                    me.report("forked", 0, child_that_sleeps(how));
                    std::this_thread::sleep_for(30s);
                }
                me.report_end_of([&] {
                    for (;;) all_reduce(x, {.group = g});
                });
            });
            const auto forked = job.next();
            ASSERT_TRUE(forked);
            std::this_thread::sleep_for(50ms);
            const auto died = job.signal(parent, SIGKILL);
            const auto reports = job.collect(2, 10s);
            EXPECT_EQ(reports.size(), 2U);
            for (const Report& r : reports) {
                EXPECT_EQ(r.code, static_cast<int>(ErrorCode::peer_lost)) << r.text;
                EXPECT_EQ(r.peer, parent) << r.text;
                EXPECT_LT(r.at - died, 2s) << r.text;
            }
            ::kill(forked->peer, SIGKILL);
        }
    }
}

}  // namespace
}  // namespace tutti::test
