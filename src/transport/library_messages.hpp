// LibraryMessages: long messages that a transport's library moves between the memory of two ranks (Streams::receive and
// send), without a copy.
//
// Threads: one at a time.
#pragma once

#include "transport/transfer.hpp"

#include <tutti/transport.hpp>

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace tutti::transport {

class LibraryMessages {
 public:
    explicit LibraryMessages(Streams& streams) : streams_(streams) {}

    /// Begins a receive of message `number` from `source`. False: the library does not move the message, or the receive
    /// combines.
    bool receive(int source, std::uint64_t number, Transfer& receive);
    /// Begins the send to a peer that has begun its receive. False: the library does not move the message.
    bool send(int to, std::uint64_t number, Transfer& send);
    bool empty() const noexcept { return under_way_.empty(); }
    /// Whether a message to or from that peer is under way.
    bool has(int peer) const;

    struct Failure {
        int peer;
        std::string why;
    };
    struct Progress {
        bool moved = false;
        std::vector<Failure> failures{};  ///< their messages are no longer under way, and not done
    };
    /// Polls all messages under way, and marks transfers that have completed as done.
    Progress progress();
    /// Gives up one transfer; false: it was not under way.
    bool withdraw(const Transfer& transfer);
    /// Gives up all.
    void drop_all() { under_way_.clear(); }
    void pollables(std::vector<Pollable>& into) const;

 private:
    struct UnderWay {
        int peer;
        Transfer* transfer;
        std::unique_ptr<LibraryCall> call;
    };
    bool add(int peer, Transfer& transfer, std::unique_ptr<LibraryCall> call);

    Streams& streams_;
    std::list<UnderWay> under_way_;
};

}  // namespace tutti::transport
