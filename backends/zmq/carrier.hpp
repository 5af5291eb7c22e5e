// ZmqCarrier: frames as messages of ZeroMQ. Each rank has one socket that all others connect to, and one to each rank
// that it sends to. Connections are encrypted; the keys travel through the group's store, so that only processes that
// can read it take part.
//
// Threads: as Carrier says; one of its own, which alone touches the sockets.
#pragma once

#include "shared/carrier.hpp"

#include <tutti/backend.hpp>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace tutti::backends::zeromq {

class ZmqCarrier final : public Carrier, public std::enable_shared_from_this<ZmqCarrier> {
 public:
    /// Meets the others in the options' store. Errors: DistBackendError if no port is free; DistStoreError if a rank
    /// does not come within the options' timeout.
    explicit ZmqCarrier(const DistributedBackendOptions& options);

    void start(std::shared_ptr<Receiver> receiver) override;
    void send(int to, Frame frame, const void* payload, Sent sent) override;
    void stop(How how) noexcept override;

 private:
    struct Peer {
        std::string endpoint, key;  // empty: no encryption
        zmq::socket_t socket;
    };
    struct Outgoing {
        int to = -1;
        Frame frame;
        const void* payload = nullptr;
        Sent sent;
    };

    void listen(const DistributedBackendOptions& options);
    void meet(const DistributedBackendOptions& options);
    void work(const std::shared_ptr<Receiver>& receiver);
    void send_queued();
    void close_sockets();
    void receive_one(Receiver& receiver);
    zmq::socket_t& socket_to(Peer& peer);
    int rank_of(const zmq::message_t& identity) const;

    const int rank_;
    std::string public_key_, secret_key_;
    zmq::context_t context_{1};
    zmq::socket_t incoming_, wake_, woken_;
    std::vector<Peer> peers_;
    std::mutex mutex_;  // guards the members below, and the sending end of wake_
    std::deque<Outgoing> outgoing_;
    bool stopped_ = false;
    int linger_ms_ = 0;
    std::thread thread_;
};

}  // namespace tutti::backends::zeromq
