#include "group_call.hpp"

#include "background.hpp"
#include "launch.hpp"
#include "of_thread.hpp"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti::nccl_library {
namespace {

// Jobs of one communicator run in the order of the calls, which is the same on all ranks; those of different ones side
// by side. Each lane has the numbers of its jobs.
std::vector<std::vector<std::size_t>> lanes_of(const std::vector<Job>& jobs) {
    std::vector<std::vector<std::size_t>> lanes;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const auto shares = [&](std::size_t other) {
            return std::ranges::find_first_of(jobs[i].communicators, jobs[other].communicators) !=
                   jobs[i].communicators.end();
        };
        const auto lane =
            std::ranges::find_if(lanes, [&](const auto& one) { return std::ranges::any_of(one, shares); });
        if (lane == lanes.end())
            lanes.push_back({i});
        else
            lane->push_back(i);
    }
    return lanes;
}

}  // namespace

GroupCall& GroupCall::of_this_thread() {
    return of_thread<GroupCall>();
}

GroupCall::~GroupCall() {
    clear();
}

ncclResult_t GroupCall::end() {
    if (depth_ == 0) fail(ncclInvalidUsage, "no group is open in this thread: expected ncclGroupStart before it");
    if (--depth_ > 0) return ncclSuccess;
    return finish();
}

double GroupCall::simulate_end() {
    if (depth_ == 0) fail(ncclInvalidUsage, "no group is open in this thread: expected ncclGroupStart before it");
    if (--depth_ > 0) fail(ncclInvalidUsage, "the group is inside of another one: expected the outermost");
    try {
        if (failure_) throw Failure(*failure_);
        if (!jobs_.empty()) fail(ncclInvalidUsage, "the group makes communicators: expected operations only");
        double all = 0;
        for (const Batch& batch : collected()) {
            double of_communicator = 0;
            for (const Operation& operation : batch.operations) {
                of_communicator += predicted_us(operation, *batch.communicator);
            }
            all = std::max(all, of_communicator);
        }
        clear();
        return all;
    } catch (...) {
        drop();
        throw;
    }
}

ncclResult_t GroupCall::add(Job job) {
    jobs_.push_back(std::move(job));
    return depth_ > 0 ? ncclSuccess : finish();
}

ncclResult_t GroupCall::add(const std::shared_ptr<Communicator>& communicator, const Operation& operation) {
    communicator->enter_group(std::this_thread::get_id());
    operations_.emplace_back(communicator, operation);
    return depth_ > 0 ? ncclSuccess : finish();
}

void GroupCall::note(const Failure& failure) {
    if (depth_ > 0 && !failure_) failure_ = failure;
}

std::vector<Batch> GroupCall::collected() {
    std::vector<Batch> batches;
    for (auto& [communicator, operation] : operations_) {
        const auto same = [&](const Batch& one) { return one.communicator == communicator; };
        auto batch = std::ranges::find_if(batches, same);
        if (batch == batches.end()) batch = batches.insert(batch, {communicator, {}});
        batch->operations.push_back(operation);
    }
    for (const Batch& batch : batches) {
        check_own_messages(batch.operations, *batch.communicator);
        if (batch.communicator->settings().blocking == batches.front().communicator->settings().blocking) continue;
        fail(ncclInvalidArgument, batches.front().communicator->describe(), " and ", batch.communicator->describe(),
             " are in one group, and only one of them blocks: expected config.blocking to be the same");
    }
    return batches;
}

ncclResult_t GroupCall::finish() {
    try {
        if (failure_) throw Failure(*failure_);
        std::vector<Batch> batches = collected();
        std::vector<Job> jobs = std::move(jobs_);
        clear();
        const ncclResult_t made = jobs.empty() ? ncclSuccess : run(std::move(jobs));
        const ncclResult_t launched = batches.empty() ? ncclSuccess : launch(std::move(batches));
        return made == ncclSuccess ? launched : made;
    } catch (...) {
        drop();
        throw;
    }
}

ncclResult_t GroupCall::run(std::vector<Job> jobs) {
    const bool blocking = jobs.front().blocking;
    for (const Job& job : jobs) {
        if (job.blocking == blocking) continue;
        for (const Job& one : jobs) one.undo();
        fail(ncclInvalidArgument,
             "communicators are made in one group, and only some block: expected config.blocking to be the same");
    }
    if (!blocking) {
        for (const auto& lane : lanes_of(jobs)) {
            std::vector<std::shared_ptr<Communicator>> communicators;
            std::vector<std::function<void()>> works;
            for (const std::size_t i : lane) {
                for (const auto& one : jobs[i].communicators) {
                    if (std::ranges::find(communicators, one) == communicators.end()) communicators.push_back(one);
                }
                works.push_back(std::move(jobs[i].run));
            }
            run_in_background(std::move(communicators), [works = std::move(works)] {
                for (const auto& work : works) {
                    try {
                        work();
                    } catch (...) {
                        remember(as_failure(std::current_exception()));  // the communicators know it
                    }
                }
            });
        }
        return ncclInProgress;
    }
    std::vector<std::exception_ptr> errors(jobs.size());
    const std::vector<std::vector<std::size_t>> lanes = lanes_of(jobs);
    const auto run_lane = [&](std::size_t lane) {
        for (const std::size_t i : lanes[lane]) {
            try {
                jobs[i].run();
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    std::vector<std::thread> threads;
    std::size_t begun = 1;  // the first is this thread's
    try {
        for (; begun < lanes.size(); ++begun) threads.emplace_back(run_lane, begun);
    } catch (const std::system_error& error) {
        for (; begun < lanes.size(); ++begun) {
            for (const std::size_t i : lanes[begun]) {
                errors[i] = std::make_exception_ptr(Failure(
                    ncclSystemError, text("there is no thread for the communicators of a group: ", error.what())));
            }
        }
    }
    run_lane(0);
    for (std::thread& thread : threads) thread.join();
    std::exception_ptr first;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (errors[i] == nullptr) continue;
        if (first == nullptr) first = errors[i];
        jobs[i].undo();
    }
    if (first != nullptr) std::rethrow_exception(first);
    return ncclSuccess;
}

void GroupCall::drop() noexcept {
    for (const Job& job : jobs_) job.undo();
    clear();
}

void GroupCall::clear() noexcept {
    for (const auto& [communicator, operation] : operations_) communicator->leave_group();
    operations_.clear();
    jobs_.clear();
    failure_.reset();
}

}  // namespace tutti::nccl_library
