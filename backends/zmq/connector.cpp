#include "zmq/connector.hpp"

#include "common/own_address.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti::backends::zeromq {
namespace {

using Clock = std::chrono::steady_clock;

// The time that a rank that leaves waits for its last bytes to be on their way.
constexpr std::chrono::milliseconds linger_max{5000};
// The most messages of one turn, so that sending and receiving alternate.
constexpr int messages_per_turn = 64;
// Chunks that ZeroMQ keeps for a peer that is slow, on either side.
constexpr int chunks_kept = 8;

std::string rank_key(int rank) {
    return "rank/" + std::to_string(rank);
}

// The message owns the bytes: nothing is copied.
zmq::message_t message_of(std::vector<std::byte> bytes) {
    auto* const kept = new std::vector<std::byte>(std::move(bytes));
    return {kept->data(), kept->size(), [](void*, void* hint) { delete static_cast<std::vector<std::byte>*>(hint); },
            kept};
}

}  // namespace

ZmqConnector::ZmqConnector(const DistributedBackendOptions& options)
    : rank_(options.group_rank), peers_(static_cast<std::size_t>(options.group_size)) {
    if (options.group_size == 1) return;
    for (int peer = 0; peer < options.group_size; ++peer) {
        if (peer != rank_) peers_[static_cast<std::size_t>(peer)].stream = std::make_unique<ZmqStream>(desk_);
    }
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
    try {
        thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
        throw DistBackendError(std::string("hf_zmq gets no thread (") + error.what() +
                               "): how many this user may have says ulimit -u");
    }
}

void ZmqConnector::listen(const DistributedBackendOptions& options) {
    incoming_ = zmq::socket_t(context_, zmq::socket_type::router);
    incoming_.set(zmq::sockopt::rcvhwm, chunks_kept);
    incoming_.set(zmq::sockopt::linger, 0);
    if (!public_key_.empty()) {
        incoming_.set(zmq::sockopt::curve_server, 1);
        incoming_.set(zmq::sockopt::curve_secretkey, secret_key_);
    }
    const std::string address = own_address(options.store);
    const bool v6 = address.find(':') != std::string::npos;
    if (v6) incoming_.set(zmq::sockopt::ipv6, 1);
    incoming_.bind("tcp://" + (v6 ? "[" + address + "]" : address) + ":*");
}

void ZmqConnector::meet(const DistributedBackendOptions& options) {
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

ZmqConnector::~ZmqConnector() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(desk_.mutex);
        desk_.stops = true;
        desk_.call();
    }
    thread_.join();
    context_.close();  // sent messages have left this process, or have lingered long enough
}

transport::Stream* ZmqConnector::to(int peer) {
    return peers_[static_cast<std::size_t>(peer)].stream.get();
}

transport::Stream* ZmqConnector::existing(int peer) {
    ZmqStream* const stream = peers_[static_cast<std::size_t>(peer)].stream.get();
    return stream != nullptr && stream->is_used() ? stream : nullptr;
}

// ---- Its thread

zmq::socket_t& ZmqConnector::socket_to(Peer& peer) {
    if (peer.socket) return peer.socket;
    peer.socket = zmq::socket_t(context_, zmq::socket_type::dealer);
    peer.socket.set(zmq::sockopt::routing_id, std::to_string(rank_));
    peer.socket.set(zmq::sockopt::sndhwm, chunks_kept);
    peer.socket.set(zmq::sockopt::ipv6, 1);
    if (!peer.key.empty()) {
        peer.socket.set(zmq::sockopt::curve_serverkey, peer.key);
        peer.socket.set(zmq::sockopt::curve_publickey, public_key_);
        peer.socket.set(zmq::sockopt::curve_secretkey, secret_key_);
    }
    peer.socket.connect(peer.endpoint);
    return peer.socket;
}

