#include "rendezvous/background_dials.hpp"

#include "core/log.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

namespace tutti::rendezvous {

struct BackgroundDials::Attempt {
    Result result;
    std::atomic<bool> over{false};
    std::thread thread;

    void run(const Attach& attach, const AbortFlag& stopped) {
        const Instant start = Clock::now();
        try {
            result.connection = attach(result.dial.rank, Deadline::after(result.dial.limit, start), &stopped);
        } catch (const DistError& error) {
            TUTTI_DEBUG("no lifeline to rank {}: {}", result.dial.rank, error.what());
            if (Clock::now() - start < result.dial.limit) result.failure = DialFailure::refused;
        }
    }
};

BackgroundDials::BackgroundDials(Attach attach, std::function<void()> on_end)
    : attach_(std::move(attach)), on_end_(std::move(on_end)) {}

BackgroundDials::~BackgroundDials() {
    stop();
}

void BackgroundDials::start(const Dial& dial) {
    if (stopped_.raised()) return;
    Attempt& attempt = *attempts_.emplace_back(std::make_unique<Attempt>(Result{dial}));
    const auto end = [this, &attempt] {
        attempt.over.store(true, std::memory_order_release);
        on_end_();
    };
    try {
        attempt.thread =
            thread::start({"tutti-lifeline", "a new lifeline", [end](const auto&) { end(); }}, [this, &attempt, end] {
                attempt.run(attach_, stopped_);
                end();
            });
    } catch (const DistBackendError&) {
        attempts_.pop_back();
        throw;
    }
}

std::vector<BackgroundDials::Result> BackgroundDials::take() {
    std::vector<Result> results;
    std::erase_if(attempts_, [&](const auto& attempt) {
        if (!attempt->over.load(std::memory_order_acquire)) return false;
        if (attempt->thread.joinable()) attempt->thread.join();
        results.push_back(std::move(attempt->result));
        return true;
    });
    return results;
}

void BackgroundDials::stop() {
    stopped_.raise("this rank leaves");
    for (const auto& attempt : attempts_) {
        if (attempt->thread.joinable()) attempt->thread.join();
    }
}

}  // namespace tutti::rendezvous
