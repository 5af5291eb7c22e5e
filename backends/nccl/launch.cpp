#include "nccl/launch.hpp"

#include "shared/ways.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

namespace tutti::nccl {
namespace {

constexpr std::size_t most_scratch = std::size_t{256} << 20;  // more is taken for the operation alone
constexpr std::size_t alignment = 256;
constexpr int units_of_a_group = calls_of_a_group / Task::calls_of_a_unit;

std::size_t aligned(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

std::shared_ptr<void> keep(std::vector<Memory> memory) {
    return memory.empty() ? nullptr : std::make_shared<std::vector<Memory>>(std::move(memory));
}

std::optional<NativeReduction> reduction_of(const BackendRequest& request, const Library& library) {
    if (request.call != BackendCall::all_reduce && request.call != BackendCall::reduce &&
        request.call != BackendCall::reduce_scatter)
        return std::nullopt;
    return native_reduction(request.op, request.dtype, library.abilities());
}

}  // namespace

Launch::Launch(Context& context, Channel& channel, std::span<const Job> jobs)
    : context_(context),
      channel_(channel),
      driver_(*channel.place->driver),
      stream_(channel.stream->handle()),
      jobs_(jobs) {
    tasks_.reserve(jobs_.size());
    for (const Job& job : jobs_) {
        tasks_.emplace_back(*job.request, context.rank(), context.size(),
                            reduction_of(*job.request, *context.library()), channel.agreed.gathers);
    }
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
    is_captured_ = driver_.has_streams() && driver_.is_capturing(last.handle);
    if (is_captured_ && bytes > 0) {
        throw DistBackendError(context_.title() + ": " + what() +
                               ": it brings blocks together in memory that a graph cannot keep: expected, while a "
                               "graph is captured, no barrier, blocks of one length, and tensors that adjoin");
    }
    if (bytes > channel_.scratch.bytes()) {
        const bool stays = bytes <= most_scratch;
        Memory more(channel_.place->driver, channel_.place->device.index, stays ? std::bit_ceil(bytes) : bytes);
        scratch = more.data();
        if (stays) std::swap(more, channel_.scratch);  // what is under way before this may use the old one
        kept_.push_back(std::move(more));
    }
    for (Task& task : tasks_) {
        task.prepare(driver_, stream_, scratch);
        scratch += aligned(task.scratch_bytes());
        if (task.needs_operator()) task.make_operator(*channel_.communicator, what());
    }
    prepared_ = true;
}

// As many units as a group takes.
Result Launch::issue_cut(Comm comm) {
    const Interface& calls = context_.library()->calls();
    Result worst = Result::success;
    const auto note = [&](Result result, const char* call) {
        if (result == Result::success || (worst != Result::success && worst != Result::in_progress)) return;
        worst = result;
        call_ = call;
    };
    if (needs_group_) note(calls.GroupStart(), "GroupStart");
    for (int issued = 0; issued < units_of_a_group && task_ < tasks_.size();) {
        Task& task = tasks_[task_];
        if (unit_ == task.units()) {
            ++task_;
            unit_ = 0;
            continue;
        }
        const Result result = task.issue(unit_, calls, comm, stream_);  // which says what it has called
        note(result, task.call());
        ++unit_;
        ++issued;
    }
    if (needs_group_) note(calls.GroupEnd(), "GroupEnd");
    return worst;
}

Launch::State Launch::go(May may) {
    const CurrentDevice current(driver_, channel_.place->device.index);
    Communicator& communicator = *channel_.communicator;
    const auto timeout = context_.timeout_of(*jobs_.front().request);
    if (!prepared_) {
        const Communicator::Use use(communicator);
        prepare();
    }
    for (;;) {
        if (pending_ == Result::in_progress) {
            if (may == May::not_block) return State::waits;
            communicator.finish(std::exchange(pending_, Result::success), call_, what(), timeout);
        }
        while (task_ < tasks_.size() && unit_ == tasks_[task_].units()) ++task_, unit_ = 0;
        if (task_ == tasks_.size()) break;
        const Communicator::Use use(communicator);
        pending_ = issue_cut(use.handle());
        communicator.check(pending_, call_, what());
    }
    const Communicator::Use use(communicator);
    finish();
    return State::begun;
}

void Launch::finish() {
    for (Task& task : tasks_) {
        task.drop_operator(*channel_.communicator);
        task.finish(driver_, stream_);
        if (task.units() > 0) backends::count(task.is_native() ? backends::Way::native : backends::Way::composed);
    }
    if (!driver_.has_streams()) {  // it has been carried out
        for (const Job& job : jobs_) job.completion.success();
        return;
    }
    const auto end = channel_.place->events->record(stream_);
    if (is_captured_) {  // there is nothing to be watched: it runs with its graph
        for (const Job& job : jobs_) {
            job.completion.enqueued(end);
            job.completion.success();
        }
        return;
    }
    for (const Job& job : jobs_) {
        const auto timeout = context_.timeout_of(*job.request);
        const bool is_last = &job == &jobs_.back();
        // A barrier blocks its caller until the device has reached its end; of others only the stream waits.
        context_.watcher().watch({.completion = job.completion,
                                  .end = end,
                                  .communicator = channel_.communicator,
                                  .what = Context::what(*job.request),
                                  .deadline = Clock::now() + timeout,
                                  .timeout = timeout,
                                  .kept = is_last ? keep(std::move(kept_)) : nullptr},
                                 job.request->call == BackendCall::barrier ? Watcher::Told::no : Watcher::Told::yes);
    }
}

}  // namespace tutti::nccl
