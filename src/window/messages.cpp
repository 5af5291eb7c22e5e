#include "window/messages.hpp"

#include "core/assert.hpp"
#include "operation/channel.hpp"
#include "operation/fingerprint.hpp"

#include <tutti/tensor.hpp>

#include <atomic>
#include <cstring>
#include <utility>

namespace tutti::window {

std::shared_ptr<Operation> Messages::message(const char* name, int peer, WindowMessage way, std::size_t bytes,
                                             std::chrono::milliseconds timeout) const {
    TUTTI_ASSERT(peer == any_rank || (peer >= 0 && peer < group_.size()));
    TUTTI_ASSERT(timeout.count() > 0);
    auto message = std::make_shared<Operation>();
    message->name = name;
    message->is_collective = false;
    message->timeout = timeout;
    message->is_of_service = timeout == no_limit;
    message->group = group_.shared_from_this();
    transport::Transfer& transfer = message->transfer;
    transfer.peer = peer == any_rank ? transport::any_source : group_.ranks().global(peer);
    transfer.standing = message->is_of_service && peer == any_rank;
    transfer.channel = detail::Channel::of_window(group_.index(), number_, way);
    transfer.bytes = bytes;
    transfer.fingerprint =
        group::Fingerprint::pack(group::point_to_point, uint8, ReduceOp::Kind::sum, -1, std::uint64_t{bytes});
    return message;
}

std::shared_ptr<Operation> Messages::send(const char* name, int to, WindowMessage way, std::span<const std::byte> bytes,
                                          std::chrono::milliseconds timeout) const {
    TUTTI_ASSERT(to >= 0);
    TUTTI_ASSERT(bytes.data() != nullptr || bytes.empty());
    auto sending = message(name, to, way, bytes.size(), timeout);
    sending->transfer.source = bytes.data();
    return sending;
}

std::shared_ptr<Operation> Messages::receive(const char* name, int from, WindowMessage way, std::span<std::byte> bytes,
                                             std::chrono::milliseconds timeout) const {
    TUTTI_ASSERT(bytes.data() != nullptr || bytes.empty());
    auto receiving = message(name, from, way, bytes.size(), timeout);
    receiving->is_receive = true;
    receiving->transfer.target = bytes.data();
    return receiving;
}

std::shared_ptr<Operation> Messages::send(const char* name, int to, const Request& request,
                                          std::chrono::milliseconds timeout) const {
    TUTTI_ASSERT(request.kind >= Request::Kind::put && request.kind <= Request::Kind::heard);
    Tensor copy = empty(uint8, Extents::of(std::int64_t{sizeof request}));
    std::memcpy(copy.raw_data(), &request, sizeof request);
    const std::span bytes(static_cast<const std::byte*>(copy.raw_data()), sizeof request);
    auto sending = send(name, to, WindowMessage::request, bytes, timeout);
    sending->temporaries.push_back(std::move(copy));
    return sending;
}

// Whoever comes second, the thread that issues the message or the one that completes it, goes on.
bool Messages::is_complete_at_once(const std::shared_ptr<Operation>& message, std::function<void()> later) const {
    TUTTI_ASSERT(message != nullptr && static_cast<bool>(later));
    enum Met : int { nobody, issuer, completer };
    auto met = std::make_shared<std::atomic<int>>(nobody);
    message->on_completion([met, later = std::move(later)] {
        if (met->exchange(completer) == issuer) later();
    });
    group_.submit(message, true);
    return met->exchange(issuer) == completer;
}

}  // namespace tutti::window
