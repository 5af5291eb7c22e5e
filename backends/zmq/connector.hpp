// ZmqConnector: a rank's streams to the others of its group, over ZeroMQ. Each rank has one socket that all others
// connect to, and one to each rank that it has sent to. Connections are encrypted; the keys travel through the group's
// store, so that only processes that can read it take part.
//
// Threads: as tutti/transport.hpp says; one of its own, which alone touches the sockets.
#pragma once

#include "zmq/stream.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

namespace tutti::backends::zeromq {

class ZmqConnector final : public transport::Streams {
 public:
    /// Meets the others in the options' store. Errors: DistBackendError if no port is free, or the system gives no
    /// thread; DistStoreError if a rank does not come within the options' timeout.
    explicit ZmqConnector(const DistributedBackendOptions& options);
    /// Waits for up to 5 s until written bytes have left this process.
    ~ZmqConnector() override;
    ZmqConnector(const ZmqConnector&) = delete;
    ZmqConnector& operator=(const ZmqConnector&) = delete;

    transport::Stream* to(int peer) override;
    transport::Stream* existing(int peer) override;
    bool has_threads() const noexcept override { return true; }

 private:
    struct Peer {
        std::string endpoint, key;  // empty: no encryption
        zmq::socket_t socket;
        std::unique_ptr<ZmqStream> stream;
        std::optional<ZmqStream::Chunk> pending;  // there was no room for it
    };

    void listen(const DistributedBackendOptions& options);
    void meet(const DistributedBackendOptions& options);
    void work();
    void send_to(Peer& peer);
    bool receive_one();
    bool rest();
    void fail(const char* why);
    void close_sockets(std::chrono::milliseconds linger);
    zmq::socket_t& socket_to(Peer& peer);
    Peer* peer_of(const zmq::message_t& identity);

    const int rank_;
    std::string public_key_, secret_key_;
    ZmqDesk desk_;
    zmq::context_t context_{1};
    zmq::socket_t incoming_;
    std::vector<Peer> peers_;  // this rank has no stream
    std::thread thread_;
};

}  // namespace tutti::backends::zeromq
