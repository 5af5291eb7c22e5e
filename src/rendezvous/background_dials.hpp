// BackgroundDials: connects new lifelines (connections to neighbours in the tree) in the background, with a thread for
// each, so that the rank's service thread can continue.
//
// Threads: one at a time calls the methods; the background threads call `attach` and `on_end`.
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
    /// Makes a lifeline to a rank (Dialer::attach), from any thread. Throws DistError if it cannot be made before the
    /// deadline, or when the flag is raised.
    using Attach = std::function<security::Connection(int rank, const Deadline& deadline, const AbortFlag* abort)>;
    /// `on_end`: called by the attempt's thread when take() can return its result.
    BackgroundDials(Attach attach, std::function<void()> on_end);
    ~BackgroundDials();
    BackgroundDials(const BackgroundDials&) = delete;
    BackgroundDials& operator=(const BackgroundDials&) = delete;

    /// Throws DistBackendError if no thread can be started.
    void start(const Dial& dial);
    struct Result {
        Dial dial;
        security::Connection connection{};  ///< none: it failed
        DialFailure failure = DialFailure::silent;
    };
    /// The results of the attempts that have ended since the last call.
    std::vector<Result> take();
    /// Ends all attempts; take() then returns their results. After it, start() does nothing.
    void stop();

 private:
    struct Attempt;
    const Attach attach_;
    const std::function<void()> on_end_;
    AbortFlag stopped_;
    std::list<std::unique_ptr<Attempt>> attempts_;
};

}  // namespace tutti::rendezvous
