#include "transport/single_copy_receives.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::transport {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

}  // namespace

std::uint64_t SingleCopyReceives::address_for(int to, std::span<const std::byte> message) const {
    TUTTI_ASSERT(to >= 0);
    if (const std::uint64_t place = place_of(to, message); place != 0) return place;
    const bool by_address =
        message.size() >= from_bytes_ && neighbours_ != nullptr && neighbours_->memory_of(to) != nullptr;
    return by_address ? reinterpret_cast<std::uint64_t>(message.data()) : 0;
}

bool SingleCopyReceives::can_read(int source, std::uint64_t address) const {
    TUTTI_ASSERT(source >= 0);
    if (neighbours_ == nullptr) return false;
    return Place(address) || (address != 0 && neighbours_->memory_of(source) != nullptr);
}

SingleCopyReceives::Progress SingleCopyReceives::progress(Bounce& bounce) {
    TUTTI_ASSERT(!pulls_.empty());
    const Pull pull = pulls_.front();
    Transfer& receive = *pull.receive;
    TUTTI_ASSERT(!receive.done && receive.bytes_done <= receive.bytes);
    TUTTI_ASSERT(receive.element_bytes > 0 && receive.element_bytes <= Bounce::usual_bytes);
    TUTTI_ASSERT(receive.peer == pull.source);
    const std::size_t whole_elements = Bounce::usual_bytes / receive.element_bytes * receive.element_bytes;
    const std::size_t piece =
        std::min(receive.bytes - receive.bytes_done, receive.on_bytes ? whole_elements : piece_bytes);
    bool read = false;
    const bool stood = neighbours_->read_offered(pull.source, [&] { read = read_piece(pull, piece, bounce); });
    if (stood && read) {
        receive.bytes_done += piece;
        TUTTI_ASSERT(receive.bytes_done <= receive.bytes);
        if (receive.bytes_done < receive.bytes) return {Outcome::some, pull};
        receive.done = true;
    }
    pulls_.pop();
    return {!stood ? Outcome::revoked : read ? Outcome::whole : Outcome::closed, pull};
}

bool SingleCopyReceives::read_piece(const Pull& pull, std::size_t piece, Bounce& bounce) const {
    TUTTI_ASSERT(pull.source >= 0 && pull.receive != nullptr);
    Transfer& receive = *pull.receive;
    TUTTI_ASSERT(piece <= receive.bytes - receive.bytes_done);
    TUTTI_ASSERT(!receive.on_bytes || piece % receive.element_bytes == 0);
    if (Place(pull.address)) {
        const std::byte* from = neighbours_->at_place(pull.source, pull.address, receive.bytes);
        if (from == nullptr) return false;
        from += receive.bytes_done;
        if (receive.on_bytes)
            receive.on_bytes(receive.bytes_done, std::span(from, piece));
        else
            std::memmove(receive.target + receive.bytes_done, from, piece);
        return true;
    }
    TUTTI_ASSERT(neighbours_->memory_of(pull.source) != nullptr);
    const PeerMemory& memory = *neighbours_->memory_of(pull.source);
    std::byte* const to =
        receive.on_bytes ? bounce.of(Bounce::usual_bytes).data() : receive.target + receive.bytes_done;
    if (!memory.read(to, pull.address + receive.bytes_done, piece) || !memory.same()) return false;
    if (receive.on_bytes) receive.on_bytes(receive.bytes_done, std::span(to, piece));
    return true;
}

}  // namespace tutti::transport
