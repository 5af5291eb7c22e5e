// Schedules that a user wrote (TUTTI_SCHEDULE): rank 0's count for all ranks, and a wrong one stops the job with its
// reason.
#include "faults/job.hpp"
#include "faults/leftovers.hpp"

#include <sys/uio.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

class UserSchedules : public LeftoverCheck {
 protected:
    UserSchedules() { std::filesystem::create_directory(folder_); }
    ~UserSchedules() override { std::filesystem::remove_all(folder_); }
    static bool copies_from_others() {
        const int there = 7;
        const pid_t child = ::fork();
        if (child == 0) {  // as a rank does that is not the other one's parent
            int here = 0;
            const iovec to{&here, sizeof here}, from{const_cast<int*>(&there), sizeof there};
            const bool copied = ::process_vm_readv(::getppid(), &to, 1, &from, 1, 0) == sizeof there && here == there;
            ::_exit(copied ? 0 : 1);
        }
        int status = 1;
        return ::waitpid(child, &status, 0) == child && status == 0;
    }
    std::string file(const std::string& text) const {
        const std::string name = folder_ + "/schedule";
        std::ofstream(name) << text;
        return name;
    }
    // Else the texts that need it run what the table chooses.
    const bool copies = copies_from_others();
    const std::string folder_ = "/tmp/tutti-user-schedules-" + std::to_string(::getpid());
};

// Rank 1 adds rank 2's value to its own before rank 0's, which no algorithm of tutti's does for ranks in order.
constexpr const char* through_rank_1 = R"(tutti schedule 1
algorithm through_rank_1
collective all_reduce
ranks 3
count 1
rank 0
  send 1 input[0:1]
  receive 1 output[0:1]
rank 1
  scratch 1
  receive_combine 2 scratch[0:1] input[0:1]
  receive_combine 0 output[0:1] scratch[0:1] arrival_first finish
  send 0 output[0:1]
  send 2 output[0:1]
rank 2
  send 1 input[0:1]
  receive 1 output[0:1]
)";

