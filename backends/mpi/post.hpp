// Post: a group's traffic in MPI: chunks of its streams, long messages, and the collective that is under way. MPI moves
// nothing unless it is called, and tells nobody when something has moved. So the rank's thread calls it whenever it
// looks; while that thread sleeps, and while something of this rank is on its way, a thread of the post does.
//
// Threads: any, except where functions need the desk's mutex, under which all calls of MPI are made.
#pragma once

#include "common/chunk_stream.hpp"
#include "mpi/collectives.hpp"
#include "mpi/communicators.hpp"

#include <tutti/transport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace tutti::backends::mpi {

class MpiStream;

/// A collective, or one end of a long message, that MPI carries out.
struct Task {
    Begun begun;
    bool is_message = false;
    bool is_over = false;
    std::exception_ptr error{};
    Bell bell{};
    /// Lets MPI go on; true if it is over.
    bool look() noexcept;
    void end(std::exception_ptr why) noexcept;
};

class Post {
 public:
    explicit Post(std::shared_ptr<Communicators> communicators);
    ~Post();
    Post(const Post&) = delete;
    Post& operator=(const Post&) = delete;

    Desk& desk() noexcept { return desk_; }
    /// The streams of this rank, by peer, which live as long as the traffic. Begins it; throws DistBackendError if the
    /// system gives no thread.
    void start(std::vector<MpiStream*> streams);
    /// Waits for a bounded time until all chunks have left, but not for those of closed streams; then nothing more
    /// moves.
    void stop() noexcept;
    /// The rank's thread is awake: lets MPI go on.
    void look() noexcept;
    /// The rank's thread is about to sleep, and expects something.
    void expect() noexcept;

    /// Under the mutex. Never waits; a stream that cannot be sent over any more fails.
    void send(MpiStream& stream, int to, int tag, std::unique_ptr<std::byte[]> memory, std::size_t bytes);
    /// Begins a collective that MPI has. Throws DistError.
    std::shared_ptr<Task> begin(const BackendRequest& request);
    /// A long message goes from one rank's memory to the other's (transport::Streams::receive and send).
    std::shared_ptr<Task> receive(int from, std::uint64_t number, std::span<std::byte> into);
    std::shared_ptr<Task> send(int to, std::uint64_t number, std::span<const std::byte> bytes);
    /// Not over: MPI cannot take it back, so this process calls it no more.
    void give_up(Task& task) noexcept;

 private:
    struct Outgoing {
        MpiStream* stream;
        std::unique_ptr<std::byte[]> memory;
        std::size_t bytes;
        MPI_Request request = MPI_REQUEST_NULL;
    };
    struct Incoming {
        int tag;
        std::shared_ptr<std::byte[]> memory;
        std::size_t bytes;
        MPI_Request request = MPI_REQUEST_NULL;
    };

    bool turn() noexcept;
    bool look_after_sends();
    bool receive_one();
    bool look_after_receives();
    bool look_after_tasks();
    using BeginPiece = std::function<void(std::size_t at, int bytes, MPI_Request* request)>;
    std::shared_ptr<Task> begin_message(std::size_t bytes, const BeginPiece& begin_piece);
    bool has_message() const noexcept;
    bool has_to_look() const noexcept;
    void fail(const std::string& why);
    void work();

    const std::shared_ptr<Communicators> communicators_;
    Desk desk_;
    std::condition_variable changed_;
    std::vector<MpiStream*> streams_;  // by rank; null: this one
    std::list<Outgoing> outgoing_;
    std::vector<std::deque<Incoming>> incoming_;  // by rank, in order
    std::size_t incoming_bytes_ = 0;
    std::set<int> open_peers_;                // that have not ended
    std::list<std::shared_ptr<Task>> tasks_;  // that are under way
    std::chrono::steady_clock::time_point expected_until_{};
    bool stops_ = false;
    std::thread thread_;
};

}  // namespace tutti::backends::mpi
