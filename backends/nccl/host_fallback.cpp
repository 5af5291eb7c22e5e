#include "nccl/host_fallback.hpp"

#include "nccl/host_request.hpp"
#include "nccl/join.hpp"
#include "nccl/pinned.hpp"
#include "nccl/with_title.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {
namespace {

// Long enough that copies and messages run at full speed, short enough that the first piece's copy, beside which
// nothing runs, is a small part of the whole.
constexpr std::size_t piece_bytes = std::size_t{4} << 20;
constexpr std::size_t pieces_at_once = 4;
// The pause between queries of the device, which does not notify of reached events.
constexpr std::chrono::microseconds shortest_pause{20}, longest_pause{200};
// The time in which a failed operation's copies and messages may end before its memory is left to them.
constexpr std::chrono::seconds time_to_settle{2};

}  // namespace

class HostFallback::Core : public std::enable_shared_from_this<Core> {
 public:
    explicit Core(std::shared_ptr<Context> context) : context_(std::move(context)) {}

    void start() {
        thread_ = std::thread([self = shared_from_this()] { self->work(); });
        context_->when_over([weak = weak_from_this()](const std::exception_ptr& error) {
            if (const auto self = weak.lock()) self->end(error);
        });
    }

    void run(const BackendRequest& request, BackendCompletion completion) {
        auto job = std::make_shared<Job>(request, std::move(completion));
        job->deadline = context_->deadline_of(request);
        job->host_memory = request.device.type == Device::Type::cpu || request.call == BackendCall::barrier;
        if (!job->host_memory) {
            const Place& place = context_->place(request.device);
            const CurrentDevice current(*place.driver, place.device.index);
            job->place = &place;
            job->before = place.events->record(request.stream.handle);
            job->pieces = cut(request, context_->rank(), context_->size(), piece_bytes);
        }
        bool at_once = false;
        std::exception_ptr error;
        {
            const std::lock_guard lock(mutex_);
            error = error_;
            if (!error) {
                // No other thread begins a collective meanwhile.
                at_once = job->host_memory && not_begun_ == 0;
                ++open_;
                ++not_begun_;
                if (!at_once) queue_.push_back(job);
            }
        }
        if (error)
            job->completion.failure(error);
        else if (at_once)
            begin_in_place(job);
        else
            wake();
    }

    bool drain(Clock::time_point until) {
        std::unique_lock lock(mutex_);
        return changed_.wait_until(lock, until, [&] { return open_ == 0; });
    }

