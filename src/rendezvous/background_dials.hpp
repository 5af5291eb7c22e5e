// BackgroundDials: lifelines that this rank wants while its service thread goes on: each is made by a thread of its
// own.
//
// Threads: one at a time; its own threads make connections and ring.
#pragma once

#include "core/interrupt.hpp"
#include "rendezvous/dialer.hpp"
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
    /// `on_end`: in the thread of an attempt, when take() brings its result. The dialer must outlive it.
    BackgroundDials(const Dialer& dialer, std::function<void()> on_end);
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
    const Dialer& dialer_;
    const std::function<void()> on_end_;
    AbortFlag stopped_;
    std::list<std::unique_ptr<Attempt>> attempts_;
};

}  // namespace tutti::rendezvous
