// MessageBackend: a tutti backend of a carrier. Sends and receives are messages; collectives are run one after the
// other by a thread for each lane, by the foreign library where it can, otherwise as messages.
//
// Threads: as CustomBackend says. The last of it may go on one of its own threads.
#pragma once

#include "shared/carrier.hpp"

#include <tutti/backend.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tutti::backends {

class MessageBackend final : public CustomBackend {
 public:
    /// Runs a collective to its end in the foreign library, or returns false where it has none for it: the same on all
    /// ranks. Called by the lane's thread. The carrier's stop() must end it with an exception.
    using Foreign = std::function<bool(const BackendRequest& request, int lane)>;
    struct Parts {
        std::string name;  ///< for messages
        int rank = 0, size = 1;
        std::shared_ptr<Carrier> carrier;
        int lanes = 1;      ///< collectives that may be under way at the same time; the same on all ranks
        Foreign foreign{};  ///< empty: all collectives are made of messages
    };

    explicit MessageBackend(Parts parts);
    ~MessageBackend() override;
    MessageBackend(const MessageBackend&) = delete;
    MessageBackend& operator=(const MessageBackend&) = delete;

    void run(const BackendRequest& request, BackendCompletion completion) override;
    void abort(const std::string& reason) noexcept override;

 private:
    class Core;
    const std::shared_ptr<Core> core_;
};

}  // namespace tutti::backends
