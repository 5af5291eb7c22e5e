// The engine runs what the prover has proved: every algorithm, slots among them, between ranks that are objects of one
// thread, which take their turns in an order of chance. Numbers stand for the prover's symbols, and what the engine
// leaves in the outputs is held to the same contract.
#include "algorithm/plan.hpp"
#include "algorithm/user_schedule.hpp"
#include "engine/execution.hpp"
#include "engine/slots-inl.hpp"
#include "schedule/prove.hpp"
#include "schedule/symbols.hpp"
#include "support/request_of.hpp"
#include "support/symbol_numbers.hpp"
#include "transport/shm/ring_stream.hpp"
#include "transport/shm/symmetric.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using algorithm::Layout;
using algorithm::Request;
using schedule::Contract;
using schedule::Values;
using symbols::fill;
using symbols::reduces;
using symbols::symbol_of;
using symbols::untouched;

// Which ranks' buffers others reach, and how.
enum class Reach : std::uint8_t { mapped, kernel, none };

// Some ranks, with all that an execution needs.
class Ranks {
 public:
    Ranks(int size, std::size_t slot_bytes)
        : size_(size), arena_(transport::Arena::create_private({.ranks = size, .slot_bytes = slot_bytes})) {
        const UniqueFd memory = transport::SymmetricSegment::create(size, part_bytes);
        for (int rank = 0; rank < size; ++rank) {
            Rank& r = *ranks_.emplace_back(std::make_unique<Rank>());
            r.segment = std::make_shared<transport::SymmetricSegment>(memory, 1, size, rank, part_bytes);
            r.symmetric.add(r.segment);
            for (int peer = 0; peer < size; ++peer)
                r.rings.push_back(peer == rank ? nullptr : std::make_unique<transport::RingStream>(arena_, rank, peer));
            r.mailbox = std::make_unique<transport::Mailbox>(rank, size, 1, r, no_calls_);
            for (int peer = 0; peer < size; ++peer) {
                if (peer != rank) r.mailbox->activate(peer);
            }
            r.context.mailbox = r.mailbox.get();
            r.context.arena = arena_.get();
            r.context.symmetric = &r.symmetric;
            r.context.local_rank = r.context.rank = rank;
            for (int peer = 0; peer < size; ++peer) r.context.local_of.push_back(peer);
            r.slots.emplace(*arena_, rank, size, nullptr);
        }
    }

    /// Runs the schedules, of which each rank has one, and returns the outputs.
    std::vector<Values> run(const std::vector<schedule::Schedule>& schedules, const Contract& contract,
                            const std::vector<Reach>& reaches, std::mt19937& chance) {
        for (int rank = 0; rank < size_; ++rank) {
            const auto index = static_cast<std::size_t>(rank);
            Rank& r = *ranks_[index];
            const auto [input, output] = schedule::starting_with(rank, size_, contract);
            r.memory.assign(input.size() + output.size(), untouched);
            std::int64_t* at = reaches[index] == Reach::mapped ? reinterpret_cast<std::int64_t*>(r.segment->own_part())
                                                               : r.memory.data();
            r.context.memory = {};
            if (reaches[index] != Reach::none) r.context.memory = [this](int) { return &process_; };
            fill(at, input);
            fill(at + input.size(), output);
            r.output = at + input.size();
            r.outputs = output.size();
            const engine::Operands operands{.input = reinterpret_cast<std::byte*>(at),
                                            .output = reinterpret_cast<std::byte*>(r.output),
                                            .dtype = DType::int64,
                                            .channel = transport::collective_channel | ++r.operations};
            if (schedules[index].in_slots)
                r.begin_in_slots(contract, operands);
            else
                r.execution.emplace(std::make_shared<schedule::Schedule>(schedules[index]), operands, r.context);
        }
        schedules.front().in_slots ? take_turns_in_slots(chance) : take_turns(chance);
        std::vector<Values> results;
        for (const auto& r : ranks_) {
            Values& result = results.emplace_back();
            for (std::size_t i = 0; i < r->outputs; ++i)
                result.push_back(symbol_of(r->output[i], reduces(contract.collective)));
        }
        return results;
    }

 private:
    static constexpr std::size_t part_bytes = std::size_t{64} << 10;
    struct Rank : transport::Streams {
        transport::Stream* to(int peer) override { return rings[static_cast<std::size_t>(peer)].get(); }
        transport::Stream* existing(int peer) override { return to(peer); }

        std::shared_ptr<transport::SymmetricSegment> segment;
        transport::SymmetricMemory symmetric;
        std::vector<std::unique_ptr<transport::RingStream>> rings;
        std::unique_ptr<transport::Mailbox> mailbox;
        engine::RankContext context;
        std::vector<std::int64_t> memory;
        std::int64_t* output = nullptr;
        std::size_t outputs = 0;
        std::uint64_t operations = 0;
        std::optional<engine::Execution> execution;
        // For what says that it runs in slots.
        std::optional<engine::Slots> slots;
        Request request;  // has the lists of the call
        engine::CollectiveCall call;
        engine::SlotState state;
        bool done_in_slots = false;

