// Scenarios of values that ranks publish, and take back.
#include "arena_memory.hpp"
#include "engine/execution.hpp"
#include "engine/slots-inl.hpp"
#include "scenarios.hpp"
#include "schedule/builder.hpp"
#include "transport/shm/offers.hpp"
#include "transport/shm/peer_memory.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::memory_model {

using transport::Arena;
using transport::ArenaLayout;
using transport::RankControl;

namespace {

// A buffer of a rank that others reach by the kernel.
struct alignas(64) Buffer {
    std::array<std::uint64_t, 2> words{};
    std::byte* bytes() { return reinterpret_cast<std::byte*>(words.data()); }
    SharedMemory memory() {
        return {
            .begin = bytes(), .bytes = sizeof words, .name = [](std::size_t) { return "a buffer"; }, .by_kernel = true};
    }
    std::uint64_t get() const { return words[0]; }
    void set(std::uint64_t value) { words[0] = value; }
    std::uint64_t load(std::size_t index) { return std::atomic_ref(words[index]).load(std::memory_order_relaxed); }
    void store(std::size_t index, std::uint64_t value) {
        std::atomic_ref(words[index]).store(value, std::memory_order_relaxed);
    }
};

constexpr std::uint64_t old_value = 7, new_value = 9;

struct Offering {
    std::shared_ptr<Arena> arena = arena_of({.ranks = 2, .ring_bytes = 0}, 2);
    Buffer buffer;
    transport::PeerMemory memory{::getpid()};
    bool waits_for_readers = true;
};

}  // namespace

Scenario withdrawing(bool waits_for_readers) {
    const auto state = std::make_shared<Offering>();
    state->buffer.words[0] = old_value;
    state->waits_for_readers = waits_for_readers;
    Scenario scenario{.memory = {memory_of(*state->arena), state->buffer.memory()}, .state = state};
    scenario.memory[1].by_kernel = !waits_for_readers;  // else a matter of order: nobody reads there any more
    scenario.threads = {[s = state.get()] {
                            const transport::Offers offers(s->arena, 0);
                            offers.withdraw([s](int) { return s->waits_for_readers ? &s->memory : nullptr; });
                            s->waits_for_readers ? s->buffer.set(new_value) : s->buffer.store(0, new_value);
                        },
                        [s = state.get()] {
                            const transport::Offers offers(s->arena, 1);
                            std::uint64_t value = 0;
                            const bool stood = offers.read_from(
                                0, [&] { value = s->waits_for_readers ? s->buffer.get() : s->buffer.load(0); });
                            check(!stood || value == old_value, "what was offered");
                        }};
    return scenario;
}

namespace {

// Ranks of one host that run a schedule each, twice.
struct Job {
    std::shared_ptr<Arena> arena;
    std::vector<engine::RankContext> contexts;
    std::vector<std::vector<std::uint64_t>> inputs, outputs;
    std::vector<std::shared_ptr<const schedule::Schedule>> schedules;
    std::vector<std::optional<engine::Execution>> executions;
    std::vector<Buffer> buffers;
    transport::PeerMemory memory{::getpid()};
    ReduceOp::Kind op = ReduceOp::Kind::sum;

    Job(std::size_t ranks, ArenaLayout layout) : contexts(ranks), executions(ranks), buffers(ranks) {
        layout.ranks = static_cast<int>(ranks);
        layout.ring_bytes = 0;
        arena = arena_of(layout, layout.ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            contexts[rank].arena = arena.get();
            contexts[rank].local_rank = static_cast<int>(rank);
            for (std::size_t peer = 0; peer < ranks; ++peer) contexts[rank].local_of.push_back(static_cast<int>(peer));
        }
    }
    engine::Execution& begin(std::size_t rank, std::byte* input, std::byte* output) {
        return executions[rank].emplace(
            schedules[rank], engine::Operands{.input = input, .output = output, .dtype = DType::int64, .op = op},
            contexts[rank]);
    }
    static void run(engine::Execution& execution) {
        while (!execution.done()) {
            is_known_by(std::hash<std::string>()(execution.where()));
            begin_look();
            if (!execution.progress()) wait_for_news();
        }
    }
};

// Two ranks that begin a schedule in place, the first of them with these words in its buffer, the other with ones.
std::pair<Scenario, Job*> pair_in_place(const std::vector<std::shared_ptr<const schedule::Schedule>>& schedules,
                                        std::array<std::uint64_t, 2> words) {
    const auto state = std::make_shared<Job>(2, ArenaLayout{.slots = 4, .slot_bytes = 128});
    Job* const s = state.get();
    s->schedules = schedules;
    for (std::size_t rank = 0; rank < 2; ++rank) {
        s->contexts[rank].memory = [s](int) { return &s->memory; };
        for (std::size_t i = 0; i < words.size(); ++i)
            s->buffers[rank].words[i] = rank == 0 ? words[i] : words[i] != 0 ? 1 : 0;
        s->begin(rank, nullptr, s->buffers[rank].bytes());
    }
    return {{.memory = {memory_of(*s->arena), s->buffers[0].memory(), s->buffers[1].memory()}, .state = state}, s};
}

using schedule::Builder;
using schedule::Chunk;

}  // namespace

