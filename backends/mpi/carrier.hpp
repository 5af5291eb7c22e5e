// MpiCarrier: frames as MPI messages. A short payload travels with its header; a long one behind it.
//
// Threads: as Carrier says; one of its own, which looks for messages while any are awaited, and sleeps otherwise.
#pragma once

#include "mpi/communicators.hpp"
#include "shared/carrier.hpp"

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::backends::mpi {

class MpiCarrier final : public Carrier, public std::enable_shared_from_this<MpiCarrier> {
 public:
    explicit MpiCarrier(std::shared_ptr<Communicators> communicators) : communicators_(std::move(communicators)) {}

    void start(std::shared_ptr<Receiver> receiver) override;
    void send(int to, Frame frame, const void* payload, Sent sent) override;
    void hurry() noexcept override;
    void stop(How how) noexcept override;

 private:
    struct Outgoing {
        int to = -1;
        std::vector<char> packed;  // the header, with a short payload
        const void* payload = nullptr;
        std::uint64_t bytes = 0;  // of a payload that travels separately
        Sent sent;
        std::vector<MPI_Request> requests{};
    };

    void work(const std::shared_ptr<Receiver>& receiver);
    bool send_queued();
    bool look_after_sends();
    bool receive_one(Receiver& receiver);
    void receive_long(Receiver& receiver, int from, const Frame& frame);
    bool may_sleep(const Receiver& receiver, int idle_turns);
    void give_up_sends() noexcept;

    const std::shared_ptr<Communicators> communicators_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Outgoing> queued_;
    bool stopped_ = false, hurried_ = false;
    How how_ = How::leaves;
    std::list<Outgoing> under_way_;  // the thread's own
    std::thread thread_;
};

}  // namespace tutti::backends::mpi
