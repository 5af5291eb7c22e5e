// Service: carries out, in this rank's memory, the requests of ranks of other hosts, without a call of this rank.
//
// It has no thread: it waits for requests by receives in the background, and each completion, on whichever thread of
// the rank moves the world's messages, takes the next step. Requests of one rank are carried out one after the other;
// those of different ranks do not wait for each other.
//
// It lives until end(), or until all others know that it was let_go(), or until the group ends, and keeps the window's
// memory and the group as long. A rank that lets go of a window tells the others, and still does what they ask for
// until they answer: so each of their calls succeeds, or is refused where it is made.
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
    /// After the last request that this rank is to serve. Its memory goes when nothing is under way any more.
    void end() noexcept;
    /// The others do not know yet that the window ends.
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
    std::shared_ptr<Operation> first_step(const Request& request, int source) const;
    void finish(const Request& request) const;
    bool fits(const Request& request) const noexcept;

    const std::shared_ptr<Group> group_;
    const std::shared_ptr<const Memory> memory_;
    const std::shared_ptr<Remote> remote_;
    const Messages messages_;
    Request incoming_;  // of the one receive that waits for requests
    Mutex mutex_;
    std::vector<Source> sources_ TUTTI_GUARDED_BY(mutex_);  // by rank
    std::set<int> unaware_ TUTTI_GUARDED_BY(mutex_);        // once it is let go: who has yet to answer
    bool let_go_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti::window
