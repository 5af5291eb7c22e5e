#include "gloo/carrier.hpp"

#include "gloo/lanes.hpp"
#include "shared/join.hpp"

#include <tutti/error.hpp>

#include <chrono>
#include <string>
#include <utility>

namespace tutti::backends::gloo {
namespace {

using namespace std::chrono_literals;

// Slots that Gloo's own collectives do not use: theirs have 48 bits.
constexpr std::uint64_t header_slot = std::uint64_t{1} << 62;
constexpr std::uint64_t payload_slot = header_slot + 1;
constexpr std::chrono::milliseconds forever = 100h;

std::exception_ptr broken(const std::string& what) {
    return std::make_exception_ptr(DistBackendError("gloo: a connection has broken: " + what));
}

}  // namespace

GlooCarrier::GlooCarrier(Lanes lanes) : lanes_(std::move(lanes)) {}

void GlooCarrier::start(std::shared_ptr<Receiver> receiver) {
    if (lanes_.front()->size == 1) return;
    const QuietPipes quiet;  // the threads inherit it
    incoming_header_ = lanes_.front()->createUnboundBuffer(&incoming_, sizeof incoming_);
    receiving_ =
        std::thread([self = shared_from_this(), receiver] { carry(*receiver, [&] { self->receive(receiver); }); });
    waiting_ =
        std::thread([self = shared_from_this(), receiver] { carry(*receiver, [&] { self->wait_for_sends(); }); });
}

void GlooCarrier::send(int to, Frame frame, const void* payload, Sent sent) {
    std::exception_ptr error;
    try {
        const QuietPipes quiet;
        const std::lock_guard order(sending_);
        if (frame.has_payload()) frame.lane = next_lane_ = (next_lane_ + 1) % static_cast<std::uint32_t>(lanes_.size());
        Outgoing outgoing{std::make_unique<Frame>(frame), nullptr, nullptr, nullptr};
        outgoing.header = lanes_.front()->createUnboundBuffer(outgoing.frame.get(), sizeof frame);
        if (frame.has_payload())
            outgoing.payload = lanes_[frame.lane]->createUnboundBuffer(const_cast<void*>(payload), frame.bytes);
        outgoing.header->send(to, header_slot);
        if (outgoing.payload) outgoing.payload->send(to, payload_slot);
        const std::lock_guard lock(mutex_);
        if (!stopped_) {
            outgoing.sent = std::move(sent);
            outgoing_.push_back(std::move(outgoing));
            changed_.notify_all();
            return;
        }
        error = broken("the group has ended");
    } catch (const ::gloo::Exception& failure) {
        error = broken(failure.what());
    }
    sent(error);
}

std::exception_ptr GlooCarrier::wait_for(Outgoing& outgoing) {
    try {
        outgoing.header->waitSend(forever);
        if (outgoing.payload) outgoing.payload->waitSend(forever);
        return {};
    } catch (const ::gloo::Exception& failure) {
        return broken(failure.what());
    }
}

// Every rank takes incoming messages at once, so none of the sends waits for long.
void GlooCarrier::wait_for_sends() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stopped_ || !outgoing_.empty(); });
        if (outgoing_.empty()) return;
        Outgoing outgoing = std::move(outgoing_.front());
        outgoing_.pop_front();
        lock.unlock();
        const std::exception_ptr error = wait_for(outgoing);
        outgoing.payload.reset();  // Gloo does not read it from here on
        outgoing.header.reset();
        outgoing.sent(error);
        lock.lock();
    }
}

void GlooCarrier::receive(const std::shared_ptr<Receiver>& receiver) {
    std::vector<int> others;
    for (int rank = 0; rank < lanes_.front()->size; ++rank) {
        if (rank != lanes_.front()->rank) others.push_back(rank);
    }
    for (;;) {
        int from = -1;
        try {
            incoming_header_->recv(others, header_slot);
            if (!incoming_header_->waitRecv(&from, forever)) return;
        } catch (const ::gloo::Exception&) {
            // A rank broke off within a header. Waiting operations hear of that from tutti, which then stops this
            // carrier.
            std::unique_lock lock(mutex_);
            if (changed_.wait_for(lock, 20ms, [&] { return stopped_; })) return;
            continue;
        }
        if (incoming_.has_payload())
            receive_payload(*receiver, from);
        else
            receiver->arrived(from, incoming_);
    }
}

void GlooCarrier::receive_payload(Receiver& receiver, int from) {
    try {
        void* const place = receiver.place(from, incoming_);
        const Buffer payload = lanes_.at(incoming_.lane)->createUnboundBuffer(place, incoming_.bytes);
        payload->recv(from, payload_slot);
        payload->waitRecv(forever);
    } catch (const std::exception& failure) {
        return receiver.lost(broken(failure.what()));
    }
    receiver.arrived(from, incoming_);
}

// Gloo ends all waits on a context when one of its waits times out: this function makes one time out.
void GlooCarrier::close_connections() noexcept {
    for (const auto& lane : lanes_) {
        try {
            char nothing = 0;
            lane->createUnboundBuffer(&nothing, 1)->waitRecv(1ms);
        } catch (const ::gloo::Exception&) {
        }
    }
}

void GlooCarrier::stop(How) noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
    }
    if (lanes_.front()->size == 1) return;
    const QuietPipes quiet;
    incoming_header_->abortWaitRecv();
    close_connections();
    join(receiving_);
    join(waiting_);
}

}  // namespace tutti::backends::gloo