TEST_F(UserSchedules, run_as_written_on_all_ranks) {
    const std::string name = file(through_rank_1);
    for (const TransportKind transport : {TransportKind::automatic, TransportKind::tcp}) {
        Job job(3, [&](const RankProcess& me) {
            if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", name.c_str(), 1);
            me.report_end_of([&] {
                const ProcessGroup group = me.join(transport);
                // 1e8 + 1 is 1e8 in float32, so that the order of the sums shows.
                const float own = me.rank() == 0 ? 1.0F : me.rank() == 1 ? 1e8F : -1e8F;
                for (const std::size_t count : {1UL, 100UL, 100000UL}) {
                    std::vector<float> in_place(count, own);
                    all_reduce(in_place, {.group = group});
                    if (in_place != std::vector<float>(count, 1.0F))
                        throw std::runtime_error("in place: another order");
                }
                std::vector<float> others(7, own);
                broadcast(others, {.src = 1, .group = group});
                if (others != std::vector<float>(7, 1e8F)) throw std::runtime_error("broadcast");
            });
        });
        for (const Report& r : job.collect(3, 20s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
    }
}

// Each half is summed in float32 by one rank, of the other's values as bfloat16, and the sums travel as bfloat16.
TEST_F(UserSchedules, send_other_types_than_the_calls) {
    const auto rounded = [](float value) { return float(BFloat16(value)); };
    for (const TransportKind transport : {TransportKind::automatic, TransportKind::tcp}) {
        Job job(2, [&](const RankProcess& me) {
            if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/as_bfloat16", 1);
            me.report_end_of([&] {
                const ProcessGroup group = me.join(transport);
                for (const std::size_t half : {1UL, 1000UL, 100000UL}) {
                    const auto input = [](int rank, std::size_t i) {
                        return static_cast<float>(i + 1) * (rank == 0 ? 1.001F : 0.37F);
                    };
                    std::vector<float> values(2 * half), expected(2 * half);
                    for (std::size_t i = 0; i < 2 * half; ++i) {
                        values[i] = input(me.rank(), i);
                        expected[i] =
                            rounded(i < half ? input(0, i) + rounded(input(1, i)) : rounded(input(0, i)) + input(1, i));
                    }
                    all_reduce(values, {.group = group});
                    if (values != expected) throw std::runtime_error("not what the text says");
                }
                // It is for float32: calls of other types, and of odd counts, take another algorithm.
                std::vector<std::int32_t> integers(2, 1 << 20 | 1);
                all_reduce(integers, {.group = group});
                if (integers != std::vector<std::int32_t>(2, 1 << 21 | 2)) throw std::runtime_error("integers");
                std::vector<float> odd(3, 1.001F);
                all_reduce(odd, {.group = group});
                if (odd != std::vector<float>(3, 2.002F)) throw std::runtime_error("an odd count");
            });
        });
        for (const Report& r : job.collect(2, 20s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
    }
}

// Codes are whole numbers from 0 to 255.
void register_codes() {
    register_step_function("encode", [](const TensorView& target, std::span<const ConstTensorView> sources) {
        const auto* from = static_cast<const float*>(sources[0].data());
        auto* to = static_cast<std::uint8_t*>(target.data());
        for (std::int64_t i = 0; i < target.element_count(); ++i) {
            if (from[i] < 0 || from[i] > 255) throw std::runtime_error("no code for a number like this");
            to[i] = static_cast<std::uint8_t>(from[i] + 0.5F);
        }
    });
    register_step_function("sum_of_codes", [](const TensorView& target, std::span<const ConstTensorView> sources) {
        const auto *a = static_cast<const std::uint8_t*>(sources[0].data()),
                   *b = static_cast<const std::uint8_t*>(sources[1].data());
        auto* to = static_cast<float*>(target.data());
        for (std::int64_t i = 0; i < target.element_count(); ++i) to[i] = static_cast<float>(a[i] + b[i]);
    });
}

TEST_F(UserSchedules, call_functions_of_the_program) {
    for (const TransportKind transport : {TransportKind::automatic, TransportKind::tcp}) {
        Job job(2, [&](const RankProcess& me) {
            if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/my_codes", 1);
            me.report_end_of([&] {
                register_codes();
                const ProcessGroup group = me.join(transport);
                for (const std::size_t count : {1UL, 1000UL, 100000UL}) {
                    std::vector<float> values(count, me.rank() == 0 ? 3.3F : 249.9F);
                    all_reduce(values, {.group = group});
                    if (values != std::vector<float>(count, 253)) throw std::runtime_error("no sum of codes");
                }
            });
        });
        for (const Report& r : job.collect(2, 20s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
    }
}

TEST_F(UserSchedules, fail_everywhere_where_a_function_throws) {
    Job job(2, [&](const RankProcess& me) {
        if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/my_codes", 1);
        me.report_end_of([&] {
            register_codes();
            const ProcessGroup group = me.join(TransportKind::tcp);
            std::vector<float> values(10, me.rank() == 1 ? -1.0F : 1.0F);
            all_reduce(values, {.group = group});
        });
    });
    for (const Report& r : job.collect(2, 15s)) {
        EXPECT_NE(r.code, 0) << "rank " << r.rank;
        for (const std::string part :
             {"the function \"encode\", which algorithm my_codes calls, has failed", "no code for a number like this"})
            EXPECT_NE(std::string(r.text).find(part), std::string::npos) << "rank " << r.rank << ": " << r.text;
    }
}

// With another "encode" on rank 1.
std::vector<Report> reports_with(const std::function<void(const ProcessGroup&)>& encode_of_rank_1) {
    Job job(2, [&](const RankProcess& me) {
        if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/my_codes", 1);
        me.report_end_of([&] {
            std::optional<ProcessGroup> group;
            register_step_function("encode", [&](const TensorView& target, std::span<const ConstTensorView>) {
                if (me.rank() == 1) encode_of_rank_1(*group);
                std::memset(target.data(), 1, static_cast<std::size_t>(target.element_count()));
            });
            register_step_function("sum_of_codes", [](const TensorView&, std::span<const ConstTensorView>) {});
            group = me.join(TransportKind::automatic);
            std::vector<float> values(10);
            all_reduce(values, {.group = *group});
        });
    });
    return job.collect(2, 15s);
}

TEST_F(UserSchedules, fail_everywhere_where_a_function_throws_no_exception_or_calls_tutti) {
    for (const Report& r : reports_with([](const ProcessGroup&) { throw 3; })) {
        EXPECT_NE(r.code, 0) << "rank " << r.rank;
        EXPECT_NE(std::string(r.text).find("has failed: it has thrown an object that is no std::exception"),
                  std::string::npos)
            << "rank " << r.rank << ": " << r.text;
    }
    for (const Report& r : reports_with([](const ProcessGroup& group) { barrier({.group = group}); })) {
        EXPECT_NE(r.code, 0) << "rank " << r.rank;
        EXPECT_NE(std::string(r.text).find("has failed: tutti was called by a function that an operation runs"),
                  std::string::npos)
            << "rank " << r.rank << ": " << r.text;
    }
}

TEST_F(UserSchedules, are_not_begun_where_a_rank_lacks_a_function) {
    Job job(2, [&](const RankProcess& me) {
        if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/my_codes", 1);
        me.report_end_of([&] {
            if (me.rank() == 0) register_codes();
            const ProcessGroup group = me.join(TransportKind::tcp);
            std::vector<float> values(10, 1.0F);
            all_reduce(values, {.group = group});
        });
    });
    for (const Report& r : job.collect(2, 15s)) {
        EXPECT_NE(r.code, 0) << "rank " << r.rank;
        const std::string expected = "algorithm \"my_codes\" calls \"encode\", which this process does not have";
        if (r.rank == 1) {
            EXPECT_NE(std::string(r.text).find(expected), std::string::npos) << r.text;
        }
    }
}

TEST_F(UserSchedules, refuse_names_that_are_none) {
    const StepFunction nothing = [](const TensorView&, std::span<const ConstTensorView>) {};
    EXPECT_THROW(register_step_function("", nothing), InvalidArgument);
    EXPECT_THROW(register_step_function("two words", nothing), InvalidArgument);
    EXPECT_THROW(register_step_function("none", {}), InvalidArgument);
    register_step_function("once", nothing);
    EXPECT_THROW(register_step_function("once", nothing), InvalidArgument);
}

// Ranks 0 and 1 sum, and 2 and 3, then their sums are: an order that shows where 1e8 + 1 is 1e8. The algorithms which
// tutti would take for four elements keep the ranks' order, whose sum is 1.
TEST_F(UserSchedules, are_made_of_collectives_of_some_ranks) {
    for (const TransportKind transport : {TransportKind::automatic, TransportKind::tcp}) {
        Job job(4, [&](const RankProcess& me) {
            if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/by_hosts", 1);
            me.report_end_of([&] {
                const ProcessGroup group = me.join(transport);
                for (const std::size_t quarter : {1UL, 1000UL, 100000UL}) {
                    std::vector<float> values(4 * quarter), input(4 * quarter), sums, means;
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        values[i] = input[i] = static_cast<float>(i % 1000 * (static_cast<std::size_t>(me.rank()) + 1));
                        sums.push_back(static_cast<float>(i % 1000 * 10));
                        means.push_back(static_cast<float>(i % 1000 * 10) / 4);
                    }
                    all_reduce(values, {.group = group});
                    if (values != sums) throw std::runtime_error("no sum in place");
                    all_reduce(input, {.op = ReduceOp::avg, .group = group});
                    if (input != means) throw std::runtime_error("no mean");
                }
                constexpr float own[] = {1e8F, 1, -1e8F, 1};
                std::vector<float> ordered(4, own[me.rank()]);
                all_reduce(ordered, {.group = group});
                if (ordered != std::vector<float>(4, 0)) throw std::runtime_error("another order");
            });
        });
        for (const Report& r : job.collect(4, 20s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
    }
}

// Ranks of one host that get and put, with signals between them (examples/schedules): calls in place and apart, of
// several types, one after the other; counts that the text does not serve, and symmetric memory, among them.
TEST_F(UserSchedules, run_by_one_sided_steps) {
    // Rank 0 adds its own value last, which no algorithm of tutti's does: so the sums show that the text runs.
    std::ifstream original(TUTTI_EXAMPLE_SCHEDULES "/thirds");
    std::string text{std::istreambuf_iterator<char>(original), {}};
    const std::string usual = "input[0:1] scratch[0:1] scratch[1:2] finish";
    ASSERT_NE(text.find(usual), std::string::npos);
    text.replace(text.find(usual), usual.size(), "scratch[0:1] scratch[1:2] input[0:1] finish");
    const std::string names = file(text) + "," TUTTI_EXAMPLE_SCHEDULES "/relay";
    Job job(3, [&](const RankProcess& me) {
        if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", names.c_str(), 1);
        me.report_end_of([&] {
            const ProcessGroup group = me.join(TransportKind::automatic);
            const float own = me.rank() == 0 ? 1.0F : me.rank() == 1 ? 1e8F : -1e8F;
            for (const std::size_t third : {1UL, 1000UL, 100000UL}) {
                std::vector<float> values(3 * third, own), expected(3 * third, 0.0F);
                std::fill_n(expected.begin(), third, 1.0F);
                all_reduce(values, {.group = group});
                if (copies && values != expected) throw std::runtime_error("not what the text says");
            }
            const auto sum = [&]<class T>(T, std::size_t count, int turn) {
                std::vector<T> values(count), expected(count);
                for (std::size_t i = 0; i < count; ++i) {
                    const auto of = [&](int rank) { return static_cast<T>((i + 7 * turn) % 31 + 2 * rank); };
                    values[i] = of(me.rank());
                    expected[i] = static_cast<T>(of(0) + of(1) + of(2));
                }
                all_reduce(values, {.group = group});
                if (values != expected) throw std::runtime_error("all_reduce of " + std::to_string(count));
            };
            const auto root_to_all = [&](std::size_t count, int turn) {
                std::vector<float> values(count);
                for (std::size_t i = 0; i < count; ++i)
                    values[i] = me.rank() == 0 ? static_cast<float>(i % 1001 + turn) : 0;
                broadcast(values, {.src = 0, .group = group});
                for (std::size_t i = 0; i < count; ++i) {
                    if (values[i] != static_cast<float>(i % 1001 + turn)) throw std::runtime_error("broadcast");
                }
            };
            for (int turn = 0; turn < 60; ++turn) {
                for (const std::size_t count : {3UL, 3000UL, 99999UL}) sum(float{}, count, turn);
                sum(double{}, 1500, turn);
                sum(std::int64_t{}, 30000, turn);
                sum(std::int16_t{}, 303, turn);
                sum(float{}, 1000, turn);  // no multiple of three
                for (const std::size_t count : {4UL, 40000UL, 41UL}) root_to_all(count, turn);
            }
            for (int turn = 0; turn < 3; ++turn) {
                sum(float{}, 1200000, turn);
                root_to_all(1 << 20, turn);
            }
            // An input of its own: the factor makes one.
            std::vector<float> scaled(3000, 1.0F + static_cast<float>(me.rank()));
            all_reduce(scaled, {.op = ReduceOp::premul_sum(2.0), .group = group});
            if (scaled != std::vector<float>(3000, 12.0F)) throw std::runtime_error("an input of its own");
            std::vector<BFloat16> rounded(300, BFloat16(1.0F));
            all_reduce(rounded, {.group = group});
            if (float(rounded[299]) != 3.0F) throw std::runtime_error("bfloat16");
        });
    });
    for (const Report& r : job.collect(3, 60s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
}

// Rank 1's part is to reduce in place what the others' later steps overwrite: where the output holds the input, all
// ranks take another algorithm.
TEST_F(UserSchedules, fall_back_where_an_input_would_be_overwritten) {
    std::string text = "tutti schedule 1\nalgorithm early\ncollective all_reduce\nranks 2\ncount 1\n";
    for (const int rank : {0, 1}) {
        const std::string other = std::to_string(1 - rank);
        text += "rank " + std::to_string(rank) + "\nscratch 1\nmeet input[0:1]\nget " + other +
                " scratch[0:1] input[0:1]\ncombine output[0:1] input[0:1] scratch[0:1] finish\n";
    }
    const std::string name = file(text);
    Job job(2, [&](const RankProcess& me) {
        if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", name.c_str(), 1);
        me.report_end_of([&] {
            const ProcessGroup group = me.join(TransportKind::automatic);
            for (int turn = 0; turn < 50; ++turn) {
                for (const std::size_t count : {1UL, 5000UL, 200000UL}) {
                    std::vector<float> values(count, 1.0F + static_cast<float>(me.rank()));
                    all_reduce(values, {.group = group});
                    if (values != std::vector<float>(count, 3.0F)) throw std::runtime_error("in place");
                    std::vector<float> apart(count, 1.0F + static_cast<float>(me.rank()));
                    all_reduce(apart, {.op = ReduceOp::premul_sum(3.0), .group = group});
                    if (apart != std::vector<float>(count, 9.0F)) throw std::runtime_error("apart");
                }
            }
        });
    });
    for (const Report& r : job.collect(2, 30s)) EXPECT_EQ(r.code, 0) << "rank " << r.rank << ": " << r.text;
}

// Rank 2 waits for signals of rank 1, which stops, or dies, where it likes.
TEST_F(UserSchedules, a_signal_that_does_not_come_ends_the_wait_with_the_rank_that_owes_it) {
    for (const bool dies : {true, false}) {
        Job job(3, [&](const RankProcess& me) {
            if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", TUTTI_EXAMPLE_SCHEDULES "/relay", 1);
            const ProcessGroup group = me.join(TransportKind::automatic, dies ? 20s : 1s);
            std::vector<float> values(1 << 20, 1.0F);
            broadcast(values, {.src = 0, .group = group});
            me.report("ready");
            me.report_end_of([&] {
                for (int i = 0; i < 100000; ++i) broadcast(values, {.src = 0, .group = group});
            });
        });
        ASSERT_EQ(job.collect(3, 20s).size(), 3U);
        std::this_thread::sleep_for(30ms);
        job.signal(1, dies ? SIGKILL : SIGSTOP);
        for (const Report& r : job.collect(2, 10s)) {
            EXPECT_EQ(r.code, static_cast<int>(dies ? ErrorCode::peer_lost : ErrorCode::timeout)) << r.text;
            EXPECT_EQ(r.peer, 1) << r.text;
            const bool says_where = std::string(r.text).find("relay, step") != std::string::npos;
            EXPECT_TRUE(says_where || dies || !copies) << r.text;
        }
        job.signal(1, SIGKILL);
    }
}

TEST_F(UserSchedules, a_wrong_one_ends_the_start_of_all_ranks_with_the_first_fault) {
    std::string text = through_rank_1;
    text.replace(text.rfind("receive 1"), 9, "receive 0");
    const std::string name = file(text);
    Job job(3, [&](const RankProcess& me) {
        if (me.rank() == 0) ::setenv("TUTTI_SCHEDULE", name.c_str(), 1);
        me.report_end_of([&] { me.join(TransportKind::tcp); });
    });
    for (const Report& r : job.collect(3, 20s)) {
        EXPECT_NE(r.code, 0) << "rank " << r.rank;
        for (const std::string part :
             {"TUTTI_SCHEDULE: ", "algorithm \"through_rank_1\" does not do what all_reduce promises",
              "never completes (deadlock, or a message without a partner)"})
            EXPECT_NE(std::string(r.text).find(part), std::string::npos) << "rank " << r.rank << ": " << r.text;
    }
}

}  // namespace
}  // namespace tutti::test
