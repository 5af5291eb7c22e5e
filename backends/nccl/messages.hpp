// Messages: sends and receives. The library has neither tags nor "from any rank", and its receive must not be put into
// a stream long before the send. So each message is matched first, over the context's host group: the sender sends an
// offer, the receiver answers "go" when it has a receive for it and puts the receive into the stream of that directed
// pair; the sender puts the send there in the order of the gos (lane.hpp). A thread of its own makes a pair's
// communicator at the first message, with the id that the first go carries. A message to oneself is a copy on the
// device.
//
//        sender                                          receiver
//        isend  -- offer: number, count, dtype ------->  irecv, with the caller's tag, of a rank or of any
//        lane   <- answer: go, number (first: id) -----  lane: one for each sender
//        ncclSend ==== data, in the order of the gos ==> ncclRecv
//
// A send of up to 64 KB is over for its caller when the device has copied its data; the copy waits for its receive.
//
// Deadlines and deaths: the host group watches over an operation that waits for its other side; afterwards the
// context's watcher does.
//
// Threads: run() any, one at a time; it does not block. Continuations of the host group's messages match; the lanes'
// threads carry.
#pragma once

#include "nccl/context.hpp"

#include <tutti/backend.hpp>

#include <exception>
#include <functional>
#include <memory>

namespace tutti::nccl {

class Messages {
 public:
    /// All ranks of the group make it together: it splits the host group.
    explicit Messages(std::shared_ptr<Context> context);
    /// Fails the operations under way.
    ~Messages();
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    /// BackendCall::send, receive. Messages of one pair with one tag arrive in the order of their sends. If count,
    /// dtype or kind of device differ from the sender's, both get CollectiveMismatch, and the group goes on.
    void run(const BackendRequest& request, BackendCompletion completion);
    /// A function that returns the error that has ended the host group, as other ranks reported it; null: none. May
    /// outlive this.
    std::function<std::exception_ptr()> probe() const;
    /// Waits until no matched send or receive is under way, nor a copied one, at most until `until`; returns whether
    /// that is so. A copy for a rank that has left does not count.
    bool drain(Clock::time_point until);

 private:
    class Core;
    const std::shared_ptr<Core> core_;
};

}  // namespace tutti::nccl
