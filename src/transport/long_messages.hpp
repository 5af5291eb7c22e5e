// LongMessages: the state of the rendezvous protocol: sends that this rank has announced, and receives whose sender it
// has cleared to send.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "core/kept_map.hpp"
#include "transport/frame.hpp"
#include "transport/transfer.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport {

class LongMessages {
 public:
    /// Registers a send. Returns its id, which the request carries and the answer names.
    std::uint64_t announce(Transfer& send) {
        TUTTI_ASSERT(!send.done);
        TUTTI_ASSERT(next_id_ >> 40 == 0);  // a key has room for 40 bits
        announced_[next_id_] = &send;
        return next_id_++;
    }
    /// Removes and returns the announced send to `to` with this id, which that peer has answered. Null: there is none.
    Transfer* take_announced(int to, std::uint64_t id) {
        const auto found = announced_.find(id);
        return found == announced_.end() || found->second->peer != to ? nullptr : take(announced_, id);
    }
    /// Removes a send. Returns whether it was announced and is not answered yet.
    bool withdraw(const Transfer& send) {
        const auto found = std::find_if(announced_.begin(), announced_.end(),
                                        [&](const auto& entry) { return entry.second == &send; });
        if (found == announced_.end()) return false;
        announced_.erase(found);
        return true;
    }

    /// Registers a receive whose sender is cleared to send.
    void grant(int source, std::uint64_t id, Transfer& receive) {
        TUTTI_ASSERT(receive.peer == source);
        TUTTI_ASSERT(!receive.done);
        granted_[key(source, id)] = &receive;
    }
    /// Takes out the receive for arriving data; null: there is none with this id and length.
    Transfer* take_granted(int source, std::uint64_t id, std::size_t bytes) {
        const auto found = granted_.find(key(source, id));
        if (found == granted_.end() || found->second->peer != source || found->second->bytes != bytes) return nullptr;
        return take(granted_, found->first);
    }

    /// An answer to a request, to be sent in the next turn.
    struct Clear {
        int to;
        std::uint64_t channel, id;
        Frame::Kind kind = Frame::Kind::clear;
    };
    void clear_later(const Clear& clear) {
        TUTTI_ASSERT(clear.to >= 0);
        TUTTI_ASSERT(clear.kind == Frame::Kind::clear || clear.kind == Frame::Kind::ready);
        clears_.push_back(clear);
    }
    /// The answers queued in the last turn; valid until the next call.
    std::span<const Clear> take_clears() {
        taken_.clear();
        taken_.swap(clears_);
        TUTTI_ASSERT(clears_.empty());
        return taken_;
    }

    void drop_all() {
        announced_.clear();
        granted_.clear();
        clears_.clear();
    }

 private:
    using ById = KeptMap<std::uint64_t, Transfer*>;
    static Transfer* take(ById& transfers, std::uint64_t id) {
        const auto found = transfers.find(id);
        if (found == transfers.end()) return nullptr;
        Transfer* const transfer = found->second;
        transfers.erase(found);
        return transfer;
    }
    static std::uint64_t key(int source, std::uint64_t id) {
        TUTTI_ASSERT(source >= 0);
        return (static_cast<std::uint64_t>(source) << 40) ^ id;
    }

    ById announced_;
    ById granted_;  // by source and id
    std::uint64_t next_id_ = 1;
    std::vector<Clear> clears_, taken_;
};

}  // namespace tutti::transport
