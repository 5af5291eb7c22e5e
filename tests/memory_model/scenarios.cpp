// Scenarios of sleeping and waking, and of streams.
#include "scenarios.hpp"

#include "arena_memory.hpp"
#include "transport/shm/ring_stream.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace tutti::memory_model {
namespace {

using transport::Arena;
using transport::ArenaLayout;
using transport::Arrival;
using transport::MessageSlot;
using transport::RankControl;
using transport::RingControl;
using transport::RingStream;
using transport::ShortMessage;
using transport::StreamState;

constexpr std::chrono::hours long_time{1};

// A rank sleeps until another has stored so much, and finds what was written before.
struct Sleeping {
    std::shared_ptr<Arena> arena;

    void sleep_until(std::uint64_t number) const {
        const auto has_come = [&] { return arena->control(1).released.load(std::memory_order_acquire) >= number; };
        while (!has_come()) arena->sleep(0, long_time, has_come);
        std::uint64_t written = 0;
        std::memcpy(&written, arena->slot(1, number), sizeof written);
        check(written == number, "what was written before the doorbell rang");
    }
    void change_and_ring(std::uint64_t number) const {
        std::memcpy(arena->slot(1, number), &number, sizeof number);
        arena->control(1).released.store(number, std::memory_order_release);
        arena->ring_doorbell(0);
    }
};

}  // namespace

Scenario sleeping(bool left_to_sleeper) {
    const auto state =
        std::make_shared<Sleeping>(Sleeping{arena_of({.ranks = 2, .ring_bytes = 0}, left_to_sleeper ? 2 : 0)});
    Scenario scenario{.memory = {memory_of(*state->arena)}, .state = state};
    scenario.threads = {[s = state.get()] {
                            s->sleep_until(1);
                            s->sleep_until(2);
                        },
                        [s = state.get()] {
                            s->change_and_ring(1);
                            s->change_and_ring(2);
                        }};
    return scenario;
}

Scenario sleeping_while_fences_are_given_up() {
    const auto state = std::make_shared<Sleeping>(Sleeping{arena_of({.ranks = 3, .ring_bytes = 0}, 2)});
    Scenario scenario{.memory = {memory_of(*state->arena)}, .state = state};
    scenario.threads = {[s = state.get()] { s->sleep_until(1); }, [s = state.get()] { s->change_and_ring(1); },
                        [s = state.get()] { Arena::choose_fences(s->arena, false); }};
    return scenario;
}

namespace {

struct Streams {
    std::shared_ptr<Arena> arena;
    std::array<std::optional<RingStream>, 2> ends;
    std::array<std::byte, 1024> sent, came{};
    std::size_t count = 0;  // of what came

    explicit Streams(std::size_t ring_bytes)
        : arena(arena_of({.ranks = 2, .slot_bytes = 4096, .ring_bytes = ring_bytes}, 2)) {
        for (int rank = 0; rank < 2; ++rank) ends[static_cast<std::size_t>(rank)].emplace(arena, rank, 1 - rank);
        for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i + 1);
    }
    RingStream& writer() { return *ends[0]; }
    RingStream& reader() { return *ends[1]; }

    void write(std::size_t from, std::size_t bytes) {
        std::span rest(sent.data() + from, bytes);
        look_until([&] {
            const std::size_t written = writer().write({}, rest);
            rest = rest.subspan(written);
            return written > 0;
        });
        if (!rest.empty()) write(from + bytes - rest.size(), rest.size());
    }
    void put(std::size_t from, std::uint32_t bytes) {
        ShortMessage message{};
        message.channel = from;
        message.length = bytes & 0xffffff;
        look_until([&] { return writer().put(message, sent.data() + from); });
    }
    // Whatever comes next.
    void read() {
        ShortMessage message{};
        Arrival arrival = Arrival::nothing;
        look_until([&] {
            arrival = reader().next(message);
            return arrival != Arrival::nothing;
        });
        if (arrival == Arrival::short_message) {
            check(message.channel == count, "messages and bytes in the order in which they were sent");
            reader().take(came.data() + count);
            count += message.length;
        } else {
            const std::size_t bytes = reader().read(std::span(came).subspan(count), {});
            check(bytes > 0, "bytes where some were announced");
            count += bytes;
        }
    }
    void read_until(std::size_t end) {
        while (count < end) read();
    }
    void check_all(std::size_t bytes) const {
        check(count == bytes && std::memcmp(came.data(), sent.data(), bytes) == 0, "the bytes that were sent");
    }
};

Scenario scenario_of(const std::shared_ptr<Streams>& state, std::size_t bytes, std::function<void()> writer,
                     std::function<void()> reader) {
    Scenario scenario{.memory = {memory_of(*state->arena)}, .state = state};
    scenario.threads = {std::move(writer), std::move(reader)};
    scenario.at_end = [s = state.get(), bytes] { s->check_all(bytes); };
    return scenario;
}

}  // namespace

Scenario bytes_in_ring() {
    const auto state = std::make_shared<Streams>(32);
    Streams* const s = state.get();
    return scenario_of(
        state, 48,
        [s] {
            s->write(0, 24);
            s->write(24, 24);
        },
        [s] { s->read_until(48); });
}

Scenario end_of_stream() {
    const auto state = std::make_shared<Streams>(32);
    Streams* const s = state.get();
    return scenario_of(
        state, 24,
        [s] {
            s->put(0, 8);
            s->write(8, 16);
            s->writer().end();
        },
        [s] {
            const auto ended = [&] { return s->reader().state() == StreamState::ended; };
            const auto has_more = [&] {
                ShortMessage message{};
                return s->reader().next(message) != Arrival::nothing;
            };
            for (;;) {
                look_until([&] { return ended() || has_more(); });
                if (ended()) break;
                s->read();
            }
            check(s->count == 24, "all bytes before the end");
        });
}

Scenario messages_in_ring() {
    const auto state = std::make_shared<Streams>(128);
    Streams* const s = state.get();
    constexpr std::uint32_t in_slot = 16, in_ring = MessageSlot::inline_bytes + 8;
    constexpr std::size_t bytes = in_slot + 2 * in_ring + 8;
    return scenario_of(
        state, bytes,
        [s] {
            s->put(0, in_ring);
            s->write(in_ring, 8);
            s->put(in_ring + 8, in_slot);
            s->put(in_ring + 8 + in_slot, in_ring);
        },
        [s] { s->read_until(bytes); });
}

Scenario messages_all_round() {
    const auto state = std::make_shared<Streams>(64);
    Streams* const s = state.get();
    constexpr std::size_t messages = RingControl::slots + 2;
    return scenario_of(
        state, messages * 8,
        [s] {
            for (std::size_t i = 0; i < messages; ++i) s->put(i * 8, 8);
        },
        [s] { s->read_until(messages * 8); });
}

}  // namespace tutti::memory_model
