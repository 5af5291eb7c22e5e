// GlooConnector: a rank's streams to the others of its group, over Gloo's connections: a full mesh over each network
// interface of GLOO_SOCKET_IFNAME (a lane). Gloo's own collectives run beside them.
//
// Threads: as tutti/transport.hpp says; for each lane one that runs collectives and one for each peer, which receives:
// Gloo's waits block. One more for each stream that has sent something, and for each that has received a long message.
#pragma once

#include "gloo/calls.hpp"
#include "gloo/stream.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace tutti::backends::gloo {

class GlooConnector final : public transport::Streams {
 public:
    /// Meets the others in the options' store. Errors: those of connect_lanes(); DistBackendError if the system gives
    /// no thread.
    explicit GlooConnector(const DistributedBackendOptions& options);
    /// Waits for up to 5 s until written bytes have left this process.
    ~GlooConnector() override;
    GlooConnector(const GlooConnector&) = delete;
    GlooConnector& operator=(const GlooConnector&) = delete;

    transport::Stream* to(int peer) override;
    transport::Stream* existing(int peer) override;
    bool has_threads() const noexcept override { return true; }
    bool offers(const BackendRequest& request) override;
    std::unique_ptr<transport::LibraryCall> begin(const BackendRequest& request) override;
    std::unique_ptr<transport::LibraryCall> receive(int peer, std::uint64_t number, std::span<std::byte> into) override;
    std::unique_ptr<transport::LibraryCall> send(int peer, std::uint64_t number,
                                                 std::span<const std::byte> bytes) override;

 private:
    struct GlooDesk final : Desk {
        std::condition_variable taken;
        void no_longer_full() override { taken.notify_all(); }
    };
    struct Receive {
        std::shared_ptr<std::byte[]> memory;
        Buffer buffer;
    };
    /// The chunks that come from a peer by a lane.
    struct Incoming {
        Incoming(GlooStream& from, std::size_t by) : stream(from), lane(by) {}
        GlooStream& stream;
        const std::size_t lane;
        std::deque<Receive> posted;  // only its thread adds and removes, under the desk's mutex
    };

    void receive(Incoming& incoming);
    bool receive_one(Incoming& incoming);
    bool post_receives(Incoming& incoming);
    void stop() noexcept;

    GlooDesk desk_;
    const Lanes lanes_;
    std::vector<std::unique_ptr<GlooStream>> streams_;  // by rank; null: this one
    std::optional<LaneCalls> calls_;
    std::list<Incoming> incoming_;
    bool stops_ = false;  // under the desk's mutex
    std::vector<std::thread> threads_;
};

}  // namespace tutti::backends::gloo
