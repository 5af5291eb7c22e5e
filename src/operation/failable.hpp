// Failable: the operations that fail when a world does. OperationsInFlight implements it.
//
// Threads: one at a time (the world's lock), unless a function says otherwise.
#pragma once

#include <exception>
#include <functional>
#include <memory>

namespace tutti::detail {

class FailureInquiry;
class Operation;

class Failable {
 public:
    virtual ~Failable() = default;
    /// Every operation of every group fails with it.
    virtual void fail(const std::exception_ptr& error) = 0;
    /// Calls `act` with the lock; operations that it completes are told of afterwards, without it. Any thread.
    virtual void with_lock(const std::function<void()>& act) = 0;
    /// Whether they have failed, or are about to.
    virtual bool failing() const = 0;
    /// The failure; null: there is none. Any thread, once it is there.
    virtual const std::exception_ptr& failure() const = 0;
    /// An operation in flight, of collectives first, and its group's inquiry; null: there is none.
    struct InFlight {
        std::shared_ptr<Operation> operation{};
        FailureInquiry* inquiry = nullptr;
    };
    virtual InFlight any() const = 0;
};

}  // namespace tutti::detail
