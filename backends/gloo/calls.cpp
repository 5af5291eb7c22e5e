#include "gloo/calls.hpp"

#include "common/ways.hpp"
#include "gloo/collectives.hpp"
#include "gloo/lanes.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace tutti::backends::gloo {
namespace {

// The least bytes of a piece that are worth a lane of their own.
constexpr std::uint64_t piece_bytes_min = 64 << 10;
bool can_be_cut(BackendCall call) {
    return call == BackendCall::broadcast || call == BackendCall::all_reduce || call == BackendCall::reduce;
}

// The part of such a request from an element on.
BackendRequest part_of(const BackendRequest& request, std::uint64_t at, std::uint64_t count) {
    BackendRequest part = request;
    const std::uint64_t offset = at * size_of(request.dtype);
    part.count = count;
    if (part.input != nullptr) part.input = static_cast<const std::byte*>(part.input) + offset;
    if (part.output != nullptr) part.output = static_cast<std::byte*>(part.output) + offset;
    return part;
}

}  // namespace

struct LaneCalls::Piece {
    BackendRequest request;
    std::shared_ptr<Outcome> outcome;
};

class LaneCalls::Lane {
 public:
    explicit Lane(std::shared_ptr<::gloo::Context> context) : context_(std::move(context)) {}

    static void start(const std::shared_ptr<Lane>& self) {
        const QuietPipes quiet;  // the thread inherits it
        self->thread_ = std::thread([self] { self->work(); });
    }
    void add(Piece piece) {
        const std::lock_guard lock(mutex_);
        pieces_.push_back(std::move(piece));
        changed_.notify_all();
    }
    void close() { close_connections(context_); }
    void stop() {
        std::unique_lock lock(mutex_);
        stops_ = true;
        changed_.notify_all();
        if (!thread_.joinable()) return;
        const bool has_ended = changed_.wait_for(lock, leaving_max, [&] { return has_ended_; });
        lock.unlock();
        if (has_ended)
            thread_.join();
        else
            thread_.detach();
    }

 private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stops_ || !pieces_.empty(); });
            if (stops_) break;
            const Piece piece = std::move(pieces_.front());
            pieces_.pop_front();
            lock.unlock();
            std::exception_ptr error;
            try {
                run_collective(piece.request, context_);
            } catch (...) {
                error = std::current_exception();
            }
            piece.outcome->over(error);
            lock.lock();
        }
        has_ended_ = true;
        changed_.notify_all();
    }

    const std::shared_ptr<::gloo::Context> context_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> pieces_;
    bool stops_ = false, has_ended_ = false;
    std::thread thread_;
};

LaneCalls::LaneCalls(const Lanes& lanes) {
    for (const auto& lane : lanes) {
        lanes_.push_back(std::make_shared<Lane>(lane));
        Lane::start(lanes_.back());
    }
}

LaneCalls::~LaneCalls() {
    for (const auto& lane : lanes_) lane->stop();
}

std::unique_ptr<transport::LibraryCall> LaneCalls::begin(const BackendRequest& request) {
    count(Way::native);
    const std::uint64_t n = lanes_.size();
    const bool is_cut =
        n > 1 && can_be_cut(request.call) && request.count * size_of(request.dtype) / n >= piece_bytes_min;
    const auto outcome = std::make_shared<Outcome>(is_cut ? static_cast<int>(n) : 1);
    auto call = std::make_unique<OutcomeCall>(outcome, [lanes = lanes_] {
        for (const auto& lane : lanes) lane->close();
    });
    if (!is_cut) {
        lanes_[next_++ % n]->add({request, outcome});
        return call;
    }
    for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t at = request.count * i / n;
        lanes_[i]->add({part_of(request, at, request.count * (i + 1) / n - at), outcome});
    }
    return call;
}

}  // namespace tutti::backends::gloo
