#include "zmq/carrier.hpp"

#include "shared/join.hpp"
#include "shared/own_address.hpp"

#include <tutti/error.hpp>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tutti::backends::zeromq {
namespace {

// The time that a rank that leaves waits for its last messages to be on their way.
constexpr int linger_ms_max = 5000;
// The most messages of one turn, so that sending and receiving alternate.
constexpr int messages_per_turn = 64;

std::exception_ptr ended() {
    return std::make_exception_ptr(Aborted("hf_zmq: the group has ended"));
}

std::string rank_key(int rank) {
    return "rank/" + std::to_string(rank);
}

}  // namespace

ZmqCarrier::ZmqCarrier(const DistributedBackendOptions& options)
    : rank_(options.group_rank), peers_(static_cast<std::size_t>(options.group_size)) {
    if (options.group_size == 1) return;
    try {
        if (zmq_has("curve") == 1) {
            std::array<char, 41> public_key{}, secret_key{};
            if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) throw zmq::error_t();
            public_key_ = public_key.data();
            secret_key_ = secret_key.data();
        }
        listen(options);
    } catch (const zmq::error_t& error) {
        throw DistBackendError("hf_zmq: rank " + std::to_string(rank_) + " of group \"" + options.group_id +
                               "\" cannot listen on " + own_address(options.store) + ": " + error.what());
    }
    meet(options);
}

void ZmqCarrier::listen(const DistributedBackendOptions& options) {
    incoming_ = zmq::socket_t(context_, zmq::socket_type::router);
    incoming_.set(zmq::sockopt::rcvhwm, 0);
    incoming_.set(zmq::sockopt::linger, 0);
    if (!public_key_.empty()) {
        incoming_.set(zmq::sockopt::curve_server, 1);
        incoming_.set(zmq::sockopt::curve_secretkey, secret_key_);
    }
    const std::string address = own_address(options.store);
    const bool v6 = address.find(':') != std::string::npos;
    if (v6) incoming_.set(zmq::sockopt::ipv6, 1);
    incoming_.bind("tcp://" + (v6 ? "[" + address + "]" : address) + ":*");
    const std::string name = "inproc://wake";
    woken_ = zmq::socket_t(context_, zmq::socket_type::pull);
    woken_.bind(name);
    wake_ = zmq::socket_t(context_, zmq::socket_type::push);
    wake_.set(zmq::sockopt::linger, 0);
    wake_.set(zmq::sockopt::sndhwm, 0);
    wake_.connect(name);
}

void ZmqCarrier::meet(const DistributedBackendOptions& options) {
    Store store = options.store;
    store.set(rank_key(rank_), incoming_.get(zmq::sockopt::last_endpoint) + " " + public_key_);
    std::vector<std::string> keys;
    for (int rank = 0; rank < options.group_size; ++rank) keys.push_back(rank_key(rank));
    store.wait(keys, options.timeout);
    const std::vector<std::string> values = store.multi_get(keys);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
        const std::size_t space = values[rank].find(' ');
        peers_[rank].endpoint = values[rank].substr(0, space);
        peers_[rank].key = values[rank].substr(space + 1);
    }
}

void ZmqCarrier::start(std::shared_ptr<Receiver> receiver) {
    if (peers_.size() == 1) return;
    thread_ = std::thread([self = shared_from_this(), receiver] { carry(*receiver, [&] { self->work(receiver); }); });
}

void ZmqCarrier::send(int to, Frame frame, const void* payload, Sent sent) {
    {
        const std::lock_guard lock(mutex_);
        if (!stopped_) {
            outgoing_.push_back({to, frame, payload, std::move(sent)});
            if (outgoing_.size() == 1) wake_.send(zmq::message_t(), zmq::send_flags::dontwait);
            return;
        }
    }
    sent(ended());
}

zmq::socket_t& ZmqCarrier::socket_to(Peer& peer) {
    if (peer.socket) return peer.socket;
    peer.socket = zmq::socket_t(context_, zmq::socket_type::dealer);
    peer.socket.set(zmq::sockopt::routing_id, std::to_string(rank_));
    peer.socket.set(zmq::sockopt::sndhwm, 0);  // so that sending never waits; long messages go only on demand
    peer.socket.set(zmq::sockopt::ipv6, 1);
    if (!peer.key.empty()) {
        peer.socket.set(zmq::sockopt::curve_serverkey, peer.key);
        peer.socket.set(zmq::sockopt::curve_publickey, public_key_);
        peer.socket.set(zmq::sockopt::curve_secretkey, secret_key_);
    }
    peer.socket.connect(peer.endpoint);
    return peer.socket;
}

