// MessageBackend: a tutti backend of a carrier. Sends and receives are messages; each lane has a thread that runs
// collectives one after the other, by the foreign library if it can, otherwise as messages.
//
// Threads: as CustomBackend says. One of its own threads may destroy it.
#pragma once

#include "shared/carrier.hpp"

#include <tutti/backend.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tutti::backends {

class MessageBackend final : public CustomBackend {
 public:
    /// Runs a collective to its end in the foreign library, or returns false if that has none for it: the same on all
    /// ranks. The lane's thread calls it. The carrier's stop() must end it with an exception.
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
