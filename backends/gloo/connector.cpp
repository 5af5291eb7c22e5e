#include "gloo/connector.hpp"

#include "gloo/collectives.hpp"
#include "gloo/lanes.hpp"

#include <tutti/error.hpp>

#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace tutti::backends::gloo {
namespace {

using namespace std::chrono_literals;

// The time that a rank that leaves waits for its last bytes to be on their way.
constexpr std::chrono::milliseconds linger_max{5000};
constexpr std::size_t receives_posted = 2;  // of each peer and lane
constexpr std::size_t room = sizeof(ChunkHeader) + ChunkStream::chunk_bytes;
// Shorter chunks go to memory of their own size, so that the room can be used again.
constexpr std::size_t kept_bytes_min = ChunkStream::chunk_bytes / 4;

}  // namespace

GlooConnector::GlooConnector(const DistributedBackendOptions& options) : lanes_(connect_lanes(options)) {
    for (int peer = 0; peer < options.group_size; ++peer)
        streams_.push_back(peer == options.group_rank ? nullptr : std::make_unique<GlooStream>(desk_, lanes_, peer));
    if (options.group_size == 1) return;
    try {
        calls_.emplace(lanes_);
        const QuietPipes quiet;  // the threads inherit it
        for (const auto& stream : streams_) {
            for (std::size_t lane = 0; stream && lane < lanes_.size(); ++lane) {
                Incoming& incoming = incoming_.emplace_back(*stream, lane);
                threads_.emplace_back([this, &incoming] { receive(incoming); });
            }
        }
    } catch (const std::system_error& error) {
        stop();
        throw DistBackendError(std::string("gloo gets no thread (") + error.what() +
                               "): how many this user may have says ulimit -u");
    }
}

GlooConnector::~GlooConnector() {
    const auto limit = std::chrono::steady_clock::now() + linger_max;
    for (const auto& stream : streams_) {
        if (stream) stream->drain(limit);
    }
    stop();
}

void GlooConnector::stop() noexcept {
    {
        const std::lock_guard lock(desk_.mutex);
        stops_ = true;
        desk_.taken.notify_all();
        for (const Incoming& incoming : incoming_) {
            for (const Receive& one : incoming.posted) one.buffer->abortWaitRecv();
        }
    }
    if (streams_.size() > 1) {
        for (const auto& lane : lanes_) close_connections(lane);
    }
    for (const auto& stream : streams_) {
        if (stream) stream->stop();
    }
    for (std::thread& thread : threads_) thread.join();
    calls_.reset();
}

transport::Stream* GlooConnector::to(int peer) {
    return streams_[static_cast<std::size_t>(peer)].get();
}

transport::Stream* GlooConnector::existing(int peer) {
    GlooStream* const stream = streams_[static_cast<std::size_t>(peer)].get();
    return stream != nullptr && stream->is_used() ? stream : nullptr;
}

bool GlooConnector::offers(const BackendRequest& request) {
    return has_collective(request);
}

std::unique_ptr<transport::LibraryCall> GlooConnector::begin(const BackendRequest& request) {
    return calls_->begin(request);
}

std::unique_ptr<transport::LibraryCall> GlooConnector::receive(int peer, std::uint64_t number,
                                                               std::span<std::byte> into) {
    return streams_[static_cast<std::size_t>(peer)]->receive_long(number, into);
}

std::unique_ptr<transport::LibraryCall> GlooConnector::send(int peer, std::uint64_t number,
                                                            std::span<const std::byte> bytes) {
    return streams_[static_cast<std::size_t>(peer)]->send_long(number, bytes);
}

// ---- Its threads

void GlooConnector::receive(Incoming& incoming) {
    std::string why;
    try {
        while (receive_one(incoming)) {
        }
        return;
    } catch (const ::gloo::Exception& error) {
        why = std::string("gloo: a connection has broken: ") + error.what();
    } catch (const std::exception& error) {
        why = std::string("gloo: ") + error.what();
    }
    const std::lock_guard lock(desk_.mutex);
    incoming.stream.fail(why);
}

// Before chunks come: their sender need not ask first. False: this rank leaves.
bool GlooConnector::post_receives(Incoming& incoming) {
    std::unique_lock lock(desk_.mutex);
    desk_.taken.wait(lock, [&] { return stops_ || !desk_.is_full(); });
    while (!stops_ && incoming.posted.size() < receives_posted) {
        auto memory = std::make_shared_for_overwrite<std::byte[]>(room);
        Buffer buffer = lanes_[incoming.lane]->createUnboundBuffer(memory.get(), room);
        buffer->recv(incoming.stream.peer(), chunk_slot);
        incoming.posted.push_back({std::move(memory), std::move(buffer)});
    }
    return !stops_;
}

// False: this rank leaves.
bool GlooConnector::receive_one(Incoming& incoming) {
    if (!post_receives(incoming)) return false;
    if (!incoming.posted.front().buffer->waitRecv(forever)) return false;
    std::shared_ptr<std::byte[]> memory = incoming.posted.front().memory;
    ChunkHeader header;
    std::memcpy(&header, memory.get(), sizeof header);
    const std::size_t bytes = std::min<std::size_t>(header.bytes, ChunkStream::chunk_bytes);
    const std::byte* at = memory.get() + sizeof header;
    if (bytes < kept_bytes_min) {
        auto own = std::make_shared_for_overwrite<std::byte[]>(bytes);
        std::memcpy(own.get(), at, bytes);
        memory = std::move(own);
        at = memory.get();
    }
    const std::lock_guard lock(desk_.mutex);
    incoming.posted.pop_front();
    incoming.stream.arrived(incoming.lane, header.kind, memory, {at, bytes});
    return true;
}

}  // namespace tutti::backends::gloo
