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

// Turns of the post's thread before it sleeps between them.
constexpr int turns_before_sleep = 2000;
constexpr std::chrono::microseconds nap{50};
// A rank that sleeps looks again before that; one that has given up does not.
constexpr std::chrono::milliseconds expected_max{1000};
// The time that a rank that leaves waits for its last messages to be taken.
constexpr std::chrono::milliseconds leaving_max{10'000};

}  // namespace

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

std::shared_ptr<Collective> Post::begin(const BackendRequest& request) {
    const std::lock_guard lock(desk_.mutex);
    if (has_broken_off()) throw Aborted("mpi: the group has ended");
    auto collective = std::make_shared<Collective>();
    if (!begin_collective(request, *communicators_, collective->begun)) return nullptr;
    collective_ = collective;
    return collective;
}

void Post::give_up(Collective& collective) noexcept {
    const std::lock_guard lock(desk_.mutex);
    if (collective_.get() == &collective) collective_.reset();
    if (!collective.is_over) break_off();
}

// True if anything moved.
bool Post::turn() noexcept {
    if (has_broken_off()) return false;
    try {
        bool moved = look_after_collective();
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
}

bool Post::look_after_collective() {
    if (!collective_) return false;
    const auto collective = collective_;
    int over = 0;
    try {
        std::vector<MPI_Request>& requests = collective->begun.requests;
        check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &over, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    } catch (const DistError&) {
        collective->error = std::current_exception();
        over = 1;
    }
    if (over == 0) return false;
    collective->is_over = true;
    collective->bell.set(true);
    collective_.reset();
    return true;
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

bool Post::has_to_look() const noexcept {
    if (has_broken_off()) return false;
    return !outgoing_.empty() || incoming_bytes_ > 0 || Clock::now() < expected_until_;
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
        const bool hurries = expected_until_ != Clock::time_point{} && idle < turns_before_sleep;
        lock.unlock();
        if (hurries)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(nap);
        lock.lock();
    }
}

}  // namespace tutti::backends::mpi
