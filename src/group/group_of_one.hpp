// For tests: a group whose only rank is this process, and messages to itself, which it posts when the test asks.
#pragma once

#include "group/group.hpp"
#include "operation/fingerprint.hpp"

#include <tutti/store.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::detail::test {

struct GroupOfOne {
    /// A one-byte message with that tag, issued but not posted.
    std::shared_ptr<Operation> message(bool is_receive, int tag) {
        auto operation = std::make_shared<Operation>();
        operation->name = is_receive ? "recv" : "send";
        operation->is_collective = false;
        operation->is_receive = is_receive;
        operation->transfer = transfer(is_receive, tag);
        operation->timeout = std::chrono::seconds(10);
        group->begin(operation);
        return operation;
    }
    transport::Transfer transfer(bool is_receive, int tag, std::uint64_t count = 1) {
        transport::Transfer transfer{.peer = 0,
                                     .channel = Channel::of_message(group->index(), static_cast<std::uint64_t>(tag)),
                                     .fingerprint = group::Fingerprint::pack(group::point_to_point, DType::uint8,
                                                                             ReduceOp::Kind::sum, -1, count),
                                     .bytes = count};
        if (is_receive)
            transfer.target = to.data();
        else
            transfer.source = from.data();
        return transfer;
    }

    std::array<std::byte, 2> from{std::byte{7}, std::byte{8}}, to{};
    std::shared_ptr<Group> group = Group::of_all({.store = HashStore(), .rank = 0, .world_size = 1});
    OperationsInFlight& flight = group->world().flight();
};

}  // namespace tutti::detail::test
