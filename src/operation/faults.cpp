#include "operation/faults.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/split_mix.hpp"
#include "transport/links.hpp"

#include <tutti/collectives.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <ctime>
#include <thread>

namespace tutti::detail {
namespace {

using std::chrono::nanoseconds;

bool is_known(std::string_view operation) {
    return operation == "any" || operation == "send" || operation == "recv" ||
           std::ranges::find(collective_functions, operation, &CollectiveFunction::name) !=
               std::end(collective_functions);
}

constexpr std::uint64_t steps_by_seed = 8;

[[noreturn]] void refuse(std::string_view word, std::string_view expected) {
    throw InvalidArgument(fmt::format("environment variable TUTTI_FAULTS: \"{}\": expected {}", word, expected));
}

template <class Number>
Number number_of(std::string_view word, std::string_view text, Number least, std::string_view expected) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least) refuse(word, expected);
    return value;
}

nanoseconds time_of(std::string_view word, std::string_view text) {
    constexpr std::string_view expected = "a time such as 5s, 200ms or 10us, at most a day";
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view unit = text.substr(digits);
    const std::int64_t scale = unit == "s" ? 1000000000 : unit == "ms" ? 1000000 : unit == "us" ? 1000 : 0;
    const auto count = number_of<std::int64_t>(word, text.substr(0, digits), 1, expected);
    constexpr std::int64_t day_ns = std::int64_t{86400} * 1000000000;
    if (scale == 0 || count > day_ns / scale) refuse(word, expected);
    return nanoseconds(count * scale);
}

void set_operation(Fault& fault, std::string_view word, std::string_view text) {
    const std::size_t at = text.find('@');
    fault.operation = text.substr(0, at);
    if (!is_known(fault.operation))
        refuse(word, fmt::format("any, send, recv, or a collective such as {} or {}", collective_functions[0].name,
                                 collective_functions[1].name));
    if (at != std::string_view::npos)
        fault.number = number_of<std::uint64_t>(word, text.substr(at + 1), 1, "the number of a call after @, from 1");
}

bool set_action(Fault& fault, std::string_view word, std::string_view key, std::string_view value) {
    if (word == "kill" || word == "drop" || word == "corrupt") {
        fault.action = word == "kill"   ? Fault::Action::kill
                       : word == "drop" ? Fault::Action::drop
                                        : Fault::Action::corrupt;
    } else if (key == "stop" || key == "delay") {
        fault.action = key == "stop" ? Fault::Action::stop : Fault::Action::delay;
        fault.time = time_of(word, value);
    } else {
        return false;
    }
    return true;
}

Fault parse_fault(std::string_view text) {
    Fault fault;
    bool acts = false;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
        const std::string_view word = text.substr(at, end - at);
        at = end + 1;
        if (word.empty()) continue;
        const std::size_t equals = word.find('=');
        const std::string_view key = word.substr(0, equals);
        const std::string_view value = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
        if (key == "rank") {
            fault.rank = number_of<int>(word, value, 0, "rank=N, N from 0");
        } else if (key == "op") {
            set_operation(fault, word, value);
        } else if (key == "step") {
            fault.step = number_of<int>(word, value, 0, "step=S, S from 0");
        } else if (key == "seed") {
            fault.seed = number_of<std::uint64_t>(word, value, 0, "seed=N");
        } else if (set_action(fault, word, key, value)) {
            if (acts)
                refuse(word,
                       "one of kill, stop=TIME, delay=TIME, drop and corrupt for a fault; \";\" separates faults");
            acts = true;
        } else {
            refuse(word, "rank=N, op=NAME[@K], step=S, seed=N, kill, stop=TIME, delay=TIME, drop or corrupt");
        }
    }
    if (!acts) refuse(text, "one of kill, stop=TIME, delay=TIME, drop and corrupt in it");
    if (fault.number == 0 && fault.action != Fault::Action::delay) fault.number = 1;
    return fault;
}

