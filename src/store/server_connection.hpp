// ServerConnection: one client at the server: its TCP or Unix socket, the pipe for its posts, the input so far from
// both, and the answers to send.
//
// Threads: the server's loop. Answers are collected until flush(), so that all answers to one piece of input leave
// together; large values are sent without a copy, and kept until then.
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
    Broken broken;  ///< called when a write fails later on
    ConnectionId id;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket{};
    int fd = -1;
    bool closing = false;
    bool unsent = false;                           ///< there is something to flush, or large values have left
    bool proved = false;                           ///< it knows the secret
    std::uint64_t heard_in = 0;                    ///< see Crowd
    std::optional<security::Entrance> entrance{};  ///< over TCP, until it is proved
    std::unique_ptr<security::Tls> tls{};          ///< once it is proved, if the client came by TLS
    std::string objection{};                       ///< to it: the answer to each of its requests
    std::string door_proof{};                      ///< the part that has come, at the local door
    FrameReader frames{};
    std::list<ServerConnection>::iterator where{};

    // Posts come here from a client at the local door that asked for a pipe.
    uv_pipe_t posts{};
    int posts_fd = -1;
    std::uint32_t posts_done = 0;
    FrameReader post_frames{};
    int open_handles = 1;  ///< the socket, and the pipe

    /// False: the connection is broken.
    bool answer(std::uint64_t request, Op op, std::span<const Field> fields, std::uint64_t body_bytes);
    bool send(std::string_view bytes);
    bool flush();
    /// The same for records that TLS has to send.
    bool send_records();
    /// Best effort: says that nothing more will come.
    void say_end();

 private:
    bool write(std::string_view bytes, const Field& large);
    bool write_as_it_is(std::string_view bytes, const Field& large);
    std::string out_;
};

}  // namespace tutti::store
