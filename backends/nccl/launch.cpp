#include "nccl/launch.hpp"

#include "common/ways.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr std::size_t most_scratch = std::size_t{256} << 20;  // a larger one is for the operation alone
constexpr std::size_t scratch_alignment = 256;
constexpr int units_of_a_group = calls_of_a_group / Task::calls_of_a_unit;

std::size_t aligned(std::size_t bytes) {
    return (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
}

// The memory and request that an operation needs until its end.
std::shared_ptr<void> keep(std::vector<Memory> memory, const std::shared_ptr<const BackendRequest>& request) {
    if (memory.empty() && !request) return nullptr;
    return std::make_shared<std::pair<std::vector<Memory>, std::shared_ptr<const BackendRequest>>>(std::move(memory),
                                                                                                   request);
}

// Graphs have a stream of their own, as other operations may come during a capture.
Driver::StreamHandle stream_for(const Context& context, Channel& channel, bool is_captured) {
    if (!is_captured) return channel.stream->handle();
    if (!channel.captured_stream) {
        channel.captured_stream = std::make_unique<OwnStream>(channel.place->driver, channel.place->device.index,
                                                              context.nccl_options().is_high_priority_stream);
    }
    return channel.captured_stream->handle();
}

}  // namespace

Launch::Launch(Context& context, Channel& channel, std::span<const Job> jobs)
    : context_(context),
      channel_(channel),
      driver_(*channel.place->driver),
      jobs_(jobs),
      tasks_(std::move(channel.spare_tasks)),
      is_captured_(jobs.front().is_captured),
      stream_(stream_for(context, channel, is_captured_)) {
    tasks_.reserve(jobs_.size());
    for (const Job& job : jobs_)
        tasks_.emplace_back(*job.request, context.rank(), context.size(), job.reduction, channel.agreed);
    needs_group_ = tasks_.size() > 1 || !tasks_.front().is_one_call();
}

std::string Launch::what() const {
    const std::string first = Context::what(*jobs_.front().request);
    return jobs_.size() == 1 ? first : first + " and " + std::to_string(jobs_.size() - 1) + " more in a group";
}

// The caller's streams come first, then the copies, one after the other in the channel's stream.
void Launch::prepare() {
    Stream last{};
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        const Stream stream = jobs_[i].request->stream;
        if (i == 0 || stream != last) channel_.place->events->order(stream.handle, stream_);
        last = stream;
    }
    const auto bytes =
        std::accumulate(tasks_.begin(), tasks_.end(), std::size_t{0},
                        [](std::size_t sum, const Task& task) { return sum + aligned(task.scratch_bytes()); });
    std::byte* scratch = channel_.scratch.data();
    if (bytes > channel_.scratch.bytes()) {
        const bool stays = bytes <= most_scratch;
        Memory more(channel_.place->driver, channel_.place->device.index, stays ? std::bit_ceil(bytes) : bytes);
        scratch = more.data();
        if (stays) std::swap(more, channel_.scratch);  // earlier operations under way may use the old one
        kept_.push_back(std::move(more));
    }
    for (Task& task : tasks_) {
        task.prepare(driver_, stream_, scratch);
        scratch += aligned(task.scratch_bytes());
        if (task.needs_operator()) task.make_operator(*channel_.communicator, what());
    }
    prepared_ = true;
}

bool Launch::is_issued() {
    while (task_ < tasks_.size() && unit_ == tasks_[task_].units()) ++task_, unit_ = 0;
    return task_ == tasks_.size();
}

// Issues as many units as a group takes.
Result Launch::issue_cut(Comm comm) {
    const Interface& calls = context_.library()->calls();
    Result worst = Result::success;
    const auto note = [&](Result result, const char* call) {
        if (result == Result::success || (worst != Result::success && worst != Result::in_progress)) return;
        worst = result;
        call_ = call;
    };
    if (needs_group_) note(calls.GroupStart(), "GroupStart");
    for (int issued = 0; issued < units_of_a_group && !is_issued(); ++issued) {
        Task& task = tasks_[task_];
        const Result result = task.issue(unit_++, calls, comm, stream_);  // task.call() names the library's function
        note(result, task.call());
    }
    if (needs_group_) note(calls.GroupEnd(), "GroupEnd");
    return worst;
}

Launch::State Launch::go(May may) {
    const CurrentDevice current(driver_, channel_.place->device.index);
    Communicator& communicator = *channel_.communicator;
    for (;;) {
        {
            const Communicator::Use use(communicator);
            if (!prepared_) prepare();
            while (pending_ == Result::success && !is_issued()) {
                pending_ = issue_cut(use.handle());
                if (pending_ != Result::success) communicator.check(pending_, call_, what());
            }
            if (pending_ == Result::success) {
                finish();
                return State::begun;
            }
        }
        // The capture may be over before another thread would go on.
        if (may == May::not_block && !is_captured_) return State::waits;
        communicator.finish(std::exchange(pending_, Result::success), call_, what(),
                            context_.timeout_of(*jobs_.front().request));
    }
}

std::shared_ptr<Event> Launch::record_end() {
    if (!is_captured_) return channel_.place->events->record(stream_);
    auto end = std::make_shared<Event>(channel_.place->driver, channel_.place->device.index);
    end->record_captured(stream_);
    return end;
}

void Launch::finish() {
    for (Task& task : tasks_) {
        task.drop_operator(*channel_.communicator);
        task.finish(driver_, stream_);
        if (task.units() > 0) backends::count(task.is_native() ? backends::Way::native : backends::Way::composed);
    }
    tasks_.clear();
    channel_.spare_tasks = std::move(tasks_);
    if (!driver_.has_streams()) {  // the operations are done
        for (const Job& job : jobs_) job.completion.success();
        return;
    }
    const auto end = record_end();
    for (const Job& job : jobs_) {
        const auto timeout = context_.timeout_of(*job.request);
        const bool is_last = &job == &jobs_.back();
        // A barrier blocks its caller until the device has reached its end; for other operations only the stream waits.
        context_.watcher().watch({.completion = job.completion,
                                  .end = end,
                                  .communicator = channel_.communicator,
                                  .what = [request = job.request] { return Context::what(*request); },
                                  .deadline = is_captured_ ? Clock::time_point::max() : Clock::now() + timeout,
                                  .timeout = timeout,
                                  .kept = keep(is_last ? std::move(kept_) : std::vector<Memory>(), job.own)},
                                 job.request->call == BackendCall::barrier ? Watcher::Told::no : Watcher::Told::yes);
    }
}

}  // namespace tutti::nccl
