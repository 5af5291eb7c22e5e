// TcpClient: one authenticated connection to a TcpServer, shared by the threads of a process.
//
// Threads: any. Requests are pipelined: a waiting call does not block another thread's. There is no reader thread: one
// of the threads that wait for an answer reads for all (and hands over when its own answer has come), so that a single
// caller's round trip needs no thread switch.
#pragma once

#include "core/deadline.hpp"
#include "core/fork_guard.hpp"
#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "core/unique_fd.hpp"
#include "security/secret.hpp"
#include "security/wire.hpp"
#include "store/posts.hpp"
#include "store/spin.hpp"
#include "store/wire.hpp"

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::store {

class TcpClient {
 public:
    /// Connects, waiting for a server that starts later if `refusal` says so, and proves the secret. `name` begins
    /// every error message.
    TcpClient(const net::Address& server, const security::Secret& secret, std::string name, const Deadline& deadline,
              const AbortFlag* abort, net::Refusal refusal = net::Refusal::not_yet);
    TcpClient(const TcpClient&) = delete;
    TcpClient& operator=(const TcpClient&) = delete;

    /// Sends a request; returns the body of the answer. Throws Timeout; DistStoreError if the server reports an error
    /// or is gone; InvalidArgument if it refuses this client.
    /// `change`: the number of a change, for a server that may have a standby.
    std::string call(Op op, std::span<const std::string_view> fields, const Deadline& deadline, const AbortFlag* abort,
                     std::uint32_t change = 0);

    /// Sends a small request that the server does not answer (Op::post). Returns false and sends nothing if the server
    /// has been silent for some time or many posts, and may thus be dead or stopped, or if there is no room: use call()
    /// then. If posts are lost because the server died, the next call() reports it.
    bool try_post(Op op, std::span<const std::string_view> fields, std::chrono::milliseconds timeout,
                  const AbortFlag* abort);

    /// Switches from TCP to the server's local door (see LocalDoor), if it can be reached. Call it before other threads
    /// use this object.
    void move_to(const std::string& door, const security::Secret& secret);

    /// Ends the connection: all calls, now and later, throw DistStoreError with this cause.
    void give_up(const std::string& cause) { break_connection(cause); }
    /// Why the connection has ended; empty: it has not.
    std::string cause();
    /// What the errors of a lost connection say is lost with the server; before any other call.
    void loses(std::string what) { lost_ = std::move(what); }

    /// The connection, for one reader and one writer that use it instead of calls; valid as long as this object.
    struct Raw {
        int fd;
        security::Wire& wire;
    };
    Raw raw() { return {fd_.get(), wire_}; }

    /// The numeric address of this end of the TCP connection.
    const std::string& local_host() const noexcept { return local_host_; }

 private:
    struct Pending {
        std::uint64_t request = 0;
        std::uint32_t posts = 0;  ///< written to the pipe before this request
        std::condition_variable woken{};
        bool done = false;
        Op op{};
        std::string body{};
    };

    std::uint64_t check_size(std::span<const std::string_view> fields) const;
    void use(UniqueFd fd);
    void throw_if_gone(std::unique_lock<std::mutex>& lock);
    UniqueFd connect(const net::Address& server, const security::Secret& secret, const Deadline& deadline,
                     const AbortFlag* abort, net::Refusal refusal);
    void prove(int fd, const security::Secret& secret, const Deadline& deadline, const AbortFlag* abort);
    void check_process() const;
    /// Waits for its turn to write, and registers the answer that is expected.
    std::uint64_t begin_request(Pending& mine, const Deadline& deadline, const AbortFlag* abort);
    void send_request(const FrameHeader& header, std::span<const std::string_view> fields, const Deadline& deadline,
                      const AbortFlag* abort);
    template <class Write>
    void finish_writing(Write&& write);
    void send(std::string_view bytes, const Deadline& deadline, const AbortFlag* abort);
    void compose_header(const FrameHeader& header);
    void compose_field(std::string_view field, bool with_bytes);
    void end_request() noexcept;
    void await_answer(Pending& mine, const Deadline& deadline, const AbortFlag* abort);
    void read_until(const Pending& mine, const Deadline& deadline, const AbortFlag* abort);
    /// False when the connection has ended.
    bool look();
    bool took(ssize_t received);
    void take(std::string_view bytes);
    void cancel(std::uint64_t request);
    void break_connection(const std::string& cause);
    [[noreturn]] void throw_broken() const;

    std::string name_;
    pid_t owner_;
    unsigned generation_;
    bool local_ = false;
    fork_guard::GuardedFd fd_;
    security::Wire wire_;     // on fd_
    std::string local_host_;  // our end's address

    std::mutex mutex_;  // guards the members below, except the reader's
    std::condition_variable writer_left_;
    bool writing_ = false;
    bool reading_ = false;
    std::string broken_;
    std::string lost_;
    std::uint64_t last_request_ = 0;
    std::vector<Pending*> pending_;
    Posts posts_;  // posts.hpp says which calls need no lock

    // Used by the thread that writes.
    std::string output_;

    // Used by the thread that reads.
    FrameReader frames_;
    std::vector<char> buffer_;
    Spin spin_;
    bool may_spin_;
};

}  // namespace tutti::store
