// Driver: chooses which thread makes progress in a world, and how threads wait. A thread that waits for an operation
// makes progress itself; while none waits, the progress thread does. The first asynchronous operation creates the
// progress thread, which sleeps when nothing is in flight.
//
// Threads: any.
#pragma once

#include "core/deadline.hpp"
#include "core/unique_fd.hpp"
#include "core/waiting.hpp"
#include "transport/shm/neighbours.hpp"

#include <tutti/transport.hpp>

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tutti::detail {

/// The work that a driver moves. Its functions take the locks that they need.
class Driven {
 public:
    virtual ~Driven() = default;
    /// Moves all that can move now; true if anything did.
    virtual bool move() = 0;
    /// Whether something is in flight.
    virtual bool is_busy() = 0;
    /// Whether something is in flight, and all of it waits for what only descriptors bring: no change in memory, no
    /// deadline.
    virtual bool only_awaits_sockets() { return false; }
    /// Whether a progress thread moves what is in flight while no other thread does.
    virtual void note_thread(bool /*there*/) noexcept {}
    /// The checks that a waiting rank makes now and then: deadlines, ranks that have left.
    virtual void look_after() = 0;
    /// Whether the world has failed, so that nothing will move any more.
    virtual bool has_failed() = 0;
    /// Replaces the contents of `into` by the descriptors to poll, including one that is readable when there is news. A
    /// descriptor of -1 means that something in flight moves in memory, without a descriptor.
    virtual void pollables(std::vector<transport::Pollable>& into) = 0;
    virtual int news_fd() const noexcept = 0;
    /// Whether threads of a transport's library carry out all that is in flight. They need the core more than a rank
    /// that spins.
    virtual bool is_moved_by_threads() { return false; }
    /// The progress thread has ended with an exception.
    virtual void end_of_thread() noexcept = 0;
};

class Driver {
 public:
    /// `group`: for error messages; `niceness`: added to that of the progress thread.
    Driver(std::string group, int niceness) : group_(std::move(group)), niceness_(niceness) {}
    ~Driver() { stop(); }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Call it before anything is driven. Both must outlive the driver; the ranks in `neighbours` may share no memory.
    void attach(Driven& driven, const transport::Neighbours& neighbours);
    Waiting& waiting() noexcept { return waiting_; }
    /// How a rank waits in calls that end within a moment. They learn for themselves: in longer operations a turn is
    /// often lost to ranks that copy much, and sleeping costs little.
    Waiting& brief_waiting() noexcept { return brief_waiting_; }
    Waiting& background_waiting() noexcept { return background_waiting_; }

    /// A scope in which the calling thread drives, so that the progress thread need not.
    class Scope {
     public:
        explicit Scope(Driver& driver) : driver_(driver) { ++driver_.drivers_; }
        ~Scope();
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

     private:
        Driver& driver_;
    };

    enum class Waited { done, expired, interrupted };
    /// Drives until `done()`, a signal, or `limit`. It does not sleep beyond `deadline`, at which another check is due.
    Waited wait(const std::function<bool()>& done, const Deadline& limit, const Deadline& deadline) {
        return wait(done, limit, deadline, waiting_);
    }
    /// The same, in the way of `waiting`, which learns from it.
    Waited wait(const std::function<bool()>& done, const Deadline& limit, const Deadline& deadline, Waiting& waiting);
    /// Waits after the `idle`th consecutive turn without progress, for a thread that drives by itself: yields, or
    /// sleeps for `nap`.
    void pause(int idle, std::chrono::milliseconds nap);
    /// From now on the progress thread makes progress while no other thread waits: at once, or after a moment in which
    /// a caller that starts an operation can begin to wait for it.
    enum class Start { at_once, after_a_moment };
    void drive_in_background(Start start = Start::after_a_moment);
    /// Whether the system could not create the progress thread.
    bool lacks_thread() const noexcept { return lacks_thread_; }
    /// Any thread: ends a sleep of the thread that drives. News come over sockets, and a rank may sleep in memory,
    /// where only its neighbours ring.
    void wake() noexcept;
    bool is_own_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
    /// Ends the progress thread.
    void stop();

 private:
    Waiting::Turn turn(const Waiting& waiting, int idle);
    void sleep(std::chrono::milliseconds limit, const std::function<bool()>& done);
    void doze();
    void start_thread();
    void run_thread();
    void unpark();
    bool park();  ///< false: there is nothing to drive

    const std::string group_;
    const int niceness_;
    Driven* driven_ = nullptr;
    const transport::Neighbours* neighbours_ = nullptr;
    Waiting waiting_, brief_waiting_;  // for calling threads
    Waiting background_waiting_;       // for the progress thread
    std::atomic<int> drivers_{0};
    std::atomic<bool> asleep_{false};  // a thread of this rank is in sleep(), and uses the two below
    std::vector<transport::Pollable> sockets_;
    std::vector<pollfd> entries_;
    // Where the progress thread waits while there is nothing to do, or another thread drives.
    std::mutex parking_mutex_;
    std::condition_variable unparked_;
    std::atomic<bool> parked_{false};
    std::atomic<bool> work_waits_{false}, work_is_urgent_{false};
    UniqueFd wake_;                    // ends a doze; made with the progress thread
    std::atomic<bool> dozing_{false};  // the progress thread is in doze()
    std::atomic<bool> stopping_{false};
    std::atomic<bool> lacks_thread_{false};
    std::mutex starting_;
    std::thread thread_;
};

}  // namespace tutti::detail
