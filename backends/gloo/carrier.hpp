// GlooCarrier: frames as messages of Gloo's unbound buffers. Headers go over the first lane, in order; payloads over
// all lanes in turn, each behind its header.
//
// Threads: as Carrier says; two of its own, one receives, one waits for sends to complete.
#pragma once

#include "gloo/library.hpp"
#include "shared/carrier.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::backends::gloo {

class GlooCarrier final : public Carrier, public std::enable_shared_from_this<GlooCarrier> {
 public:
    using Lanes = std::vector<std::shared_ptr<::gloo::Context>>;
    explicit GlooCarrier(Lanes lanes);

    void start(std::shared_ptr<Receiver> receiver) override;
    void send(int to, Frame frame, const void* payload, Sent sent) override;
    void stop(How how) noexcept override;

 private:
    using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;
    struct Outgoing {
        std::unique_ptr<Frame> frame;
        Buffer header, payload;
        Sent sent;
    };

    void receive(const std::shared_ptr<Receiver>& receiver);
    void receive_payload(Receiver& receiver, int from);
    void wait_for_sends();
    void close_connections() noexcept;
    static std::exception_ptr wait_for(Outgoing& outgoing);

    const Lanes lanes_;
    std::mutex sending_;  // the order of headers and payloads
    std::uint32_t next_lane_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Outgoing> outgoing_;
    bool stopped_ = false;
    Frame incoming_;
    Buffer incoming_header_;
    std::thread receiving_, waiting_;
};

}  // namespace tutti::backends::gloo
