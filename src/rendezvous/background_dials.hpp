// BackgroundDials: lifelines that this rank wants while its service thread goes on: each is made by a thread of its
// own.
//
// Threads: one at a time; its own threads make connections and ring.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "rendezvous/lifelines.hpp"
#include "security/wire.hpp"

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::rendezvous {

class BackgroundDials {
 public:
    /// Makes a lifeline to a rank (Dialer::attach), from any thread. Throws DistError where there is none to be had
    /// before the deadline, and when the flag is raised.
    using Attach = std::function<security::Connection(int rank, const Deadline& deadline, const AbortFlag* abort)>;
    /// `on_end`: in the thread of an attempt, when take() brings its result.
    BackgroundDials(Attach attach, std::function<void()> on_end);
    ~BackgroundDials();
    BackgroundDials(const BackgroundDials&) = delete;
    BackgroundDials& operator=(const BackgroundDials&) = delete;

    /// Throws DistBackendError where no thread can be had.
    void start(const Dial& dial);
    struct Result {
        Dial dial;
        security::Connection connection{};  ///< none: it failed
        DialFailure failure = DialFailure::silent;
    };
    /// Of attempts that are over, since the last call.
    std::vector<Result> take();
    /// Ends all attempts; take() brings those that were through. None begins any more.
    void stop();

 private:
    struct Attempt;
    const Attach attach_;
    const std::function<void()> on_end_;
    AbortFlag stopped_;
    std::list<std::unique_ptr<Attempt>> attempts_;
};

}  // namespace tutti::rendezvous
