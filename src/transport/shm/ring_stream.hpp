// RingStream: a stream over two rings of an arena, one each way.
//
// Short messages have slots of their own, so that a message costs one cache line, instead of one each for `written`
// (the writer's byte count), the header and the payload. A slot says how many bytes of the ring precede it, which puts
// slots and bytes in one order. The reader loads `written` before it checks the next slot: if the slot is empty, all
// bytes counted in `written` precede its message. The writer does not load the reader's counts for each short message:
// it remembers the last known ones, and the reader publishes its counts only now and then.
#pragma once

#include "transport/shm/arena.hpp"
#include "transport/shm/staging_copy.hpp"

#include <tutti/transport.hpp>

namespace tutti::transport {

class RingStream final : public Stream {
 public:
    /// `copy`: copies bytes into the ring; null: memcpy.
    RingStream(std::shared_ptr<Arena> arena, int local_rank, int local_peer, StagingCopy* copy = nullptr);

    std::size_t write(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    std::size_t read(std::span<std::byte> into, std::span<std::byte> ahead) override;
    bool put(const ShortMessage& message, const std::byte* payload) override;
    Arrival next(ShortMessage& message) override;
    void take(std::byte* into) override;
    StreamState state() const noexcept override;
    bool end() override;
    void close() noexcept override { end(); }
    std::string reason() const override { return {}; }

 private:
    std::size_t room(std::size_t wanted);
    std::uint64_t readable_end(const MessageSlot*& next) const;
    std::size_t get(std::span<std::byte> into, std::uint64_t at) const;
    std::size_t put(std::span<const std::byte> bytes, std::uint64_t at);

    std::shared_ptr<Arena> arena_;
    StagingCopy* copy_;
    int peer_;
    RingControl& out_;
    RingControl& in_;
    std::byte* out_data_;
    std::byte* in_data_;
    std::size_t capacity_;
    // This rank's counts of both rings, and the last known counts of its peer.
    std::uint64_t written_ = 0, sent_ = 0;        // bytes, messages
    std::uint64_t taken_ = 0, received_ = 0;      // bytes, messages
    std::uint64_t told_ = 0, told_messages_ = 0;  // of bytes and messages taken, what this rank has published
    std::uint64_t peer_taken_ = 0, peer_received_ = 0;
};

}  // namespace tutti::transport
