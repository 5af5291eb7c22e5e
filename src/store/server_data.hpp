// ServerData: the data of a TCP store's server, and the effect of each request on it. No sockets, no clock: requests
// come in with the id of the client's connection; answers go out through one function.
//
// Threads: one (the server's loop). Waiting requests are answered when their keys are set; nobody polls.
#pragma once

#include "core/assert.hpp"
#include "store/key_map.hpp"
#include "store/wire.hpp"

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::store {

using ConnectionId = std::uint64_t;

/// A field of an answer. `bytes` are valid during the call; `value`, if set, owns them and may be kept.
struct Field {
    std::string_view bytes;
    const Value* value = nullptr;
};

class ServerData {
 public:
    using Answer = std::function<void(ConnectionId, std::uint64_t request, Op, std::span<const Field> fields)>;
    explicit ServerData(Answer answer) : answer_(std::move(answer)) { TUTTI_ASSERT(answer_ != nullptr); }
    /// Sets what a joining worker is told besides the number of workers: the address of the server, and the name of the
    /// local door (LocalDoor) if the worker may use it (`door` decides).
    void tell_workers(std::function<std::string_view(ConnectionId)> door, std::string address) {
        door_for_ = std::move(door);
        address_ = std::move(address);
    }

    /// False: the request is invalid; close the connection.
    bool handle(ConnectionId from, const FrameHeader& header, std::string_view body);
    /// The connection is gone: drops its pending waits and executes its wills.
    void forget(ConnectionId connection);
    /// Drops the connection's pending waits alone.
    void drop_waits(ConnectionId connection);
    /// The number of requests that wait for keys.
    std::size_t waiting() const noexcept { return by_request_.size(); }

    /// Workers are told their connection's number, too.
    void name_workers() { names_workers_ = true; }

    /// The whole contents, as requests from which an empty ServerData gets the same; Op::workers is one of them.
    void save(const std::function<void(ConnectionId, Op, std::span<const std::string_view>)>& request) const;

 private:
    using Fields = std::vector<std::string_view>;
    using Request = std::uint64_t;
    struct Waiter {
        ConnectionId connection;
        Request request;
        bool wants_values;
        std::vector<std::string> keys;
        std::size_t missing = 0;  // of keys: the one under which it is listed
    };
    using Waiters = std::list<Waiter>;

    bool perform(ConnectionId from, const FrameHeader& header, const Fields& fields);
    void set_all(const Fields& fields);
    void wait_for_keys(ConnectionId from, const FrameHeader& header, const Fields& keys);
    void wait_on(Waiter waiter);
    /// Whether a key is missing: then Waiter::missing is the next one from where it was.
    bool lacks_any(Waiter& waiter) const;
    void forget_request(Waiters::iterator waiter);
    template <class Range>
    void drop_waits_in(Range range);
    template <class Keys>
    void answer_waiter(ConnectionId to, Request request, bool wants_values, const Keys& keys);
    void came(std::string_view key);
    void welcome(ConnectionId worker, Request request);
    void worker_came();
    void cancel(ConnectionId from, std::uint64_t request);
    void set_will(ConnectionId from, std::string_view key, std::string_view value);
    void reply(ConnectionId to, Request request) { answer_(to, request, Op::ok, {}); }
    void reply(ConnectionId to, Request request, std::string_view field) {
        const Field one{field};
        answer_(to, request, Op::ok, {&one, 1});
    }
    void reply_number(ConnectionId to, Request request, std::uint64_t number);

    Answer answer_;
    std::function<std::string_view(ConnectionId)> door_for_;
    std::string address_;
    KeyMap map_;
    // These keep their memory between requests.
    Fields request_fields_;
    std::vector<Value> answer_values_;
    std::vector<Field> answer_fields_;
    /// Each waiter is listed under one key that is missing; when this key is set, under the next missing one.
    std::unordered_map<std::string, Waiters> waiters_;
    std::multimap<std::pair<ConnectionId, Request>, Waiters::iterator> by_request_;
    std::uint64_t workers_ = 0;
    bool names_workers_ = false;
    struct WorkerWaiter {
        ConnectionId connection;
        std::uint64_t request;
        std::uint64_t count;
    };
    std::vector<WorkerWaiter> worker_waiters_;
    struct Will {
        std::string key, value;
    };
    std::unordered_map<ConnectionId, std::vector<Will>> wills_;
};

}  // namespace tutti::store
