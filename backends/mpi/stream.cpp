#include "mpi/stream.hpp"

#include <cstring>
#include <memory>
#include <utility>

namespace tutti::backends::mpi {

std::size_t MpiStream::write(std::span<const std::byte> header, std::span<const std::byte> payload) {
    const std::size_t count = ChunkStream::write(header, payload);
    if (count < header.size() + payload.size()) post_.look();
    return count;
}

std::size_t MpiStream::read(std::span<std::byte> into, std::span<std::byte> ahead) {
    if (const std::size_t count = ChunkStream::read(into, ahead); count > 0) return count;
    post_.look();
    return ChunkStream::read(into, ahead);
}

bool MpiStream::delivered() const noexcept {
    post_.look();
    const std::lock_guard lock(desk().mutex);
    return is_closed() || !has_end_ || under_way_ == 0;
}

void MpiStream::pollables(bool output, std::vector<transport::Pollable>& into) const {
    ChunkStream::pollables(output, into);
    post_.expect();
}

void MpiStream::send(std::size_t /*lane*/, Kind kind, std::span<const std::byte> header,
                     std::span<const std::byte> payload) {
    auto memory = std::make_unique_for_overwrite<std::byte[]>(header.size() + payload.size());
    if (!header.empty()) std::memcpy(memory.get(), header.data(), header.size());
    if (!payload.empty()) std::memcpy(memory.get() + header.size(), payload.data(), payload.size());
    has_end_ = has_end_ || kind == Kind::end;
    ++under_way_;
    post_.send(*this, peer_, static_cast<int>(kind), std::move(memory), header.size() + payload.size());
}

void MpiStream::left(std::size_t bytes) {
    --under_way_;
    sent(bytes);
}

}  // namespace tutti::backends::mpi