// A process that is stopped cannot wake itself: a grandchild does, for which no process has to wait. It keeps none of
// the connections open. _Fork, since fork handlers may want the lock that is held.
void stop_for(nanoseconds time) {
    const pid_t self = ::getpid();
    const pid_t child = ::_Fork();
    if (child == 0) {
        if (::_Fork() == 0) {
            ::close_range(3, ~0U, 0);
            const timespec rest{.tv_sec = time.count() / 1000000000, .tv_nsec = time.count() % 1000000000};
            ::nanosleep(&rest, nullptr);
            ::kill(self, SIGCONT);
        }
        ::_exit(0);
    }
    if (child < 0) return std::this_thread::sleep_for(time);
    ::waitpid(child, nullptr, 0);
    ::kill(self, SIGSTOP);
}

const char* words_of(Fault::Action action) {
    switch (action) {
        case Fault::Action::kill: return "kills itself";
        case Fault::Action::stop: return "stops";
        case Fault::Action::delay: return "is slow from now on";
        case Fault::Action::drop: return "breaks its TCP connections";
        case Fault::Action::corrupt: return "changes what it sends over TCP";
    }
    return "";
}

}  // namespace

std::vector<Fault> parse_faults(std::string_view text) {
    std::vector<Fault> faults;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(';', at), text.size());
        const std::string_view one = text.substr(at, end - at);
        if (one.find_first_not_of(" \t\n") != std::string_view::npos) faults.push_back(parse_fault(one));
        at = end + 1;
    }
    return faults;
}

Faults::Faults(std::vector<Fault> all, int rank) : mine_(std::move(all)), rank_(rank) {
    std::erase_if(mine_, [rank](const Fault& fault) { return fault.rank.value_or(rank) != rank; });
}

std::unique_ptr<Faults> Faults::from_environment(int rank) {
    const auto text = env::get("TUTTI_FAULTS");
    if (!text) return nullptr;
    auto faults = std::make_unique<Faults>(parse_faults(*text), rank);
    return faults->mine_.empty() ? nullptr : std::move(faults);
}

std::optional<ArmedFault> Faults::begin(std::string_view operation) {
    TUTTI_ASSERT(!mine_.empty());
    const auto found = calls_.try_emplace(std::string(operation), 0).first;
    const std::uint64_t number = ++found->second;
    ++all_calls_;
    for (const Fault& fault : mine_) {
        TUTTI_ASSERT(number > 0 && number <= all_calls_);
        if (fault.operation != "any" && fault.operation != operation) continue;
        if (fault.number != 0 && fault.number != (fault.operation == "any" ? all_calls_ : number)) continue;
        const auto seed = split_mix(fault.seed ^ split_mix(static_cast<std::uint64_t>(rank_)) ^ number);
        return ArmedFault{&fault, fault.step.value_or(static_cast<int>(seed % steps_by_seed))};
    }
    return std::nullopt;
}

void Faults::turn(ArmedFault& armed, bool moved, bool ends, transport::Links& links, const std::string& title) {
    const Fault& fault = *armed.fault;
    TUTTI_ASSERT(armed.turns >= 0);
    const bool slow = fault.action == Fault::Action::delay;
    if (armed.struck && !slow) return;
    if (armed.turns > 0 && !ends) {
        if (moved) --armed.turns;
        return;
    }
    if (!armed.struck) TUTTI_WARN("TUTTI_FAULTS: rank {} {} in {}", rank_, words_of(fault.action), title);
    armed.struck = true;
    const auto streams = links.connected();
    switch (fault.action) {
        case Fault::Action::kill: ::kill(::getpid(), SIGKILL); break;
        case Fault::Action::stop: stop_for(fault.time); break;
        case Fault::Action::delay: std::this_thread::sleep_for(fault.time); break;
        case Fault::Action::drop:
            if (streams.empty()) TUTTI_WARN("TUTTI_FAULTS: drop: rank {} has no TCP connection now", rank_);
            for (transport::SocketStream* stream : streams) stream->cut();
            break;
        case Fault::Action::corrupt:
            if (std::ranges::count_if(streams, [](transport::SocketStream* stream) { return stream->spoil(); }) == 0)
                TUTTI_WARN(
                    "TUTTI_FAULTS: corrupt: rank {} has no TCP connection with checksums now (inside a host they "
                    "need TUTTI_TRANSPORT=tcp and TUTTI_TCP_CHECKSUM=on)",
                    rank_);
            break;
    }
}

}  // namespace tutti::detail
