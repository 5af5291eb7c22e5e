// GlooConnector: a rank's streams to the others of its group, over Gloo's connections: a full mesh over each network
// interface of GLOO_SOCKET_IFNAME (a lane). Gloo's own collectives run beside them.
//
// Threads: as tutti/transport.hpp says; for each lane one that receives and one that runs collectives, and one for each
// stream that has sent something.
#pragma once

#include "gloo/calls.hpp"
#include "gloo/stream.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <condition_variable>
#include <deque>
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
    std::unique_ptr<transport::LibraryCall> begin(const BackendRequest& request) override;

 private:
    struct GlooDesk final : Desk {
        std::condition_variable taken;
        void no_longer_full() override { taken.notify_all(); }
    };
    struct Incoming {
        std::shared_ptr<std::byte[]> memory;
        Buffer buffer;
    };

    void receive(std::size_t lane);
    bool receive_one(std::size_t lane);
    bool post_receives(std::size_t lane);
    void fail_broken(const char* why);
    void stop() noexcept;

    GlooDesk desk_;
    const Lanes lanes_;
    std::vector<std::unique_ptr<GlooStream>> streams_;  // by rank; null: this one
    std::optional<LaneCalls> calls_;
    // Under the desk's mutex.
    std::vector<std::deque<Incoming>> receiving_;  // by lane: what its thread waits for, in this order
    bool stops_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace tutti::backends::gloo