        void begin_in_slots(const Contract& contract, const engine::Operands& operands) {
            std::uint64_t count = contract.counts.empty() ? contract.count : contract.counts.front();
            request = request_of(contract, context.rank);
            if (request.largest_count) count = *request.largest_count;
            const bool in_place = request.in_place || contract.collective == Collective::broadcast;
            call = {.collective = contract.collective,
                    .root = contract.root,
                    .input = in_place ? operands.output : operands.input,
                    .output = operands.output,
                    .block_bytes = count * sizeof(std::int64_t),
                    .count = count,
                    .dtype = operands.dtype};
            if (!request.send_counts.empty()) call.set_blocks(request.send_counts, request.receive_counts);
            state = slots->begin(call, operations);
            done_in_slots = false;
        }
    };
    struct NothingGoesWrong {
        static bool failed() { return false; }
        static void published() {}
        static void disagreement(int peer) { ADD_FAILURE() << "a disagreement with rank " << peer; }
        static void blocks_differ(int peer, std::uint64_t, std::uint64_t) { ADD_FAILURE() << "blocks of " << peer; }
        static void look_back() {}
    };

    void take_turns_in_slots(std::mt19937& chance) {
        NothingGoesWrong events;
        for (int turn = 0; turn < 10000; ++turn) {
            Rank& r = *ranks_[chance() % ranks_.size()];
            if (!r.done_in_slots) r.done_in_slots = r.slots->advance(r.call, r.state, events);
            if (std::ranges::all_of(ranks_, [](const auto& rank) { return rank->done_in_slots; })) return;
        }
        ADD_FAILURE() << "ranks wait for one another in the slots";
    }

    // Each time one of the ranks: some are far ahead of others.
    void take_turns(std::mt19937& chance) {
        for (int turn = 0; turn < 100000; ++turn) {
            Rank& r = *ranks_[chance() % ranks_.size()];
            for (std::uint32_t steps = chance() % 8; steps > 0; --steps) {
                r.mailbox->progress();
                r.execution->progress();
            }
            ASSERT_FALSE(r.mailbox->has_findings()) << "a mismatch of rank " << r.context.rank;
            if (std::ranges::all_of(ranks_, [](const auto& rank) { return rank->execution->done(); })) return;
        }
        for (const auto& r : ranks_) {
            EXPECT_TRUE(r->execution->done()) << "rank " << r->context.rank << " waits, " << r->execution->where()
                                              << ", for " << testing::PrintToString(r->execution->waits_for());
        }
    }

    int size_;
    transport::Calls no_calls_;
    std::shared_ptr<transport::Arena> arena_;
    transport::PeerMemory process_{::getpid()};
    std::vector<std::unique_ptr<Rank>> ranks_;
};

class Proved : public testing::TestWithParam<int> {
 protected:
    int size() const { return GetParam(); }
    static constexpr std::uint64_t slot = 8;  // elements: most operations take many tiles

    Layout layout() const {
        Layout layout;
        layout.host_of.assign(static_cast<std::size_t>(size()), 0);
        layout.shared_memory = layout.pulls = true;
        layout.slot_bytes = slot * sizeof(std::int64_t);
        layout.slots = 8;
        layout.segment_bytes = 3 * sizeof(std::int64_t);
        return layout;
    }

    static Request in_symmetric_memory(const Contract& contract, int rank) {
        Request request = request_of(contract, rank);
        request.symmetric = true;
        return request;
    }

    // Proves what each algorithm plans, runs it a few times with other ranks ahead, and compares.
    void try_all(Contract contract) {
        contract.host_of.assign(static_cast<std::size_t>(size()), 0);
        contract.slot_elements = slot;
        for (const std::string& name : algorithm::applicable(layout(), in_symmetric_memory(contract, 0))) {
            std::vector<schedule::Schedule> schedules;
            for (int rank = 0; rank < size(); ++rank) {
                Request request = in_symmetric_memory(contract, rank);
                request.algorithm = name;
                schedules.push_back(algorithm::plan(layout(), request));
            }
            ASSERT_EQ(schedule::prove(schedules, contract), std::vector<std::string>{}) << name;
            for (int turn = 0; turn < 30; ++turn) try_one(name, schedules, contract, turn);
        }
    }

    void try_one(const std::string& name, const std::vector<schedule::Schedule>& schedules, const Contract& contract,
                 int turn) {
        // All reached in one way, then each rank in one of its own.
        std::vector<Reach> reaches(schedules.size(), static_cast<Reach>(turn % 3));
        if (turn >= 3)
            for (Reach& reach : reaches) reach = static_cast<Reach>(chance_() % 3);
        const auto outputs = ranks_.run(schedules, contract, reaches, chance_);
        for (int rank = 0; rank < size(); ++rank) {
            const auto& output = outputs[static_cast<std::size_t>(rank)];
            EXPECT_EQ(schedule::wrong_with(output, rank, size(), contract), "")
                << to_string(contract.collective) << ' ' << name << ", rank " << rank << ", turn " << turn;
        }
        ++runs_;
    }

