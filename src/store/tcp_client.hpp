// TcpClient: one authenticated connection to a TcpServer, shared by the threads of a process.
//
// Threads: any. Requests are pipelined: a call that waits does not hold up another thread's. There is no reader
// thread: of the threads that wait for an answer, one reads for all (and passes the task on when its own answer has
// come), so that a single caller's round trip needs no switch between threads.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "core/unique_fd.hpp"
#include "security/secret.hpp"
#include "store/wire.hpp"

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti::store {

class TcpClient {
 public:
    /// Connects, also when the server comes later, and proves the secret. `name` begins every message.
    TcpClient(const net::Address& server, const security::Secret& secret, std::string name, const Deadline& deadline,
              const AbortFlag* abort);
    ~TcpClient();
    TcpClient(const TcpClient&) = delete;
    TcpClient& operator=(const TcpClient&) = delete;

    /// The body of the answer. Timeout at the deadline; DistStoreError when the server says so or is gone.
    std::string call(Op op, std::span<const std::string_view> fields, const Deadline& deadline, const AbortFlag* abort);

    const std::string& local_host() const noexcept { return local_host_; }

 private:
    struct Pending {
        std::condition_variable woken;
        bool done = false;
        Op op{};
        std::string body;
    };

    void connect(const net::Address& server, const security::Secret& secret, const Deadline& deadline,
                 const AbortFlag* abort);
    void check_process() const;
    void send_request(const FrameHeader& header, std::span<const std::string_view> fields, const Deadline& deadline,
                      const AbortFlag* abort);
    void await_answer(Pending& mine, const Deadline& deadline, const AbortFlag* abort);
    void read_until(const Pending& mine, const Deadline& deadline, const AbortFlag* abort);
    void take(std::string_view bytes);
    void cancel(std::uint64_t request);
    void break_connection(const std::string& cause);
    [[noreturn]] void throw_broken() const;

    std::string name_;
    pid_t owner_;
    UniqueFd fd_;
    std::string local_host_;  // our end's address

    std::mutex mutex_;  // guards what follows, but for the reader's part
    std::condition_variable writer_left_;
    bool writing_ = false;
    bool reading_ = false;
    std::string broken_;
    std::uint64_t last_request_ = 0;
    std::unordered_map<std::uint64_t, Pending*> pending_;

    // Of the thread that reads.
    FrameReader frames_;
    std::vector<char> buffer_;
};

}  // namespace tutti::store
