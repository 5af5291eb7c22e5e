#include "gloo/stream.hpp"

#include "gloo/lanes.hpp"
#include "gloo/outcome.hpp"

#include <tutti/error.hpp>

#include <cstring>
#include <utility>

namespace tutti::backends::gloo {

// Gloo takes a message without waiting, and sends it once the peer has said that it takes it.
void GlooStream::send(std::size_t lane, Kind kind, std::span<const std::byte> header,
                      std::span<const std::byte> payload) {
    const std::size_t bytes = header.size() + payload.size();
    const ChunkHeader front{kind, static_cast<std::uint32_t>(bytes)};
    auto memory = std::make_unique_for_overwrite<std::byte[]>(sizeof front + bytes);
    std::memcpy(memory.get(), &front, sizeof front);
    if (!header.empty()) std::memcpy(memory.get() + sizeof front, header.data(), header.size());
    if (!payload.empty()) std::memcpy(memory.get() + sizeof front + header.size(), payload.data(), payload.size());
    try {
        const QuietPipes quiet;
        Buffer buffer = lanes_[lane]->createUnboundBuffer(memory.get(), sizeof front + bytes);
        buffer->send(peer_, chunk_slot);
        sends_.add({std::move(memory), std::move(buffer), [this, bytes](const std::string& why) {
                        if (!why.empty()) fail(why);
                        sent(bytes);
                    }});
    } catch (const ::gloo::Exception& error) {
        fail(std::string("gloo: a connection has broken: ") + error.what());
    } catch (const DistError& error) {
        fail(error.what());
    }
}

std::unique_ptr<transport::LibraryCall> GlooStream::receive_long(std::uint64_t number, std::span<std::byte> into) {
    if (lanes_.size() > 1) return nullptr;
    return begin(receives_, lanes_.front()->createUnboundBuffer(into.data(), into.size()),
                 [&](Buffer& buffer) { buffer->recv(peer_, chunk_slot + number); });
}

std::unique_ptr<transport::LibraryCall> GlooStream::send_long(std::uint64_t number, std::span<const std::byte> bytes) {
    if (lanes_.size() > 1) return nullptr;
    auto* const from = const_cast<std::byte*>(bytes.data());  // which a send only reads
    return begin(sends_, lanes_.front()->createUnboundBuffer(from, bytes.size()),
                 [&](Buffer& buffer) { buffer->send(peer_, chunk_slot + number); });
}

std::unique_ptr<transport::LibraryCall> GlooStream::begin(Waits& waits, Buffer buffer,
                                                          const std::function<void(Buffer&)>& start) {
    const auto outcome = std::make_shared<Outcome>();
    const auto over = [outcome](const std::string& why) {
        outcome->over(why.empty() ? nullptr : std::make_exception_ptr(DistBackendError(why)));
    };
    const std::lock_guard lock(desk().mutex);
    try {
        const QuietPipes quiet;
        start(buffer);
        waits.add({nullptr, std::move(buffer), over});
    } catch (const ::gloo::Exception& error) {
        over(std::string("gloo: a connection has broken: ") + error.what());
    } catch (const DistError& error) {
        over(error.what());
    }
    return std::make_unique<OutcomeCall>(outcome, [this] { break_off(); });
}

// A message that has begun cannot be taken back.
void GlooStream::break_off() noexcept {
    const QuietPipes quiet;
    lanes_.front()->getPair(peer_)->close();
    const std::lock_guard lock(desk().mutex);
    fail("gloo: a message of this rank was given up");
    sends_.abort();
    receives_.abort();
}

void GlooStream::drain(std::chrono::steady_clock::time_point limit) {
    std::unique_lock lock(desk().mutex);
    sends_.drain(lock, limit, [&] { return is_closed(); });
}

void GlooStream::stop() {
    const std::lock_guard lock(desk().mutex);
    sends_.stop();
    receives_.stop();
}

}  // namespace tutti::backends::gloo
