// Service: carries out requests of ranks of other hosts in this rank's memory, without a call of this rank.
//
// It has no thread: it posts receives in the background, and each completion runs the next step, on whichever thread of
// the rank moves the world's messages. Requests of one rank run one after the other; requests of different ranks do not
// wait for each other.
//
// It lives until end(), until all others know that this rank has let_go(), or until the group ends; it keeps the
// window's memory and the group alive. A rank that lets go of a window notifies the others, and serves their requests
// until they answer: so each of their calls succeeds, or is refused on the caller's side.
//
// Threads: any.
#pragma once

#include "core/thread_safety.hpp"
#include "window/memory.hpp"
#include "window/messages.hpp"
#include "window/remote.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace tutti::window {

class Service : public std::enable_shared_from_this<Service> {
 public:
    Service(std::shared_ptr<Group> group, std::shared_ptr<const Memory> memory, std::shared_ptr<Remote> remote,
            std::uint32_t number);
    void begin() { listen(); }
    /// Call this after the last request that this rank is to serve. The memory is released when nothing is in flight
    /// any more.
    void end() noexcept;
    /// Ends the window without the others: notifies them, and serves their requests until they have answered.
    void let_go() noexcept;

 private:
    struct Source {
        std::deque<Request> waiting;
        bool busy = false;  ///< a step of one of its requests is under way
    };

    void listen();
    bool take(const Operation& receive);
    bool take_news(Request::Kind kind, int source);
    void serve(int source);
    std::optional<Request> next_of(int source);
    std::shared_ptr<Operation> first_step(const Request& request, int source, Tensor& room) const;
    bool finish(const Request& request, int source, const Tensor& room) const;
    void update(const Request& request, int source, const void* payload) const;
    bool fits(const Request& request) const noexcept;

    const std::shared_ptr<Group> group_;
    const std::shared_ptr<const Memory> memory_;
    const std::shared_ptr<Remote> remote_;
    const Messages messages_;
    Request incoming_;  // buffer of the pending receive for requests
    Mutex mutex_;
    std::vector<Source> sources_ TUTTI_GUARDED_BY(mutex_);  // by rank
    std::set<int> unaware_ TUTTI_GUARDED_BY(mutex_);        // after let_go(): the ranks that have not answered
    bool let_go_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti::window
