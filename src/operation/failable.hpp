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
    /// Fails all operations in flight, of every group, with the error. Call it with the lock held.
    virtual void fail(const std::exception_ptr& error) = 0;
    /// Calls `act` with the lock held; continuations of operations that `act` completes run after the lock is released.
    /// Any thread.
    virtual void with_lock(const std::function<void()>& act) = 0;
    /// Whether the world has failed, or will fail as soon as the running execution has returned.
    virtual bool failing() const = 0;
    /// The failure; null: there is none. Any thread may call it once there is one.
    virtual const std::exception_ptr& failure() const = 0;
    /// An operation in flight (a collective, if there is one), and the FailureInquiry of its group; null: nothing is in
    /// flight.
    struct InFlight {
        std::shared_ptr<Operation> operation{};
        FailureInquiry* inquiry = nullptr;
    };
    virtual InFlight any() const = 0;
};

}  // namespace tutti::detail
