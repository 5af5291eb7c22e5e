#include "gloo/connector.hpp"

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
constexpr std::size_t receives_posted = 4;  // of each lane
constexpr std::size_t room = sizeof(ChunkHeader) + ChunkStream::chunk_bytes;
// Shorter chunks go to memory of their own size, so that the room can be used again.
constexpr std::size_t kept_bytes_min = ChunkStream::chunk_bytes / 4;

// Gloo refuses to receive over a broken connection. Nothing is ever sent to this slot.
bool is_broken(::gloo::Context& lane, int rank) {
    char nothing = 0;
    try {
        lane.createUnboundBuffer(&nothing, 1)->recv(rank, chunk_slot + 1);
        return false;
    } catch (const ::gloo::Exception&) {
        return true;
    }
}

}  // namespace

GlooConnector::GlooConnector(const DistributedBackendOptions& options)
    : lanes_(connect_lanes(options)), receiving_(lanes_.size()) {
    for (int peer = 0; peer < options.group_size; ++peer)
        streams_.push_back(peer == options.group_rank ? nullptr : std::make_unique<GlooStream>(desk_, lanes_, peer));
    if (options.group_size == 1) return;
    try {
        calls_.emplace(lanes_);
        const QuietPipes quiet;  // the threads inherit it
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) threads_.emplace_back([this, lane] { receive(lane); });
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
        for (const auto& list : receiving_) {
            for (const Incoming& one : list) one.buffer->abortWaitRecv();
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

std::unique_ptr<transport::LibraryCall> GlooConnector::begin(const BackendRequest& request) {
    return calls_ ? calls_->begin(request) : nullptr;
}

// ---- Its threads

void GlooConnector::receive(std::size_t lane) {
    for (;;) {
        try {
            if (!receive_one(lane)) return;
        } catch (const ::gloo::Exception& error) {
            fail_broken(error.what());
        } catch (const std::exception& error) {
            const std::lock_guard lock(desk_.mutex);
            for (const auto& stream : streams_) {
                if (stream) stream->fail(std::string("gloo: ") + error.what());
            }
            return;
        }
    }
}

// Several at once, so that ranks that send need not wait for each other. False: this rank leaves.
bool GlooConnector::post_receives(std::size_t lane) {
    std::unique_lock lock(desk_.mutex);
    desk_.taken.wait(lock, [&] { return stops_ || !desk_.is_full(); });
    if (stops_) return false;
    std::vector<int> others;
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
        if (streams_[rank] && !streams_[rank]->is_closed()) others.push_back(static_cast<int>(rank));
    }
    auto& list = receiving_[lane];
    while (list.size() < receives_posted && !others.empty()) {
        auto memory = std::make_shared_for_overwrite<std::byte[]>(room);
        Buffer buffer = lanes_[lane]->createUnboundBuffer(memory.get(), room);
        buffer->recv(others, chunk_slot);
        list.push_back({std::move(memory), std::move(buffer)});
    }
    return !list.empty();
}

// A chunk of any rank. False: this rank leaves.
bool GlooConnector::receive_one(std::size_t lane) {
    if (!post_receives(lane)) return false;
    auto& list = receiving_[lane];
    const auto drop_first = [&] {
        const std::lock_guard lock(desk_.mutex);
        list.pop_front();
    };
    int from = -1;
    try {
        if (!list.front().buffer->waitRecv(&from, forever)) return false;
    } catch (const ::gloo::Exception&) {
        drop_first();
        throw;
    }
    std::shared_ptr<std::byte[]> memory = list.front().memory;
    drop_first();
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
    streams_[static_cast<std::size_t>(from)]->arrived(lane, header.kind, memory, {at, bytes});
    return true;
}

// One of the connections, within a message. Gloo does not say whose.
void GlooConnector::fail_broken(const char* why) {
    std::this_thread::sleep_for(20ms);
    const std::lock_guard lock(desk_.mutex);
    for (std::size_t rank = 0; rank < streams_.size(); ++rank) {
        if (!streams_[rank]) continue;
        for (const auto& lane : lanes_) {
            if (is_broken(*lane, static_cast<int>(rank)))
                streams_[rank]->fail(std::string("gloo: a connection has broken: ") + why);
        }
    }
}

}  // namespace tutti::backends::gloo
