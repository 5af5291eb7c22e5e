// Scale: the predicted time of algorithms between many hosts. Pure functions.
//
// The table's limits, and the formulas of cost.hpp, are about a few hosts: they know neither that ranks of one host
// share its card nor which messages stay inside, and a ring between hosts is short there. These formulas know it. Each
// counts the rounds one behind the other, of messages between hosts and of those inside; the messages of a core; its
// bytes; and the bytes that the ranks of a host send through its card at once. Inside a host the formulas of cost.hpp
// hold. The card is taken to carry as much as `card_streams` cores can send.
#pragma once

#include "algorithm/table.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti::algorithm {

/// From so many hosts on these formulas choose (plan.cpp).
inline constexpr int many_hosts_from = 5;
inline constexpr double card_streams = 2;
/// Longer messages are announced first, and wait for their receive (transport::Mailbox::is_eager).
constexpr double longest_eager_bytes(double one_way_us) {
    return 2 * one_way_us >= 100 ? 1 << 20 : 256 << 10;
}

/// Of more ranks the limits choose gather's and scatter's algorithm: a root that talks to all has a connection to each,
/// which the formulas do not know.
inline constexpr int most_at_root = 1024;

/// Hosts of the layout: the ranks of each share memory.
bool has_many_hosts(const Layout& layout);

/// Whether these formulas choose: there are also so many machines. Ranks of one machine that talk over TCP are hosts of
/// the layout, and share the machine's cores, which the formulas of cost.hpp know.
bool is_chosen_at_scale(const Layout& layout);

/// The layout's numbers; without any, assumed ones, with a core for each rank.
CostModel costs_at_scale(const Layout& layout);

/// Microseconds; nullopt: the algorithm has no formula here. Precondition: has_many_hosts().
std::optional<double> at_scale_us(const Context& context, std::string_view algorithm, const CostModel& costs);

}  // namespace tutti::algorithm