    void stop() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
            if (open_ > 0 && !error_) {
                error_ = std::make_exception_ptr(
                    Aborted(context_->title() + ": the group was destroyed while operations were under way"));
            }
        }
        wake();
        backends::join(thread_);
    }

 private:
    // One operation.
    struct Job {
        Job(const BackendRequest& r, BackendCompletion c) : request(r), completion(std::move(c)) {}
        const BackendRequest& request;
        const BackendCompletion completion;
        Clock::time_point deadline{};
        bool host_memory = false;       // or no buffers: the host group does the whole operation
        const Place* place = nullptr;   // this and the rest: for device memory
        std::shared_ptr<Event> before;  // in the caller's stream
        bool may_begin = false;         // the device has reached `before`
        std::vector<Piece> pieces;
        std::size_t begun = 0;
        bool writes = false;  // a piece has copied something back
    };
    // The steps of a piece.
    enum class Stage { copied_in, at_work, copied_back };
    struct OperationsInFlight {
        std::shared_ptr<Job> job;
        Piece* piece = nullptr;
        bool is_last = false;
        Memory memory{};
        Stage stage = Stage::copied_in;
        std::shared_ptr<Event> copied{};  // the end of its last copies; null: no copies
        Work work{};
    };
    struct Lines {
        Lines(const Place& place)
            : in(place.driver, place.device.index, false),
              back(place.driver, place.device.index, false),
              memory(PinnedMemory::of(place.driver)) {}
        OwnStream in, back;
        std::shared_ptr<PinnedMemory> memory;
    };

    // ---- Host memory: the host group does the whole operation.

    void begin_in_place(const std::shared_ptr<Job>& job) {
        Work work;
        try {
            work = start_on_host_group(context_->host_group(), job->request);
        } catch (...) {
            begun();
            return over(*job, described(*job, std::current_exception()));
        }
        begun();
        work.get_future().add_done_callback([self = shared_from_this(), job, work](const auto&) {
            const std::exception_ptr error = work.exception();
            self->over(*job, error ? self->described(*job, error) : nullptr);
        });
    }

    // ---- The thread

    void work() {
        for (;;) {
            bool moved = false;
            try {
                {
                    const std::lock_guard lock(mutex_);
                    woken_ = false;
                    for (auto& job : queue_) jobs_.push_back(std::move(job));
                    queue_.clear();
                    if (!error_ && stopping_ && open_ == 0) return;
                }
                if (const auto error = ended_with()) return settle(error);
                moved = advance();
            } catch (...) {
                const auto error = described(*at_, std::current_exception());
                context_->fail(error);  // calls end(), perhaps later, if another failure came first
                end(context_->error());
                continue;
            }
            if (moved)
                pause_ = shortest_pause;
            else
                rest();
        }
    }

    bool advance() {
        bool moved = begin_pieces();
        moved |= start_collectives();
        moved |= copy_back();
        moved |= end_pieces();
        at_ = nullptr;  // the job may hold the last handle of the group
        return moved;
    }

    bool begin_pieces() {
        bool moved = false;
        while (!jobs_.empty() && flights_.size() < pieces_at_once) {
            const std::shared_ptr<Job> job = at_ = jobs_.front();
            if (job->host_memory) {
                if (std::ranges::any_of(flights_,
                                        [](const OperationsInFlight& f) { return f.stage == Stage::copied_in; }))
                    break;
                jobs_.pop_front();
                begin_in_place(job);
            } else {
                job->may_begin = job->may_begin || reached(*job, *job->before);
                if (!job->may_begin) break;
                begin_piece(job);
                if (job->begun == job->pieces.size()) jobs_.pop_front();
            }
            moved = true;
        }
        return moved;
    }

    void begin_piece(const std::shared_ptr<Job>& job) {
        Lines& lines = lines_of(*job->place);
        OperationsInFlight flight{.job = job, .piece = &job->pieces[job->begun++]};
        flight.is_last = job->begun == job->pieces.size();
        flight.memory = lines.memory->take(flight.piece->bytes);
        flight.piece->place(flight.memory.data());
        // The flight is in the list before any copy, so that its memory survives a failure here.
        OperationsInFlight& listed = flights_.emplace_back(std::move(flight));
        const Driver& driver = *job->place->driver;
        for (const Piece::Copy& copy : listed.piece->in)
            driver.copy(listed.memory.data() + copy.at, copy.device, copy.bytes, lines.in.handle());
        if (!listed.piece->in.empty()) listed.copied = job->place->events->record(lines.in.handle());
    }

    // Starts them in the order of the pieces, which is equal on all ranks.
    bool start_collectives() {
        bool moved = false;
        for (OperationsInFlight& flight : flights_) {
            if (flight.stage != Stage::copied_in) continue;
            at_ = flight.job;
            if (flight.copied && !reached(*flight.job, *flight.copied)) break;
            flight.work = start_on_host_group(context_->host_group(), flight.piece->request);
            flight.stage = Stage::at_work;
            flight.work.get_future().add_done_callback([self = shared_from_this()](const auto&) { self->wake(); });
            if (flight.is_last) begun();
            moved = true;
        }
        return moved;
    }

    bool copy_back() {
        bool moved = false;
        for (OperationsInFlight& flight : flights_) {
            if (flight.stage == Stage::copied_back) continue;
            at_ = flight.job;
            if (flight.stage == Stage::copied_in || !flight.work.is_completed()) break;
            if (const auto error = flight.work.exception()) std::rethrow_exception(error);
            Job& job = *flight.job;
            const Lines& lines = lines_of(*job.place);
            flight.stage = Stage::copied_back;
            flight.copied = nullptr;
            for (const Piece::Copy& copy : flight.piece->out)
                job.place->driver->copy(copy.device, flight.memory.data() + copy.at, copy.bytes, lines.back.handle());
            job.writes = job.writes || !flight.piece->out.empty();
            if (!flight.piece->out.empty() || (flight.is_last && job.writes))
                flight.copied = job.place->events->record(lines.back.handle());
            // Its stream holds the other pieces' copies before it.
            if (flight.is_last && flight.copied) job.completion.enqueued(flight.copied);
            moved = true;
        }
        return moved;
    }

    bool end_pieces() {
        bool moved = false;
        while (!flights_.empty()) {
            OperationsInFlight& flight = flights_.front();
            if (flight.stage != Stage::copied_back) break;
            at_ = flight.job;
            if (flight.copied && !reached(*flight.job, *flight.copied)) break;
            lines_of(*flight.job->place).memory->give_back(std::move(flight.memory));
            const std::shared_ptr<Job> job = flight.is_last ? flight.job : nullptr;
            flights_.pop_front();
            if (job) over(*job, nullptr);
            moved = true;
        }
        return moved;
    }

    bool reached(const Job& job, const Event& event) const {
        if (event.reached()) return true;
        if (Clock::now() < job.deadline) return false;
        throw Timeout(to_string(job.request.device) + " has not come to its copies within " +
                          std::to_string(context_->timeout_of(job.request).count()) + " ms",
                      {.operation = job.request.name, .sequence = job.request.sequence, .rank = context_->rank()});
    }

    Lines& lines_of(const Place& place) {
        auto& lines = lines_[&place];
        if (!lines) {
            place.driver->use(place.device.index);
            lines = std::make_unique<Lines>(place);
        }
        return *lines;
    }

    // ---- Waiting

    void wake() {
        const std::lock_guard lock(mutex_);
        woken_ = true;
        changed_.notify_all();
    }

    bool waits_for_device() const {
        if (!jobs_.empty() && !jobs_.front()->may_begin && !jobs_.front()->host_memory &&
            flights_.size() < pieces_at_once)
            return true;
        return std::ranges::any_of(flights_, [](const OperationsInFlight& f) { return f.stage != Stage::at_work; });
    }

    void rest() {
        const bool asks = waits_for_device();
        std::unique_lock lock(mutex_);
        if (asks) {
            changed_.wait_for(lock, pause_, [&] { return woken_; });
            pause_ = std::min(2 * pause_, longest_pause);
        } else {
            changed_.wait(lock, [&] { return woken_; });
            pause_ = shortest_pause;
        }
    }

    // ---- Ends

    std::exception_ptr ended_with() const {
        const std::lock_guard lock(mutex_);
        return error_;
    }

    void end(const std::exception_ptr& error) {
        {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = error;
        }
        wake();
    }

    // All pieces of an operation are with the host group.
    void begun() {
        const std::lock_guard lock(mutex_);
        --not_begun_;
    }

    // The job stops counting before its caller learns of its end: the caller may end the group at once.
    void over(const Job& job, const std::exception_ptr& error) {
        {
            const std::lock_guard lock(mutex_);
            --open_;
            changed_.notify_all();
        }
        if (!error) return job.completion.success();
        context_->fail(error);
        job.completion.failure(context_->error());
    }

    // Fails the remaining operations, when nothing touches their buffers any more.
    void settle(const std::exception_ptr& error) {
        bool is_busy = false;
        {
            const std::lock_guard lock(mutex_);
            for (auto& job : queue_) jobs_.push_back(std::move(job));
            queue_.clear();
            is_busy = open_ > 0;
        }
        if (is_busy) end_companion(error);
        const bool all_ended = wait_for_the_end(Clock::now() + time_to_settle);
        std::vector<std::shared_ptr<Job>> open, good;
        for (OperationsInFlight& flight : flights_) {
            if (all_ended)
                lines_of(*flight.job->place).memory->give_back(std::move(flight.memory));
            else
                new Memory(std::move(flight.memory));  // leaked: a copy or message may still write to it
            if (all_ended && flight.stage == Stage::copied_back && flight.is_last)
                good.push_back(flight.job);
            else if (open.empty() || open.back() != flight.job)
                open.push_back(flight.job);
        }
        for (auto& job : jobs_) {
            if (open.empty() || open.back() != job) open.push_back(std::move(job));
        }
        flights_.clear();
        jobs_.clear();
        at_ = nullptr;
        for (const auto& job : good) std::erase(open, job);
        for (const auto& job : good) over(*job, nullptr);
        for (const auto& job : open) over(*job, error);
    }

    void end_companion(const std::exception_ptr& error) const noexcept {
        try {
            ProcessGroup host_group = context_->host_group();
            host_group.abort(text_of(error));
        } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it is over already
        }
    }

    // Waits until collectives and copies have ended.
    bool wait_for_the_end(Clock::time_point until) noexcept {
        std::vector<std::shared_ptr<Event>> ends;
        for (const auto& [place, lines] : lines_) {
            for (const OwnStream* stream : {&lines->in, &lines->back}) {
                try {
                    ends.push_back(place->events->record(stream->handle()));
                } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a device that fails does not copy
                }
            }
        }
        const auto has_ended = [](const Event& event) {
            try {
                return event.reached();
            } catch (const std::exception&) {
                return true;
            }
        };
        for (;;) {
            const bool over = std::ranges::all_of(ends, [&](const auto& event) { return has_ended(*event); }) &&
                              std::ranges::all_of(flights_, [](const OperationsInFlight& f) {
                                  return !f.work || f.work.is_completed();
                              });
            if (over) return true;
            if (Clock::now() > until) return false;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    std::exception_ptr described(const Job& job, const std::exception_ptr& error) const {
        return with_title(context_->title(), Context::what(job.request) + ", by host memory", error);
    }

    const std::shared_ptr<Context> context_;
    std::thread thread_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::exception_ptr error_;
    bool stopping_ = false, woken_ = false;
    std::size_t open_ = 0;       // operations that are not complete
    std::size_t not_begun_ = 0;  // of these, the ones with a piece that is not with the host group yet
    std::vector<std::shared_ptr<Job>> queue_;

    // The thread's alone.
    std::deque<std::shared_ptr<Job>> jobs_;  // the ones with a piece that is not in flight yet
    std::deque<OperationsInFlight> flights_;
    std::shared_ptr<Job> at_;  // the job in work, which a failure belongs to
    std::map<const Place*, std::unique_ptr<Lines>> lines_;
    std::chrono::microseconds pause_ = shortest_pause;
};

HostFallback::HostFallback(std::shared_ptr<Context> context) : core_(std::make_shared<Core>(std::move(context))) {
    core_->start();
}
HostFallback::~HostFallback() {
    core_->stop();
}
void HostFallback::run(const BackendRequest& request, BackendCompletion completion) {
    core_->run(request, std::move(completion));
}
bool HostFallback::drain(Clock::time_point until) {
    return core_->drain(until);
}

}  // namespace tutti::nccl