// Copies the payloads, so that their owners may go on at once.
void ZmqCarrier::send_queued() {
    std::deque<Outgoing> now;
    {
        const std::lock_guard lock(mutex_);
        now.swap(outgoing_);
    }
    for (Outgoing& one : now) {
        std::exception_ptr error;
        try {
            zmq::socket_t& socket = socket_to(peers_.at(static_cast<std::size_t>(one.to)));
            const bool more = one.frame.has_payload();
            socket.send(zmq::const_buffer(&one.frame, sizeof one.frame),
                        more ? zmq::send_flags::sndmore : zmq::send_flags::none);
            if (more) socket.send(zmq::const_buffer(one.payload, one.frame.bytes), zmq::send_flags::none);
        } catch (const std::exception& failure) {
            error = std::make_exception_ptr(DistBackendError(std::string("hf_zmq: cannot send: ") + failure.what()));
        }
        one.sent(error);
    }
}

int ZmqCarrier::rank_of(const zmq::message_t& identity) const {
    const std::string_view text = identity.to_string_view();
    int rank = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    const bool good = error == std::errc() && end == text.data() + text.size();
    return good && rank >= 0 && static_cast<std::size_t>(rank) < peers_.size() ? rank : -1;
}

void ZmqCarrier::receive_one(Receiver& receiver) {
    std::vector<zmq::message_t> parts;
    bool more = true;
    while (more) {
        parts.emplace_back();
        if (!incoming_.recv(parts.back(), zmq::recv_flags::dontwait)) return;
        more = parts.back().more();
    }
    Frame frame;
    const int from = rank_of(parts.front());
    if (from < 0 || parts.size() < 2 || parts[1].size() != sizeof frame) return;  // the sender is not of this group
    std::memcpy(&frame, parts[1].data(), sizeof frame);
    if (frame.has_payload()) {
        if (parts.size() != 3 || parts[2].size() != frame.bytes) return;
        std::memcpy(receiver.place(from, frame), parts[2].data(), frame.bytes);
    }
    receiver.arrived(from, frame);
}

void ZmqCarrier::work(const std::shared_ptr<Receiver>& receiver) {
    std::array items{zmq::pollitem_t{incoming_.handle(), 0, ZMQ_POLLIN, 0},
                     zmq::pollitem_t{woken_.handle(), 0, ZMQ_POLLIN, 0}};
    for (;;) {
        try {
            zmq::poll(items.data(), items.size(), std::chrono::milliseconds(-1));
            zmq::message_t ignored;
            while (woken_.recv(ignored, zmq::recv_flags::dontwait)) continue;
            send_queued();
            for (int i = 0; i < messages_per_turn && (incoming_.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0; ++i)
                receive_one(*receiver);
        } catch (const zmq::error_t& error) {
            const std::lock_guard lock(mutex_);
            if (error.num() != EINTR) stopped_ = true;
        }
        const std::lock_guard lock(mutex_);
        if (stopped_ && (outgoing_.empty() || linger_ms_ == 0)) break;
    }
    close_sockets();
    for (const Outgoing& one : std::exchange(outgoing_, {})) one.sent(ended());
}

void ZmqCarrier::close_sockets() {
    for (Peer& peer : peers_) {
        if (!peer.socket) continue;
        peer.socket.set(zmq::sockopt::linger, linger_ms_);
        peer.socket.close();
    }
    incoming_.close();
    woken_.close();
}

void ZmqCarrier::stop(How how) noexcept {
    if (peers_.size() == 1) return;
    {
        const std::lock_guard lock(mutex_);
        if (!stopped_) {
            stopped_ = true;
            linger_ms_ = how == How::leaves ? linger_ms_max : 0;
            try {
                wake_.send(zmq::message_t(), zmq::send_flags::dontwait);
            } catch (const zmq::error_t&) {  // the thread has gone
            }
        }
    }
    const bool flushes = thread_.get_id() != std::this_thread::get_id();
    join(thread_);
    if (!flushes) return;
    const std::lock_guard lock(mutex_);
    wake_.close();
    context_.close();  // sent messages have left this process, or have lingered long enough
}

}  // namespace tutti::backends::zeromq