// Two ranks publish a word a round each, and read the other's; of more, the first publishes, and the others read only
// what has been in the same slot: so few steps are enough to use a slot again.
Scenario staging(std::size_t ranks) {
    constexpr std::uint32_t slots = 4, rounds = slots + 1;
    static std::map<std::size_t, std::vector<std::shared_ptr<const schedule::Schedule>>> known;
    auto& schedules = known[ranks];
    for (std::size_t rank = schedules.size(); rank < ranks; ++rank) {
        Builder b("staging");
        for (std::uint32_t t = 0; t < rounds; ++t) {
            if (ranks == 2 || rank == 0) b.publish(t, std::vector{Chunk{schedule::Buffer::input, t, 1}});
            if (ranks == 2 || (rank != 0 && t % slots == 0)) {
                b.read(rank == 0 ? 1 : 0, t, 0, {schedule::Buffer::output, t, 1});
                b.release(t + 1);
            }
        }
        b.use_rounds(rounds);
        schedules.push_back(std::make_shared<schedule::Schedule>(std::move(b).finish()));
    }
    const auto state = std::make_shared<Job>(ranks, ArenaLayout{.slots = slots, .slot_bytes = 64});
    state->schedules = schedules;
    state->inputs.resize(ranks, std::vector<std::uint64_t>(rounds));
    state->outputs = state->inputs;
    Scenario scenario{.memory = {memory_of(*state->arena)}, .state = state};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::uint32_t t = 0; t < rounds; ++t) state->inputs[rank][t] = 100 * rank + t + 1;
        auto& execution = state->begin(rank, reinterpret_cast<std::byte*>(state->inputs[rank].data()),
                                       reinterpret_cast<std::byte*>(state->outputs[rank].data()));
        scenario.threads.emplace_back([&execution] { Job::run(execution); });
    }
    scenario.at_end = [s = state.get(), ranks] {
        for (std::size_t rank = ranks == 2 ? 0 : 1; rank < ranks; ++rank) {
            for (std::uint32_t t = 0; t < rounds; t += ranks == 2 ? 1 : slots)
                check(s->outputs[rank][t] == s->inputs[rank == 0 ? 1 : 0][t], "the values that were published");
        }
    };
    return scenario;
}

// Rank 0 writes the first word of rank 1's buffer, which reads the second one of its. Then both use their buffers
// otherwise.
Scenario in_place() {
    static std::vector<std::shared_ptr<const schedule::Schedule>> schedules;
    const Chunk first{schedule::Buffer::output, 0, 1}, second{schedule::Buffer::output, 1, 1};
    for (std::size_t rank = schedules.size(); rank < 2; ++rank) {
        Builder b("in_place");
        b.meet(std::vector{Chunk{schedule::Buffer::output, 0, 2}}, false);
        if (rank == 0)
            b.put(1, first, first);
        else
            b.get(0, second, second);
        schedules.push_back(std::make_shared<schedule::Schedule>(std::move(b).finish()));
    }
    auto [scenario, job] = pair_in_place(schedules, {old_value, old_value});
    Job* const s = job;
    scenario.threads = {[s] {
                            Job::run(*s->executions[0]);
                            s->buffers[0].store(0, new_value);
                            s->buffers[0].store(1, new_value);
                        },
                        [s] {
                            Job::run(*s->executions[1]);
                            check(s->buffers[1].load(0) == old_value, "what was written in place");
                            check(s->buffers[1].load(1) == old_value, "what was read in place");
                        }};
    return scenario;
}

