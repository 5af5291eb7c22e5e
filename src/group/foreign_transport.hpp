// ForeignTransport: carries a group's messages over a registered transport: its streams, addressed by the world's
// ranks, and a mailbox over them. Everything else is as in a group whose bytes tutti itself carries.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "engine/running.hpp"
#include "operation/member.hpp"
#include "operation/ranks.hpp"
#include "transport/mailbox.hpp"

#include <tutti/process_group.hpp>
#include <tutti/transport.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::detail {

class GroupTable;
class Health;
class Operation;

class ForeignTransport final : public ForeignStreams {
 public:
    /// The parts of a group, and of its world. They must outlive it.
    struct Parts {
        const Ranks& ranks;
        int world_size = 1;
        Determinism determinism = Determinism::fast;
        const Health& health;
        GroupTable& groups;
        std::uint64_t world_id = 0;
    };
    ForeignTransport(const Parts& parts, std::unique_ptr<transport::Streams> streams);
    /// Announces the end of data on its streams, unless the world has failed or a stream cannot accept that at once.
    ~ForeignTransport() override;
    ForeignTransport(const ForeignTransport&) = delete;
    ForeignTransport& operator=(const ForeignTransport&) = delete;

    transport::Mailbox& mailbox() noexcept override { return mailbox_; }
    bool is_connected(int peer) override { return streams_.existing(peer) != nullptr; }
    /// Whether the transport's library can run that collective of the group.
    bool offers(const Operation& operation);
    /// Begins a collective that offers() accepts. All ranks have entered it and agree on it.
    std::unique_ptr<engine::Running> begin(const Operation& operation);
    /// Call it when nothing is in flight and nothing will follow. Returns the streams, whose destruction may wait until
    /// written bytes are sent: destroy them without holding the lock.
    [[nodiscard]] std::unique_ptr<transport::Streams> close();

 private:
    class OfWorld final : public transport::Streams {
     public:
        OfWorld(const Ranks& ranks, int world_size, std::unique_ptr<transport::Streams> streams);
        transport::Stream* to(int peer) override;
        transport::Stream* existing(int peer) override;
        bool has_threads() const noexcept override { return streams_ && streams_->has_threads(); }
        bool offers(const BackendRequest& request) override;
        std::unique_ptr<transport::LibraryCall> begin(const BackendRequest& request) override;
        std::unique_ptr<transport::LibraryCall> receive(int peer, std::uint64_t number,
                                                        std::span<std::byte> into) override;
        std::unique_ptr<transport::LibraryCall> send(int peer, std::uint64_t number,
                                                     std::span<const std::byte> bytes) override;
        int world_size() const noexcept { return static_cast<int>(rank_of_.size()); }
        std::unique_ptr<transport::Streams> take() { return std::move(streams_); }

     private:
        std::vector<int> rank_of_;  // in the group, by rank of the world; -1: not in it
        std::unique_ptr<transport::Streams> streams_;
    };

    /// The request to the library; for an average, it asks for the sum.
    BackendRequest library_request_of(const Operation& operation) const;
    void close_given_up() noexcept;

    const Ranks& ranks_;
    const Determinism determinism_;
    const Health& health_;
    OfWorld streams_;
    transport::Mailbox mailbox_;
};

}  // namespace tutti::detail
