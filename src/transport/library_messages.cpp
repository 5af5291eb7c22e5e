#include "transport/library_messages.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

namespace tutti::transport {

bool LibraryMessages::receive(int source, std::uint64_t number, Transfer& receive) {
    TUTTI_ASSERT(source >= 0 && receive.peer == source);
    TUTTI_ASSERT(!receive.done);
    TUTTI_ASSERT(receive.on_bytes || receive.target != nullptr || receive.bytes == 0);
    if (receive.on_bytes) return false;
    return add(source, receive, streams_.receive(source, number, {receive.target, receive.bytes}));
}

bool LibraryMessages::send(int to, std::uint64_t number, Transfer& send) {
    TUTTI_ASSERT(to >= 0 && send.peer == to);
    TUTTI_ASSERT(!send.done);
    TUTTI_ASSERT(send.source != nullptr || send.bytes == 0);
    return add(to, send, streams_.send(to, number, {send.source, send.bytes}));
}

bool LibraryMessages::add(int peer, Transfer& transfer, std::unique_ptr<LibraryCall> call) {
    TUTTI_ASSERT(peer >= 0);
    if (!call) return false;
    under_way_.push_back({peer, &transfer, std::move(call)});
    return true;
}

bool LibraryMessages::has(int peer) const {
    TUTTI_ASSERT(peer >= 0);
    return std::ranges::find(under_way_, peer, &UnderWay::peer) != under_way_.end();
}

LibraryMessages::Progress LibraryMessages::progress() {
    Progress progress;
    for (auto it = under_way_.begin(); it != under_way_.end();) {
        try {
            TUTTI_ASSERT(it->call != nullptr && it->transfer != nullptr);
            TUTTI_ASSERT(!it->transfer->done);
            if (!it->call->done()) {
                ++it;
                continue;
            }
            it->transfer->bytes_done = it->transfer->bytes;
            it->transfer->done = true;
        } catch (const std::exception& error) {
            progress.failures.push_back({it->peer, error.what()});
        }
        progress.moved = true;
        it = under_way_.erase(it);
    }
    return progress;
}

bool LibraryMessages::withdraw(const Transfer& transfer) {
    return under_way_.remove_if([&](const UnderWay& one) { return one.transfer == &transfer; }) > 0;
}

void LibraryMessages::pollables(std::vector<Pollable>& into) const {
    for (const UnderWay& one : under_way_) one.call->pollables(into);
}

}  // namespace tutti::transport
