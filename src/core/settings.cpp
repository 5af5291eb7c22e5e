#include "core/settings.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/suggestion.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::settings {
namespace {

template <class T>
using Named = std::pair<std::string_view, T>;

constexpr std::array<Named<Determinism>, 3> degrees_of_determinism{
    {{"fast", Determinism::fast},
     {"run_to_run", Determinism::run_to_run},
     {"layout_invariant", Determinism::layout_invariant}}};

// "auto, shm or tcp"
template <class T, std::size_t N>
std::string names_of(const std::array<Named<T>, N>& choices) {
    std::string text;
    for (std::size_t i = 0; i < N; ++i) {
        if (i > 0) text += i + 1 < N ? ", " : " or ";
        text += choices[i].first;
    }
    return text;
}

// The first choice is the one of an unset variable.
template <class T, std::size_t N>
T chosen(std::string_view variable, const std::array<Named<T>, N>& choices) {
    const auto text = env::get(variable);
    if (!text) return choices.front().second;
    for (const auto& [name, value] : choices) {
        if (*text == name) return value;
    }
    throw InvalidArgument(fmt::format("environment variable {}={}: expected {}{}", variable, *text, names_of(choices),
                                      did_you_mean(*text, choices | std::views::keys)));
}

}  // namespace

TransportKind transport() {
    static constexpr std::array<Named<TransportKind>, 3> choices{
        {{"auto", TransportKind::automatic}, {"shm", TransportKind::shm}, {"tcp", TransportKind::tcp}}};
    return chosen("TUTTI_TRANSPORT", choices);
}

Determinism determinism() {
    return chosen("TUTTI_DETERMINISM", degrees_of_determinism);
}
std::string_view name_of(Determinism determinism) noexcept {
    const auto found = std::ranges::find(degrees_of_determinism, determinism, &Named<Determinism>::second);
    TUTTI_ASSERT(found != degrees_of_determinism.end());
    return found->first;
}
std::optional<Determinism> determinism_named(std::string_view name) noexcept {
    const auto found = std::ranges::find(degrees_of_determinism, name, &Named<Determinism>::first);
    return found == degrees_of_determinism.end() ? std::nullopt : std::optional(found->second);
}

Wait wait() {
    static constexpr std::array<Named<Wait>, 4> choices{
        {{"auto", Wait::automatic}, {"spin", Wait::spin}, {"yield", Wait::yield}, {"sleep", Wait::sleep}}};
    return chosen("TUTTI_WAIT", choices);
}

int progress_nice() {
    return static_cast<int>(env::get_int("TUTTI_PROGRESS_NICE", -20, 19).value_or(0));
}

bool spread() {
    return env::get_bool("TUTTI_SPREAD", true);
}

HugePages huge_pages() {
    static constexpr std::array<Named<HugePages>, 3> choices{
        {{"1", HugePages::all}, {"own", HugePages::own}, {"0", HugePages::none}}};
    return chosen("TUTTI_HUGE_PAGES", choices);
}

TcpChecksum tcp_checksum() {
    static constexpr std::array<Named<TcpChecksum>, 3> choices{
        {{"auto", TcpChecksum::automatic}, {"on", TcpChecksum::on}, {"off", TcpChecksum::off}}};
    return chosen("TUTTI_TCP_CHECKSUM", choices);
}

bool tls() {
    static constexpr std::array<Named<bool>, 2> choices{{{"off", false}, {"on", true}}};
    return chosen("TUTTI_TLS", choices);
}

std::optional<std::chrono::milliseconds> timeout() {
    constexpr std::int64_t longest = INT64_MAX / 2'000'000;  // as nanoseconds it can still be added to a time
    const auto ms = env::get_int("TUTTI_TIMEOUT_MS", 1, longest);
    return ms ? std::optional(std::chrono::milliseconds(*ms)) : std::nullopt;
}

// A blackout of 12 s is no loss, and the last probe before it may be 1 s old.
std::chrono::milliseconds lifeline_timeout() {
    return std::chrono::milliseconds(env::get_int("TUTTI_LIFELINE_TIMEOUT_MS", 2000, 3'600'000).value_or(13'500));
}

}  // namespace tutti::settings
