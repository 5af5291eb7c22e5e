// Channel: the parts of a message's channel number.
#pragma once

#include "core/assert.hpp"
#include "engine/execution.hpp"
#include "transport/mailbox.hpp"

#include <cstdint>

namespace tutti::detail {

/// Internal messages of tutti. Their numbers lie above all tags of users, which are ints.
enum class OwnMessage : std::uint64_t {
    object_head = std::uint64_t{1} << 40,  ///< separate from bodies: a receive from any rank must match a head
    object_body,
    object_of_gather,
    object_of_scatter,
    barrier_report,
    barrier_answer,
    halo_up,    ///< to the neighbour with the next higher coordinate
    halo_down,  ///< to the one with the next lower coordinate
};

/// The messages of one-sided communication between hosts; each window of a group has its own channels.
enum class WindowMessage : std::uint64_t { request, payload, answer };

/// The parts of a message's channel: a bit that marks collectives, the group, and a number: a collective's, a tag, an
/// OwnMessage or a window's.
struct Channel {
    static constexpr int group_shift = 44;
    static constexpr std::uint64_t number_mask = (std::uint64_t{1} << group_shift) - 1;
    static constexpr std::uint64_t tag_mask = INT32_MAX;
    static constexpr std::uint32_t groups_max = std::uint32_t{1} << (63 - group_shift);

    static constexpr std::uint64_t of_message(std::uint32_t group, std::uint64_t tag) {
        TUTTI_ASSERT(group < groups_max && tag <= number_mask);
        return static_cast<std::uint64_t>(group) << group_shift | tag;
    }
    static constexpr std::uint64_t of_message(std::uint32_t group, OwnMessage own) {
        return of_message(group, static_cast<std::uint64_t>(own));
    }
    static constexpr std::uint64_t of_window(std::uint32_t group, std::uint32_t window, WindowMessage way) {
        constexpr std::uint64_t windows = std::uint64_t{1} << 41;  // above all OwnMessages
        return of_message(group, windows | std::uint64_t{window} << 2 | static_cast<std::uint64_t>(way));
    }
    static constexpr std::uint64_t of_neighbors(std::uint32_t group, std::uint32_t graph) {
        constexpr std::uint64_t graphs = std::uint64_t{1} << 42;  // above all windows
        return of_message(group, graphs | graph);
    }
    static constexpr std::uint64_t of_collective(std::uint32_t group, std::uint64_t sequence) {
        TUTTI_ASSERT(group < groups_max);
        return transport::collective_channel | of_message(group, sequence & number_mask);
    }
    static constexpr std::uint32_t group(std::uint64_t channel) {
        return static_cast<std::uint32_t>((channel & ~transport::collective_channel) >> group_shift);
    }
    static constexpr std::uint64_t number(std::uint64_t channel) { return channel & number_mask; }
    static constexpr bool is_message(std::uint64_t channel) { return (channel & transport::collective_channel) == 0; }
    /// The tag of a message; -1 for an internal message.
    static constexpr int tag(std::uint64_t channel) {
        return number(channel) <= tag_mask ? static_cast<int>(number(channel)) : -1;
    }
    /// The sequence number of a collective, from the channel of any of its parts.
    static constexpr std::uint64_t sequence(std::uint64_t channel) {
        return channel & ((std::uint64_t{1} << engine::part_of_channel_shift) - 1);
    }
};

}  // namespace tutti::detail