// Rank 0 puts a word into rank 1's buffer and signals. Rank 1 waits for that, copies the word behind it, and signals;
// rank 0 waits for that and gets the copy.
Scenario signals() {
    static std::vector<std::shared_ptr<const schedule::Schedule>> schedules;
    const Chunk first{schedule::Buffer::output, 0, 1}, second{schedule::Buffer::output, 1, 1};
    for (std::size_t rank = schedules.size(); rank < 2; ++rank) {
        Builder b("signals");
        b.meet(std::vector{Chunk{schedule::Buffer::output, 0, 2}}, false);
        if (rank == 0) {
            b.put(1, first, first);
            b.signal();
            b.wait(1, 1);
            b.get(1, second, second);
        } else {
            b.wait(0, 1);
            b.copy(second, first);
            b.signal();
        }
        schedules.push_back(std::make_shared<schedule::Schedule>(std::move(b).finish()));
    }
    auto [scenario, job] = pair_in_place(schedules, {old_value, new_value});
    Job* const s = job;
    scenario.threads = {[s] {
                            Job::run(*s->executions[0]);
                            check(s->buffers[0].load(1) == old_value, "the word that rank 1 has copied");
                        },
                        [s] {
                            Job::run(*s->executions[1]);
                            check(s->buffers[1].load(1) == old_value, "the word that was put");
                        }};
    return scenario;
}

// Rank 0 says where its buffer lies, gives the operation up, and uses the buffer otherwise.
Scenario revoking(bool is_written) {
    static std::array<std::vector<std::shared_ptr<const schedule::Schedule>>, 2> known;
    auto& schedules = known[is_written ? 1 : 0];
    for (std::size_t rank = schedules.size(); rank < 2; ++rank) {
        const Chunk all{schedule::Buffer::output, 0, 1};
        Builder b("revoking");
        b.meet(std::vector{all}, false);
        if (rank == 1 && is_written) b.put(0, all, all);
        if (rank == 1 && !is_written) b.get(0, all, all);
        schedules.push_back(std::make_shared<schedule::Schedule>(std::move(b).finish()));
    }
    auto [scenario, job] = pair_in_place(schedules, {old_value, 0});
    Job* const s = job;
    scenario.threads = {[s] {
                            s->executions[0]->progress();
                            s->executions[0].reset();
                            s->buffers[0].store(0, new_value);
                            s->buffers[0].store(1, 1);  // it is over
                        },
                        [s, is_written] {
                            engine::Execution& mine = *s->executions[1];
                            const auto over = [s] { return s->buffers[0].load(1) != 0; };
                            for (begin_look(); !mine.done() && !over(); begin_look()) {
                                if (!mine.progress()) wait_for_news();
                            }
                            const std::string where = mine.where();  // meets, reads, releases, settles
                            const bool has_read =
                                where.find("step 1") == where.npos && where.find("step 2") == where.npos;
                            if (!is_written && has_read)
                                check(s->buffers[1].load(0) == old_value, "what was read in place");
                        }};
    return scenario;
}

namespace {

// Ranks that call one short collective after the other, with fewer slots than there are.
class InSlots {
 public:
    static constexpr std::uint64_t ahead = 2;

    InSlots(std::shared_ptr<Arena> arena, std::size_t ranks, Collective collective, std::size_t words)
        : ranks_(ranks), collective_(collective), words_(words) {
        for (std::size_t rank = 0; rank < ranks; ++rank)
            sides_.push_back({.slots = {*arena, static_cast<int>(rank), static_cast<int>(ranks), nullptr, ahead}});
    }

    void call(std::size_t rank, std::uint64_t number) {
        Side& side = sides_[rank];
        fill(side, rank, number);
        engine::CollectiveCall call{.collective = collective_,
                                    .input = reinterpret_cast<const std::byte*>(side.input.data()),
                                    .output = reinterpret_cast<std::byte*>(side.output.data()),
                                    .block_bytes = words_ * sizeof(std::uint64_t),
                                    .dtype = DType::int64};
        if (traits_of(collective_).exchanges()) call.set_blocks(side.sent, side.received);
        Events events;
        engine::SlotState state = side.slots.begin(call, number);
        for (;;) {
            is_known_by(where(side, state));
            begin_look();
            if (side.slots.advance(call, state, events)) break;
            wait_for_news();
        }
        check(side.output == side.expected, "the others' contributions to this collective");
    }

