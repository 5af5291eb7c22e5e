#include "gloo/stream.hpp"

#include "gloo/lanes.hpp"

#include <cstring>
#include <system_error>
#include <utility>

namespace tutti::backends::gloo {
namespace {

std::string broken(const std::exception& error) {
    return std::string("gloo: a connection has broken: ") + error.what();
}

}  // namespace

GlooStream::~GlooStream() {
    if (thread_.joinable()) thread_.join();
}

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
        const QuietPipes quiet;  // the thread inherits it
        if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
        Buffer buffer = lanes_[lane]->createUnboundBuffer(memory.get(), sizeof front + bytes);
        buffer->send(peer_, chunk_slot);
        outgoing_.push_back({std::move(memory), bytes, std::move(buffer)});
        changed_.notify_all();
    } catch (const ::gloo::Exception& error) {
        fail(broken(error));
    } catch (const std::system_error& error) {
        fail(std::string("gloo gets no thread (") + error.what() + "): how many this user may have says ulimit -u");
    }
}

void GlooStream::work() {
    std::unique_lock lock(desk().mutex);
    for (;;) {
        changed_.wait(lock, [&] { return stops_ || !outgoing_.empty(); });
        if (stops_) return;
        const Outgoing& first = outgoing_.front();  // stays where it is, since only this thread takes it away
        lock.unlock();
        std::string why;
        try {
            first.buffer->waitSend(forever);
        } catch (const ::gloo::Exception& error) {
            why = broken(error);
        }
        lock.lock();
        if (!why.empty()) fail(why);
        sent(first.bytes);
        outgoing_.pop_front();
        changed_.notify_all();
    }
}

void GlooStream::drain(std::chrono::steady_clock::time_point limit) {
    std::unique_lock lock(desk().mutex);
    changed_.wait_until(lock, limit, [&] { return outgoing_.empty() || is_closed(); });
}

// A message of which a part has been written hears nothing of the end of its connection.
void GlooStream::stop() {
    const std::lock_guard lock(desk().mutex);
    stops_ = true;
    for (const Outgoing& one : outgoing_) one.buffer->abortWaitSend();
    changed_.notify_all();
}

}  // namespace tutti::backends::gloo
