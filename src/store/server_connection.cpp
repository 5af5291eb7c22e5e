#include "store/server_connection.hpp"

#include "core/assert.hpp"

#include <array>
#include <memory>

namespace tutti::store {
namespace {

/// Fields from here on are not copied.
constexpr std::size_t large_bytes = std::size_t{16} << 10U;
/// The most bytes to gather, about.
constexpr std::size_t gathered_max = std::size_t{64} << 10U;
/// The bytes of a large value to encrypt at once.
constexpr std::size_t piece_bytes = std::size_t{1} << 20U;

/// Bytes that did not fit into the socket at once.
struct PendingWrite {
    uv_write_t request{};
    std::string bytes;
    Value value;
};

uv_buf_t buffer_of(std::string_view bytes) {
    return {const_cast<char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool ServerConnection::answer(std::uint64_t request, Op op, std::span<const Field> fields, std::uint64_t body_bytes) {
    TUTTI_ASSERT(proved && body_bytes <= max_body_bytes);
    TUTTI_ASSERT(body_bytes >= fields.size() * field_header_bytes);
    const auto header = encode({op, request, body_bytes});
    out_.append(header.data(), header.size());
    for (const Field& field : fields) {
        const auto size = encode_number(field.bytes.size());
        out_.append(size.data(), size.size());
        if (field.bytes.size() < large_bytes || field.value == nullptr) {
            out_ += field.bytes;
            if (out_.size() >= gathered_max && !flush()) return false;
        } else {
            if (!write(out_, field)) return false;
            out_.clear();
        }
    }
    return true;
}

bool ServerConnection::send(std::string_view bytes) {
    return write(bytes, {});
}

bool ServerConnection::flush() {
    if (out_.empty()) return true;
    const bool good = write(out_, {});
    if (out_.capacity() > 2 * gathered_max) out_ = {};
    out_.clear();
    TUTTI_ASSERT(out_.empty());
    return good;
}

// Makes records of a large value, piece_bytes at once.
bool ServerConnection::write(std::string_view bytes, const Field& large) {
    TUTTI_ASSERT(large.bytes.empty() || large.value != nullptr);
    if (!tls) return write_as_it_is(bytes, large);
    if (!tls->write(std::as_bytes(std::span(bytes)))) return false;
    for (std::string_view rest = large.bytes; !rest.empty(); rest.remove_prefix(std::min(rest.size(), piece_bytes))) {
        if (!tls->write(std::as_bytes(std::span(rest.substr(0, piece_bytes)))) || !send_records()) return false;
    }
    return send_records();
}

bool ServerConnection::send_records() {
    TUTTI_ASSERT(tls != nullptr);
    const auto records = tls->output().bytes();
    if (records.empty()) return true;
    const bool good = write_as_it_is({reinterpret_cast<const char*>(records.data()), records.size()}, {});
    tls->output().remove(records.size());
    return good;
}

void ServerConnection::say_end() {
    if (!tls || fd < 0) return;
    tls->end();
    (void)send_records();
}

bool ServerConnection::write_as_it_is(std::string_view bytes, const Field& large) {
    std::array<uv_buf_t, 2> buffers{buffer_of(bytes), buffer_of(large.bytes)};
    const unsigned count = large.bytes.empty() ? 1 : 2;
    // Most answers fit into the socket's buffer at once.
    const int result = uv_try_write(&socket.stream, buffers.data(), count);
    if (result < 0 && result != UV_EAGAIN) return false;
    const std::size_t done = result > 0 ? static_cast<std::size_t>(result) : 0;
    TUTTI_ASSERT(done <= bytes.size() + large.bytes.size());
    if (done == bytes.size() + large.bytes.size()) return true;
    auto write = std::make_unique<PendingWrite>();
    write->bytes = bytes.substr(std::min(done, bytes.size()));
    if (large.value != nullptr) write->value = *large.value;
    write->request.data = write.get();
    buffers = {buffer_of(write->bytes), buffer_of(large.bytes.substr(done - std::min(done, bytes.size())))};
    const int queued =
        uv_write(&write->request, &socket.stream, buffers.data(), count, [](uv_write_t* request, int status) {
            const std::unique_ptr<PendingWrite> finished(static_cast<PendingWrite*>(request->data));
            TUTTI_ASSERT(finished != nullptr && request->handle->data != nullptr);
            auto& connection = *static_cast<ServerConnection*>(request->handle->data);
            if (status != 0) connection.broken(connection);
        });
    if (queued != 0) return false;
    (void)write.release();  // the callback owns it, and always comes
    return true;
}

}  // namespace tutti::store