 private:
    struct Side {
        engine::Slots slots;
        std::vector<std::uint64_t> input{}, output{}, expected{}, sent{}, received{};
    };
    struct Events {
        static bool failed() { return false; }
        static void published() {}
        static void disagreement(int) { check(false, "the same digest"); }
        static void blocks_differ(int, std::uint64_t, std::uint64_t) { check(false, "a block as long as expected"); }
        static void look_back() {}
    };

    static std::uint64_t value(std::size_t rank, std::uint64_t number, std::size_t index) {
        return 1000 * number + 100 * rank + index;
    }
    // The root is rank 0.
    std::size_t words_between(std::size_t from, std::size_t to) const {
        if (!traits_of(collective_).exchanges_between(static_cast<int>(from), static_cast<int>(to), 0)) return 0;
        return 1 + (2 * from + to) % 3;
    }

    void fill(Side& side, std::size_t rank, std::uint64_t number) const {
        side.input.clear(), side.expected.clear(), side.sent.clear(), side.received.clear();
        const auto expect = [&](std::size_t from, std::size_t first, std::size_t words) {
            for (std::size_t i = first; i < first + words; ++i) side.expected.push_back(value(from, number, i));
        };
        std::size_t words = words_;
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            if (collective_ == Collective::all_gather || (collective_ == Collective::gather && rank == 0))
                expect(peer, 0, words_);
            if (collective_ == Collective::broadcast && peer == 0) {
                expect(0, 0, words_);
                if (rank == 0) side.expected.assign(words_, 0);
            }
            if (!traits_of(collective_).exchanges()) continue;
            side.sent.push_back(words_between(rank, peer));
            side.received.push_back(words_between(peer, rank));
            std::size_t before = 0;
            for (std::size_t other = 0; other < rank; ++other) before += words_between(peer, other);
            expect(peer, before, side.received.back());
            words = peer == 0 ? side.sent.back() : words + side.sent.back();
        }
        for (std::size_t i = 0; i < words; ++i) side.input.push_back(value(rank, number, i));
        side.output.assign(side.expected.size(), 0);
    }

    std::uint64_t where(const Side& side, const engine::SlotState& state) const {
        std::uint64_t bits = state.sequence << 8 | static_cast<std::uint64_t>(state.next) << 4 |
                             (state.published ? 2U : 0U) | (state.waited ? 1U : 0U);
        for (std::size_t peer = 0; peer < ranks_; ++peer)
            bits = bits << 8 | side.slots.begun_by(static_cast<int>(peer));
        return bits;
    }

    std::size_t ranks_;
    Collective collective_;
    std::size_t words_;
    std::vector<Side> sides_;
};

}  // namespace

Scenario in_slots(Collective collective, std::size_t ranks, std::uint64_t calls, std::size_t words) {
    const int size = static_cast<int>(ranks);
    const auto arena = arena_of({.ranks = size, .ring_bytes = 0}, size);
    const auto state = std::make_shared<InSlots>(arena, ranks, collective, words);
    Scenario scenario{.memory = {memory_of(*arena)}, .state = state};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        scenario.threads.emplace_back([s = state.get(), rank, calls] {
            for (std::uint64_t number = 1; number <= calls; ++number) s->call(rank, number);
        });
    }
    return scenario;
}

Scenario records() {
    const auto arena = arena_of({.ranks = 2, .ring_bytes = 0}, 2);
    Scenario scenario{.memory = {memory_of(*arena)}};
    RankControl::Record& record = arena->control(0).records[1];
    scenario.threads = {[&record] {
                            record.put(1, 11, 12);
                            record.put(1 + RankControl::record_count, 21, 22);
                        },
                        [&record] {
                            const auto first = record.read(1, &RankControl::Record::fingerprint);
                            check(!first || *first == 11, "the fingerprint of this number");
                            const auto second = record.read(1, &RankControl::Record::agreement);
                            check(!second || *second == 12, "the agreement of this number");
                        }};
    return scenario;
}

}  // namespace tutti::memory_model
