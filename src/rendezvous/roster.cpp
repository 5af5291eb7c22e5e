#include "rendezvous/roster.hpp"

#include "rendezvous/place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tutti::rendezvous {

bool Roster::encrypts(int other) const {
    return own().tls && network_of(card(other).host_key) != network_of(own().host_key);
}

bool Roster::is_of_one_network() const {
    const std::string first = network_of(cards->front().host_key);
    return std::ranges::all_of(*cards, [&](const Card& card) { return network_of(card.host_key) == first; });
}

std::string Roster::tls_identity(int from, int to) const {
    return fmt::format("tutti 1 world {:016x} rank {} to rank {}", world, from, to);
}

bool Roster::is_for_this_rank(std::string_view identity) const {
    constexpr std::string_view before = " rank ";
    const std::string_view number = identity.substr(std::min(identity.find(before), identity.size()));
    if (number.size() <= before.size()) return false;
    int from = -1;
    std::from_chars(number.data() + before.size(), number.data() + number.size(), from);
    return has(from) && from != rank && encrypts(from) && identity == tls_identity(from, rank);
}

}  // namespace tutti::rendezvous