void ZmqConnector::send_to(Peer& peer) {
    for (;;) {
        if (!peer.pending) {
            const std::lock_guard lock(desk_.mutex);
            if (!peer.stream->has_outgoing()) return;
            peer.pending = peer.stream->take_outgoing();
        }
        zmq::socket_t& socket = socket_to(peer);
        if (!socket.send(zmq::const_buffer(&peer.pending->header, sizeof(Header)),
                         zmq::send_flags::sndmore | zmq::send_flags::dontwait))
            return;
        socket.send(message_of(std::move(peer.pending->bytes)), zmq::send_flags::dontwait);
        peer.pending.reset();
    }
}

ZmqConnector::Peer* ZmqConnector::peer_of(const zmq::message_t& identity) {
    const std::string_view text = identity.to_string_view();
    std::size_t rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    const bool good = error == std::errc() && end == text.data() + text.size() && rank < peers_.size();
    return good && peers_[rank].stream ? &peers_[rank] : nullptr;
}

// False: there is none, or the ranks have not read those that came before.
bool ZmqConnector::receive_one() {
    {
        const std::lock_guard lock(desk_.mutex);
        if (desk_.is_full()) return false;
    }
    std::vector<zmq::message_t> parts;
    for (bool more = true; more; more = parts.back().more()) {
        parts.emplace_back();
        if (!incoming_.recv(parts.back(), zmq::recv_flags::dontwait)) return false;
    }
    Peer* const peer = peer_of(parts.front());
    if (peer == nullptr || parts.size() != 3 || parts[1].size() != sizeof(Header)) return true;  // a stranger's
    Header header;
    std::memcpy(&header, parts[1].data(), sizeof header);
    const std::lock_guard lock(desk_.mutex);
    peer->stream->take_incoming(header, std::move(parts[2]));
    return true;
}

// Sleeps until there is something to do. False: this rank leaves, and nothing is left to be sent.
bool ZmqConnector::rest() {
    std::vector<zmq::pollitem_t> items{{nullptr, desk_.bell.fd(), ZMQ_POLLIN, 0}};
    std::chrono::milliseconds limit{-1};
    {
        bool sends = false;
        const std::lock_guard lock(desk_.mutex);
        if (!desk_.is_full()) items.push_back({incoming_.handle(), 0, ZMQ_POLLIN, 0});
        for (Peer& peer : peers_) {
            if (peer.stream && peer.stream->is_closed()) peer.pending.reset();
            if (!peer.pending) continue;
            sends = true;
            items.push_back({peer.socket.handle(), 0, ZMQ_POLLOUT, 0});
        }
        if (desk_.has_work) return true;
        if (desk_.stops && !sends) return false;
        if (desk_.stops) limit = std::chrono::milliseconds(100);
    }
    zmq::poll(items.data(), items.size(), limit);
    return true;
}

void ZmqConnector::work() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    std::optional<Clock::time_point> late;
    try {
        do {
            {
                const std::lock_guard lock(desk_.mutex);
                desk_.has_work = false;
                desk_.bell.set(false);
                if (desk_.stops && !late) late = Clock::now() + linger_max;
            }
            for (Peer& peer : peers_) {
                if (peer.stream) send_to(peer);
            }
            for (int i = 0; i < messages_per_turn && receive_one(); ++i) continue;
        } while (rest() && (!late || Clock::now() < *late));
    } catch (const std::exception& error) {
        fail(error.what());
    }
    const auto left = late ? std::chrono::ceil<std::chrono::milliseconds>(*late - Clock::now()) : linger_max;
    close_sockets(std::max(left, std::chrono::milliseconds(0)));
}

void ZmqConnector::fail(const char* why) {
    const std::lock_guard lock(desk_.mutex);
    for (Peer& peer : peers_) {
        if (peer.stream) peer.stream->fail(std::string("hf_zmq: ") + why);
    }
}

void ZmqConnector::close_sockets(std::chrono::milliseconds linger) {
    for (Peer& peer : peers_) {
        if (!peer.socket) continue;
        const std::lock_guard lock(desk_.mutex);
        const bool waits = !peer.stream->is_closed() && !peer.stream->has_arrived();
        peer.socket.set(zmq::sockopt::linger, waits ? static_cast<int>(linger.count()) : 0);
        peer.socket.close();
    }
    incoming_.close();
}

}  // namespace tutti::backends::zeromq
