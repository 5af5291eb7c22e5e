// Looking at what ranks do, from a program: hooks around calls, counters, dumps.
#include "conformance/world.hpp"
#include "record/dump.hpp"
#include "support/covers.hpp"

#include <algorithm>
#include <filesystem>
#include <mutex>

namespace tutti::test {
namespace {

class Traces : public ::testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Traces, ::testing::ValuesIn(every_way()),
                         [](const auto& instance) { return to_string(instance.param); });

// What one thread calls; hooks are called by the thread that calls.
struct Profile {
    std::vector<std::string> seen;
    std::thread::id thread = std::this_thread::get_id();
    OperationHookScope scope{
        {[this](std::string_view name) { note("", name); },
         [this](std::string_view name, bool failed) { note(failed ? "failed " : "after ", name); }}};
    void note(const std::string& what, std::string_view name) {
        if (std::this_thread::get_id() == thread) seen.push_back(what + std::string(name));
    }
};

TEST_P(Traces, show_collectives_and_messages_to_a_profiler_as_they_are_called) {
    covers("S13-001", "S13-002");
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> values(200, 0.25F);
        const TensorView tensor(values.data(), {20, 10}, float32);
        all_reduce(tensor, {.group = g});
        Profile profile;
        all_reduce(tensor, {.group = g});
        async::all_reduce(tensor, {.group = g}).wait();
        if (g.rank() == 0)
            send(tensor, 1, {.group = g});
        else
            recv(tensor, {.src = 0, .group = g});
        EXPECT_THROW(broadcast(tensor, {.group = g}), InvalidArgument);
        const std::string message = g.rank() == 0 ? "send" : "recv";
        EXPECT_EQ(profile.seen,
                  (std::vector<std::string>{"all_reduce", "after all_reduce", "all_reduce", "after all_reduce", message,
                                            "after " + message, "broadcast", "failed broadcast"}));
        barrier({.group = g});
    });
}

TEST_P(Traces, count_operations_bytes_and_whom_a_rank_waited_for) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(100'000);
        all_reduce(x, {.group = g});
        if (g.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        all_reduce(x, {.group = g});
        const GroupCounters c = group_counters(g);
        EXPECT_EQ(c.issued, 2U);
        EXPECT_EQ(c.completed, 2U);
        EXPECT_EQ(c.failed, 0U);
        EXPECT_EQ(c.bytes, 800'000U);
        ASSERT_EQ(c.waited_s.size(), 2U);
        if (g.rank() == 0) {
            EXPECT_GT(c.waited_s[1], 0);
            EXPECT_LE(c.waited_s[1], c.seconds);
        }
        EXPECT_NE(prometheus_text().find("tutti_bytes_total{group=\"" + g.name() + "\",rank=\"" +
                                         std::to_string(g.rank()) + "\"} 800000\n"),
                  std::string::npos);
        barrier({.group = g});
    });
    EXPECT_THROW((void)group_counters(), InvalidArgument);
}

TEST_P(Traces, are_dumped_on_request_with_the_places_of_calls) {
    run_ranks(2, GetParam(), [](const ProcessGroup& g) {
        std::vector<float> x(10);
        for (int i = 0; i < 3; ++i) all_reduce(x, {.group = g});
        const auto folder = std::filesystem::path(::testing::TempDir()) /
                            ("conformance-trace-" + std::to_string(::getpid()) + "-" + std::to_string(g.rank()));
        int found = 0;
        for (const std::string& file : dump_trace(folder.string(), "a test")) {
            const record::Dump dump = record::read_dump(file);
            if (dump.rank != g.rank() || dump.group != g.name()) continue;  // threads share a process
            ++found;
            EXPECT_EQ(dump.reason, "a test");
            EXPECT_EQ(dump.size, 2);
            ASSERT_EQ(dump.entries.size(), 3U);
            for (const record::Entry& entry : dump.entries) {
                EXPECT_EQ(entry.what, "all_reduce of float32 × 10, sum");
                EXPECT_EQ(entry.state, record::State::completed);
                EXPECT_NE(entry.site.find("conformance"), std::string::npos) << entry.site;
            }
        }
        EXPECT_EQ(found, 1);
        std::filesystem::remove_all(folder);
        barrier({.group = g});
    });
    EXPECT_THROW((void)dump_trace("/proc/nowhere"), InvalidArgument);
}

}  // namespace
}  // namespace tutti::test
