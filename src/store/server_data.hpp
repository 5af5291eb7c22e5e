// ServerData: what a TCP store's server holds, and what each request does to it. No sockets, no clock: requests come
// in with the name of the client's connection, answers go out through one function.
//
// Threads: one (the server's loop). Waiting requests are answered when their keys come; nobody polls.
#pragma once

#include "store/key_map.hpp"
#include "store/wire.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti::store {

using ConnectionId = std::uint64_t;

class ServerData {
 public:
    using Answer = std::function<void(ConnectionId, std::uint64_t request, Op, std::vector<Value> fields)>;
    explicit ServerData(Answer answer) : answer_(std::move(answer)) {}

    /// False: the request makes no sense, close the connection.
    bool handle(ConnectionId from, const FrameHeader& header, std::string_view body);
    /// The connection is gone, with what it waited for.
    void forget(ConnectionId connection);
    std::size_t waiting() const noexcept { return waiters_.size(); }

 private:
    using Fields = std::vector<std::string_view>;
    struct Waiter {
        ConnectionId connection;
        std::uint64_t request;
        bool wants_values;
        std::vector<std::string> keys;
    };

    bool perform(ConnectionId from, const FrameHeader& header, const Fields& fields);
    void wait_for_keys(Waiter waiter);
    /// Answers it if all its keys exist; else returns the first that does not.
    const std::string* missing(const Waiter& waiter) const;
    void answer_waiter(const Waiter& waiter);
    void came(std::string_view key);
    void worker_came();
    void cancel(ConnectionId from, std::uint64_t request);
    void reply(ConnectionId to, std::uint64_t request, std::vector<Value> fields = {}) {
        answer_(to, request, Op::ok, std::move(fields));
    }

    Answer answer_;
    KeyMap map_;
    /// Each waiter is listed under one key that it misses; when that comes, under the next.
    std::unordered_multimap<std::string, Waiter> waiters_;
    std::uint64_t workers_ = 0;
    struct WorkerWaiter {
        ConnectionId connection;
        std::uint64_t request;
        std::uint64_t count;
    };
    std::vector<WorkerWaiter> worker_waiters_;
};

}  // namespace tutti::store
