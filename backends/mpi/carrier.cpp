#include "mpi/carrier.hpp"

#include "shared/join.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace tutti::backends::mpi {
namespace {

using namespace std::chrono_literals;

constexpr int header_tag = 0, payload_tag = 1;
constexpr std::uint64_t packed_bytes_max = 64 << 10;
constexpr std::uint64_t piece_bytes_max = std::uint64_t{1} << 30;  // MPI counts with int
constexpr int turns_before_sleep = 2000;
// The time that a rank that leaves, or fails, waits for its last messages to be taken.
constexpr std::chrono::milliseconds leaving_max{10'000}, failing_max{300};

std::exception_ptr ended() {
    return std::make_exception_ptr(Aborted("mpi: the group has ended"));
}

// `f(offset, bytes)` for each piece.
template <class F>
void in_pieces(std::uint64_t bytes, F f) {
    for (std::uint64_t at = 0; at < bytes; at += piece_bytes_max)
        f(at, static_cast<int>(std::min(piece_bytes_max, bytes - at)));
}

}  // namespace

void MpiCarrier::start(std::shared_ptr<Receiver> receiver) {
    if (communicators_->size() == 1) return;
    thread_ = std::thread([self = shared_from_this(), receiver] { carry(*receiver, [&] { self->work(receiver); }); });
}

void MpiCarrier::send(int to, Frame frame, const void* payload, Sent sent) {
    Outgoing outgoing{.to = to, .sent = std::move(sent)};
    const bool packed = frame.has_payload() && frame.bytes <= packed_bytes_max;
    outgoing.packed.resize(sizeof frame + (packed ? frame.bytes : 0));
    std::memcpy(outgoing.packed.data(), &frame, sizeof frame);
    if (packed) std::memcpy(outgoing.packed.data() + sizeof frame, payload, frame.bytes);
    if (frame.has_payload() && !packed) {
        outgoing.payload = payload;
        outgoing.bytes = frame.bytes;
    }
    const bool copied = outgoing.payload == nullptr;
    const Sent now = copied ? std::exchange(outgoing.sent, nullptr) : nullptr;
    {
        std::unique_lock lock(mutex_);
        if (stopped_) {
            lock.unlock();
            return (copied ? now : outgoing.sent)(ended());
        }
        queued_.push_back(std::move(outgoing));
        changed_.notify_all();
    }
    if (now) now(nullptr);
}

void MpiCarrier::hurry() noexcept {
    const std::lock_guard lock(mutex_);
    hurried_ = true;
    changed_.notify_all();
}

bool MpiCarrier::send_queued() {
    std::deque<Outgoing> now;
    {
        const std::lock_guard lock(mutex_);
        now.swap(queued_);
    }
    for (Outgoing& one : now) {
        Outgoing& sent = under_way_.emplace_back(std::move(one));
        const auto begin = [&](const void* data, int bytes, int tag) {
            sent.requests.push_back(MPI_REQUEST_NULL);
            check(MPI_Isend(data, bytes, MPI_BYTE, sent.to, tag, communicators_->messages(), &sent.requests.back()),
                  "MPI_Isend");
        };
        begin(sent.packed.data(), static_cast<int>(sent.packed.size()), header_tag);
        in_pieces(sent.bytes, [&](std::uint64_t at, int bytes) {
            begin(static_cast<const char*>(sent.payload) + at, bytes, payload_tag);
        });
    }
    return !now.empty();
}

bool MpiCarrier::look_after_sends() {
    bool moved = false;
    for (auto it = under_way_.begin(); it != under_way_.end();) {
        int over = 0;
        check(MPI_Testall(static_cast<int>(it->requests.size()), it->requests.data(), &over, MPI_STATUSES_IGNORE),
              "MPI_Testall");
        if (over == 0) {
            ++it;
            continue;
        }
        const Sent sent = std::move(it->sent);
        it = under_way_.erase(it);
        if (sent) sent(nullptr);
        moved = true;
    }
    return moved;
}

bool MpiCarrier::receive_one(Receiver& receiver) {
    int found = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, header_tag, communicators_->messages(), &found, &message, &status),
          "MPI_Improbe");
    if (found == 0) return false;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::vector<char> packed(static_cast<std::size_t>(bytes));
    check(MPI_Mrecv(packed.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    Frame frame;
    std::memcpy(&frame, packed.data(), sizeof frame);
    const int from = status.MPI_SOURCE;
    if (frame.has_payload() && packed.size() == sizeof frame) {
        receive_long(receiver, from, frame);
        return true;
    }
    if (frame.has_payload())
        std::memcpy(receiver.place(from, frame), packed.data() + sizeof frame, packed.size() - sizeof frame);
    receiver.arrived(from, frame);
    return true;
}

void MpiCarrier::receive_long(Receiver& receiver, int from, const Frame& frame) {
    auto* const place = static_cast<char*>(receiver.place(from, frame));
    try {
        std::vector<MPI_Request> requests;
        in_pieces(frame.bytes, [&](std::uint64_t at, int bytes) {
            requests.push_back(MPI_REQUEST_NULL);
            check(
                MPI_Irecv(place + at, bytes, MPI_BYTE, from, payload_tag, communicators_->messages(), &requests.back()),
                "MPI_Irecv");
        });
        for (MPI_Request& request : requests) communicators_->wait(&request);
    } catch (...) {
        return receiver.lost(std::current_exception());
    }
    receiver.arrived(from, frame);
}

bool MpiCarrier::may_sleep(const Receiver& receiver, int idle_turns) {
    std::unique_lock lock(mutex_);
    if (stopped_ || !queued_.empty()) return false;
    if (under_way_.empty() && !receiver.awaits()) {
        changed_.wait(lock, [&] { return stopped_ || hurried_ || !queued_.empty(); });
    } else if (idle_turns > turns_before_sleep) {
        changed_.wait_for(lock, 50us, [&] { return stopped_ || hurried_ || !queued_.empty(); });
    } else {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
    return std::exchange(hurried_, false);
}

void MpiCarrier::work(const std::shared_ptr<Receiver>& receiver) {
    int idle_turns = 0;
    std::chrono::steady_clock::time_point until{};
    try {
        while (!has_broken_off()) {
            bool moved = send_queued();
            moved |= look_after_sends();
            moved |= receive_one(*receiver);
            if (moved || may_sleep(*receiver, idle_turns))
                idle_turns = 0;
            else
                ++idle_turns;
            const std::lock_guard lock(mutex_);
            if (!stopped_) continue;
            const auto now = std::chrono::steady_clock::now();
            if (until == std::chrono::steady_clock::time_point{})
                until = now + (how_ == How::leaves ? leaving_max : failing_max);
            if ((queued_.empty() && under_way_.empty()) || now > until) break;
        }
    } catch (const DistError&) {  // waiting operations hear of it from tutti
    }
    give_up_sends();
}

void MpiCarrier::give_up_sends() noexcept {
    std::deque<Outgoing> queued;
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        queued.swap(queued_);
    }
    for (const Outgoing& one : queued) {
        if (one.sent) one.sent(ended());
    }
    if (under_way_.empty()) return;
    // Packed messages stay in memory, since MPI may still read them. The callers get their buffers back.
    if (std::ranges::any_of(under_way_, [](const Outgoing& one) { return one.payload != nullptr; })) break_off();
    auto* const kept = new std::list<Outgoing>(std::move(under_way_));
    for (Outgoing& one : *kept) {
        if (const Sent sent = std::exchange(one.sent, nullptr)) sent(ended());
    }
}

void MpiCarrier::stop(How how) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!stopped_) how_ = how;
        stopped_ = true;
        changed_.notify_all();
    }
    if (how == How::fails) communicators_->give_up();
    join(thread_);
}

}  // namespace tutti::backends::mpi
