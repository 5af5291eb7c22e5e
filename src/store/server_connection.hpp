// ServerConnection: one client's connection at the server: its TCP or Unix socket, the pipe for its posts, the input so
// far from both, and the answers to send.
//
// Threads: the server's loop. Answers are collected until flush(), so that all answers to one piece of input leave
// together; large values are sent without a copy, and kept until they are sent.
#pragma once

#include "security/entrance.hpp"
#include "store/server_data.hpp"
#include "store/wire.hpp"

#include <uv.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::store {

struct ServerConnection {
    using Broken = void (*)(ServerConnection&);
    ServerConnection(void* its_owner, Broken on_broken, ConnectionId name)
        : owner(its_owner), broken(on_broken), id(name) {}

    void* owner;
    Broken broken;  ///< called when a later, queued write fails
    ConnectionId id;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket{};
    int fd = -1;
    bool closing = false;
    bool unsent = false;                           ///< flush() is due, or large values have been sent
    bool proved = false;                           ///< the client has proved the secret
    std::uint64_t heard_in = 0;                    ///< see Crowd
    std::optional<security::Entrance> entrance{};  ///< over TCP, until `proved`
    std::unique_ptr<security::Tls> tls{};          ///< once `proved`, if the client uses TLS
    std::string objection{};                       ///< to this client: the answer to each of its requests
    std::string door_proof{};                      ///< at the local door: the part received so far
    FrameReader frames{};
    std::list<ServerConnection>::iterator where{};

    // The pipe for posts, if a client at the local door has asked for one.
    uv_pipe_t posts{};
    int posts_fd = -1;
    std::uint32_t posts_done = 0;
    FrameReader post_frames{};
    int open_handles = 1;  ///< the socket, and the pipe if there is one

    /// False: the connection is broken.
    bool answer(std::uint64_t request, Op op, std::span<const Field> fields, std::uint64_t body_bytes);
    bool send(std::string_view bytes);
    bool flush();
    /// Whether the kernel has everything that was flushed.
    bool has_sent_all() const { return uv_stream_get_write_queue_size(&socket.stream) == 0; }
    /// As flush(), for the records that TLS has to send.
    bool send_records();
    /// Best effort: tells a TLS client that nothing more will follow.
    void say_end();

 private:
    bool write(std::string_view bytes, const Field& large);
    bool write_as_it_is(std::string_view bytes, const Field& large);
    std::string out_;
};

}  // namespace tutti::store