    std::mt19937 chance_{20261126};
    Ranks ranks_{GetParam(), slot * sizeof(std::int64_t)};
    int runs_ = 0;
};

TEST_P(Proved, schedules_do_what_was_proved_whoever_is_ahead) {
    const auto n = static_cast<std::size_t>(size());
    for (const std::uint64_t count : {0, 1, 5, 40}) {
        for (const bool in_place : {false, true})
            for (const Collective one : {Collective::all_reduce, Collective::scan, Collective::exscan})
                try_all({.collective = one, .count = count, .in_place = in_place});
        std::vector<std::uint64_t> even(n, count), uneven(n);
        for (std::size_t i = 0; i < n; ++i) uneven[i] = (count + 5 * i) % 23;
        for (const int root : {0, size() - 1}) {
            try_all({.collective = Collective::broadcast, .root = root, .count = count});
            try_all({.collective = Collective::reduce, .root = root, .count = count});
            for (const auto& counts : {even, uneven}) {
                try_all({.collective = Collective::gather, .root = root, .counts = counts});
                try_all({.collective = Collective::scatter, .root = root, .counts = counts});
            }
        }
        for (const auto& counts : {even, uneven}) {
            try_all({.collective = Collective::all_gather, .counts = counts});
            try_all({.collective = Collective::reduce_scatter, .counts = counts});
            std::vector<std::vector<std::uint64_t>> matrix(n, counts);
            for (std::size_t i = 0; i < n; ++i)
                std::ranges::rotate(matrix[i], matrix[i].begin() + static_cast<long>(i));
            try_all({.collective = Collective::all_to_all, .matrix = matrix});
            for (const Collective one : {Collective::gather_v, Collective::scatter_v}) {
                for (const int root : {0, size() - 1}) {
                    auto rooted = matrix;
                    for (int from = 0; from < size(); ++from)
                        for (int to = 0; to < size(); ++to)
                            if (!traits_of(one).exchanges_between(from, to, root))
                                rooted[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = 0;
                    try_all({.collective = one, .root = root, .matrix = rooted});
                }
            }
        }
        try_all({.collective = Collective::barrier});
    }
    EXPECT_GT(runs_, 10000);
}

// Users' schedules by one-sided steps, also where some ranks' buffers cannot be reached.
class ProvedOfThree : public Proved {};
TEST_P(ProvedOfThree, one_sided_schedules_do_what_was_proved_whoever_is_ahead) {
    Layout users = layout();
    for (const char* name : {"thirds", "relay"}) {
        std::ifstream file(std::string(TUTTI_EXAMPLE_SCHEDULES "/") + name);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const auto user = std::make_shared<algorithm::UserSchedule>(algorithm::UserSchedule::proved(text, name));
        users.tuning.schedules.push_back(user);
    }
    for (const std::uint64_t count : {12, 60}) {
        for (Contract contract : {Contract{.collective = Collective::all_reduce, .count = count},
                                  Contract{.collective = Collective::all_reduce, .count = count, .in_place = true},
                                  Contract{.collective = Collective::broadcast, .count = count}}) {
            contract.host_of.assign(static_cast<std::size_t>(size()), 0);
            contract.slot_elements = slot;
            std::vector<schedule::Schedule> schedules;
            for (int rank = 0; rank < size(); ++rank)
                schedules.push_back(algorithm::plan(users, request_of(contract, rank)));
            const std::string& name = schedules.front().algorithm;
            ASSERT_EQ(name, contract.collective == Collective::broadcast ? "relay" : "thirds");
            ASSERT_EQ(schedule::prove(schedules, contract), std::vector<std::string>{}) << name;
            for (int turn = 0; turn < 100; ++turn) try_one(name, schedules, contract, turn);
        }
    }
    EXPECT_EQ(runs_, 600);
}

TEST_P(Proved, a_schedule_that_is_wrong_leaves_something_else) {
    const Contract contract{.collective = Collective::all_reduce,
                            .count = 40,
                            .host_of = std::vector<int>(static_cast<std::size_t>(size())),
                            .slot_elements = slot};
    std::vector<schedule::Schedule> schedules;
    for (int rank = 0; rank < size(); ++rank) {
        Request request = in_symmetric_memory(contract, rank);
        request.algorithm = "in_place";
        schedules.push_back(algorithm::plan(layout(), request));
    }
    const std::vector<Reach> mapped(schedules.size(), Reach::mapped);
    EXPECT_EQ(schedule::wrong_with(ranks_.run(schedules, contract, mapped, chance_)[1], 1, size(), contract), "");
    for (schedule::Step& step : schedules[0].steps) step.everywhere = false;
    EXPECT_NE(schedule::prove(schedules, contract), std::vector<std::string>{});
    EXPECT_NE(schedule::wrong_with(ranks_.run(schedules, contract, mapped, chance_)[1], 1, size(), contract), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, Proved, testing::Values(2, 3, 5));
INSTANTIATE_TEST_SUITE_P(Ranks, ProvedOfThree, testing::Values(3));

}  // namespace
}  // namespace tutti
