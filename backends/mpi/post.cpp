#include "mpi/post.hpp"

#include "mpi/remains.hpp"
#include "mpi/stream.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <system_error>
#include <utility>

namespace tutti::backends::mpi {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Turns of the post's thread before it sleeps between them. MPI does not say what it has moved of a long message.
constexpr int turns_before_sleep = 2000, turns_before_sleep_in_message = 100 * turns_before_sleep;
constexpr std::chrono::microseconds nap{50};
// A rank that sleeps looks again before that; one that has given up does not.
constexpr std::chrono::milliseconds expected_max{1000};
// The time that a rank that leaves waits for its last messages to be taken.
constexpr std::chrono::milliseconds leaving_max{10'000};

// Long messages have tags of their own, which MPI guarantees up to 32767. That many are never under way between two
// ranks.
constexpr std::size_t piece_bytes_max = std::size_t{1} << 30;  // MPI counts with int
constexpr std::uint64_t first_tag = 16, tags = 32'000;

int tag_of(std::uint64_t number) {
    return static_cast<int>(first_tag + number % tags);
}

}  // namespace

bool Task::look() noexcept {
    if (is_over) return true;
    int over = 0;
    try {
        check(MPI_Testall(static_cast<int>(begun.requests.size()), begun.requests.data(), &over, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    } catch (const DistError&) {
        end(std::current_exception());
    }
    if (over != 0) end(nullptr);
    return is_over;
}

void Task::end(std::exception_ptr why) noexcept {
    error = std::move(why);
    is_over = true;
    bell.set(true);
}

Post::Post(std::shared_ptr<Communicators> communicators)
    : communicators_(std::move(communicators)), incoming_(static_cast<std::size_t>(communicators_->size())) {}

// MPI may still read and write messages that are not over, so they stay in memory.
Post::~Post() {
    stop();
    if (!open_peers_.empty() && !has_broken_off())
        keep_until_ended(communicators_->take_messages(), std::move(open_peers_),
                         static_cast<int>(ChunkStream::Kind::end));
    look_after_remains();
    if (!outgoing_.empty()) new std::list(std::move(outgoing_));
    if (incoming_bytes_ > 0) new std::vector(std::move(incoming_));
}

void Post::start(std::vector<MpiStream*> streams) {
    streams_ = std::move(streams);
    for (int rank = 0; rank < communicators_->size(); ++rank) {
        if (rank != communicators_->rank()) open_peers_.insert(rank);
    }
    look_after_remains();
    try {
        thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
        throw DistBackendError(std::string("mpi gets no thread (") + error.what() +
                               "): how many this user may have says ulimit -u");
    }
}

void Post::stop() noexcept {
    if (!thread_.joinable()) return;
    const auto late = Clock::now() + leaving_max;
    const auto waits = [&] {
        return !has_broken_off() && Clock::now() < late &&
               std::ranges::any_of(outgoing_, [](const Outgoing& one) { return !one.stream->is_closed(); });
    };
    std::unique_lock lock(desk_.mutex);
    while (waits()) {
        turn();
        lock.unlock();
        std::this_thread::sleep_for(nap);
        lock.lock();
    }
    stops_ = true;
    changed_.notify_all();
    lock.unlock();
    thread_.join();
}

void Post::look() noexcept {
    const std::lock_guard lock(desk_.mutex);
    expected_until_ = {};
    turn();
}

void Post::expect() noexcept {
    const std::lock_guard lock(desk_.mutex);
    expected_until_ = Clock::now() + expected_max;
    changed_.notify_all();
}

// ---- MPI, under the mutex

void Post::send(MpiStream& stream, int to, int tag, std::unique_ptr<std::byte[]> memory, std::size_t bytes) {
    try {
        if (has_broken_off()) throw Aborted("mpi: the group has ended");
        outgoing_.push_back({&stream, std::move(memory), bytes});
        Outgoing& one = outgoing_.back();
        check(MPI_Isend(one.memory.get(), static_cast<int>(bytes), MPI_BYTE, to, tag, communicators_->messages(),
                        &one.request),
              "MPI_Isend");
    } catch (const DistError& error) {
        return stream.fail(error.what());
    }
    turn();  // most short messages leave at once
    if (!outgoing_.empty()) changed_.notify_all();
}

std::shared_ptr<Task> Post::begin(const BackendRequest& request) {
    const std::lock_guard lock(desk_.mutex);
    if (has_broken_off()) throw Aborted("mpi: the group has ended");
    auto task = std::make_shared<Task>();
    begin_collective(request, *communicators_, task->begun);
    tasks_.push_back(task);
    return task;
}

std::shared_ptr<Task> Post::receive(int from, std::uint64_t number, std::span<std::byte> into) {
    return begin_message(into.size(), [&](std::size_t at, int bytes, MPI_Request* request) {
        check(MPI_Irecv(into.data() + at, bytes, MPI_BYTE, from, tag_of(number), communicators_->messages(), request),
              "MPI_Irecv");
    });
}

std::shared_ptr<Task> Post::send(int to, std::uint64_t number, std::span<const std::byte> bytes) {
    return begin_message(bytes.size(), [&](std::size_t at, int piece, MPI_Request* request) {
        check(MPI_Isend(bytes.data() + at, piece, MPI_BYTE, to, tag_of(number), communicators_->messages(), request),
              "MPI_Isend");
    });
}

std::shared_ptr<Task> Post::begin_message(std::size_t bytes, const BeginPiece& begin_piece) {
    const std::lock_guard lock(desk_.mutex);
    auto task = std::make_shared<Task>();
    task->is_message = true;
    tasks_.push_back(task);
    changed_.notify_all();
    try {
        if (has_broken_off()) throw Aborted("mpi: the group has ended");
        for (std::size_t at = 0; at < bytes; at += piece_bytes_max) {
            task->begun.requests.push_back(MPI_REQUEST_NULL);
            const int piece = static_cast<int>(std::min(bytes - at, piece_bytes_max));
            begin_piece(at, piece, &task->begun.requests.back());
        }
    } catch (const DistError&) {
        task->end(std::current_exception());
    }
    return task;
}

void Post::give_up(Task& task) noexcept {
    const std::lock_guard lock(desk_.mutex);
    std::erase_if(tasks_, [&](const auto& one) { return one.get() == &task; });
    if (!task.is_over) break_off();
}

// True if anything moved.
bool Post::turn() noexcept {
    if (has_broken_off()) return false;
    try {
        bool moved = look_after_tasks();
        moved |= look_after_sends();
        moved |= receive_one();
        return look_after_receives() || moved;
    } catch (const std::exception& error) {
        fail(error.what());
        return true;
    }
}

void Post::fail(const std::string& why) {
    for (MpiStream* const stream : streams_) {
        if (stream != nullptr) stream->fail(why);
    }
    for (const auto& task : tasks_) task->end(std::make_exception_ptr(DistBackendError(why)));
    tasks_.clear();
}

bool Post::look_after_tasks() {
    return std::erase_if(tasks_, [](const auto& task) { return task->look(); }) > 0;
}

bool Post::look_after_sends() {
    bool moved = false;
    for (auto it = outgoing_.begin(); it != outgoing_.end();) {
        int over = 0;
        check(MPI_Test(&it->request, &over, MPI_STATUS_IGNORE), "MPI_Test");
        if (over == 0) {
            ++it;
            continue;
        }
        const Outgoing one = std::move(*it);
        it = outgoing_.erase(it);
        one.stream->left(one.bytes);
        moved = true;
    }
    return moved;
}

bool Post::receive_one() {
    if (desk_.unread + incoming_bytes_ >= Desk::unread_max) return false;
    int found = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicators_->messages(), &found, &message, &status),
          "MPI_Improbe");
    if (found == 0) return false;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    auto& from = incoming_[static_cast<std::size_t>(status.MPI_SOURCE)];
    const auto size = static_cast<std::size_t>(bytes);
    from.push_back({status.MPI_TAG, std::make_shared_for_overwrite<std::byte[]>(size), size});
    incoming_bytes_ += size;
    check(MPI_Imrecv(from.back().memory.get(), bytes, MPI_BYTE, &message, &from.back().request), "MPI_Imrecv");
    return true;
}

bool Post::look_after_receives() {
    bool moved = false;
    for (std::size_t rank = 0; rank < incoming_.size(); ++rank) {
        while (!incoming_[rank].empty()) {
            int over = 0;
            check(MPI_Test(&incoming_[rank].front().request, &over, MPI_STATUS_IGNORE), "MPI_Test");
            if (over == 0) break;
            const Incoming one = std::move(incoming_[rank].front());
            incoming_[rank].pop_front();
            incoming_bytes_ -= one.bytes;
            if (one.tag == static_cast<int>(ChunkStream::Kind::end)) open_peers_.erase(static_cast<int>(rank));
            streams_[rank]->arrived(0, static_cast<ChunkStream::Kind>(one.tag), one.memory,
                                    {one.memory.get(), one.bytes});
            moved = true;
        }
    }
    return moved;
}

// ---- Its thread

bool Post::has_message() const noexcept {
    return std::ranges::any_of(tasks_, [](const auto& task) { return task->is_message; });
}

bool Post::has_to_look() const noexcept {
    if (has_broken_off()) return false;
    return !outgoing_.empty() || incoming_bytes_ > 0 || has_message() || Clock::now() < expected_until_;
}

void Post::work() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    int idle = 0;
    std::unique_lock lock(desk_.mutex);
    while (!stops_) {
        if (!has_to_look()) {
            changed_.wait(lock, [&] { return stops_ || has_to_look(); });
            idle = 0;
            continue;
        }
        idle = turn() ? 0 : idle + 1;
        const int turns_max = has_message() ? turns_before_sleep_in_message : turns_before_sleep;
        const bool hurries = expected_until_ != Clock::time_point{} && idle < turns_max;
        lock.unlock();
        if (hurries)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(nap);
        lock.lock();
    }
}

}  // namespace tutti::backends::mpi
