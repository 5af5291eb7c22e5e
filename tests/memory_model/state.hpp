// What the explorer knows of threads, places and messages while a scenario runs.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tutti::memory_model {

inline constexpr std::size_t threads_max = 4, places_max = 96, stack_bytes = std::size_t{256} << 10;
inline constexpr std::size_t messages_max = 255;  // of a place, as views count them in a byte

using Hash = std::uint64_t;
constexpr Hash mix(Hash hash, std::uint64_t with) {
    hash = (hash ^ with) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
}

/// What a thread, or a message, knows: of each place the oldest message that may still be read, and how far each
/// thread has come.
struct View {
    std::array<std::uint8_t, places_max> seen{};
    std::array<std::uint16_t, threads_max> clock{};

    void join_places(const View& other) {
        for (std::size_t i = 0; i < places_max; ++i) seen[i] = std::max(seen[i], other.seen[i]);
    }
    void join(const View& other) {
        join_places(other);
        for (std::size_t i = 0; i < threads_max; ++i) clock[i] = std::max(clock[i], other.clock[i]);
    }
    Hash add_to(Hash hash) const {
        std::array<std::uint64_t, sizeof(View) / sizeof(std::uint64_t)> words;
        static_assert(sizeof words == sizeof(View));
        words = std::bit_cast<decltype(words)>(*this);
        for (const std::uint64_t word : words) hash = mix(hash, word);
        return hash;
    }
};

struct Message {
    std::uint64_t value = 0;
    View view;
    int writer = -1;
};

enum class Kind : std::uint8_t { load, store, change };
inline constexpr std::array<const char*, 3> kind_names{"load", "store", "change"};

struct Place {
    std::string name;
    std::vector<Message> messages;
    Hash hash = 0;                        // of the messages
    std::array<bool, 3> weak{};           // of the weakened thread, by kind
    std::array<unsigned, 3> asked_for{};  // by kind: threads, as bits
    unsigned writers = 0, readers = 0;    // threads, as bits, in all executions so far
};

struct Thread {
    enum class State : std::uint8_t { ready, waits, sleeps, done };
    ucontext_t context{};
    std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
    View now, acquired, released;  // acquired, released: by an acquire fence to come, by the last release fence
    State state = State::ready;
    Hash history = 0, before_look = 0;
    bool looked_in_vain = false;
    std::map<std::size_t, std::size_t> looked_at;  // place, first message: since the look began
    std::size_t last_load = 0;
    std::size_t futex = 0;  // the place on which it sleeps
};

/// Who has touched eight bytes of ordinary memory: when, by the thread's own clock.
struct Touched {
    int writer = -1;
    std::uint16_t written = 0;
    std::array<std::uint16_t, threads_max> read{};
};

}  // namespace tutti::memory_model
