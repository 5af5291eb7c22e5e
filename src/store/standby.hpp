// Standby: the part of a TCP store's server that keeps the store's contents in two servers, the primary and its
// standby. The primary sends each change to the standby and holds back all answers that show it until the standby has
// it. Succession decides which of the two goes on when one is lost.
//
// A client is known by the connection on which it joined, also at the standby, to which it comes by another. Its
// changes are numbered. Both servers keep the answer to the last one, so that a change that is asked for again is not
// made again.
//
// Threads: the server's loop; role() and expect_end() any.
#pragma once

#include "core/socket.hpp"
#include "store/server_data.hpp"
#include "store/succession.hpp"
#include "store/wire.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti::store {

class Follower;

/// What a server tells a witness: whether it serves.
enum class Standing : std::uint8_t { serves = 0, waits = 1, doubts = 2 };

class Standby {
 public:
    /// What the server's loop does.
    struct Loop {
        std::function<void(ConnectionId, std::uint64_t request, Op, std::span<const Field>)> send;
        /// Sends a frame after which nothing comes, and if it cannot leave at once, sees to it that the connection
        /// does not end in order.
        std::function<void(ConnectionId, Op)> send_last;
        std::function<void(ConnectionId)> close;
        std::function<std::string(ConnectionId)> host_of;  ///< the address of the connection's other end
    };
    /// `follower`: the connection to the primary, if this server is its standby; it must outlive this object.
    Standby(ServerData& data, Loop loop, Follower* follower);

    /// False: the request is invalid; close the connection.
    bool handle(ConnectionId from, const FrameHeader& header, std::string_view body);
    /// ServerData's answer.
    void answer(ConnectionId to, std::uint64_t request, Op op, std::span<const Field> fields);
    /// A connection has ended; `in_order`: its peer has closed it.
    void gone(ConnectionId connection, bool in_order);
    /// To be called at each pulse, and when the follower has received something.
    void look();
    Succession::Role role() const noexcept { return role_; }
    /// The other server ends soon, as all does: its loss is not told.
    void expect_end() noexcept { expects_end_ = true; }
    static SuccessionTimes times() { return {}; }

 private:
    /// A client's last change, and its answer.
    struct Client {
        ConnectionId connection = 0;  ///< 0: it has not come (yet)
        std::uint32_t change = 0;
        Op op = Op::ok;
        std::string answer{};
    };
    struct Held {
        std::uint64_t seq;
        ConnectionId to;  ///< connection
        std::uint64_t request;
        Op op;
        std::vector<std::pair<std::string, Value>> fields;
    };
    struct Witness {
        ConnectionId connection;
        std::uint64_t request;
        Instant until;
    };

    ClientId client_of(ConnectionId connection) const;
    bool change(ClientId client, const FrameHeader& header, std::string_view body);
    void make_change(ClientId client, Op op, std::uint32_t number, std::uint64_t request, std::string_view body);
    void follow(ClientId client, Op op, std::uint32_t number, std::string_view body);
    void let_go(ClientId client);
    void send_fields(ConnectionId to, std::uint64_t request, Op op, std::initializer_list<std::string_view> fields);
    void release();
    bool hear_witness(ConnectionId from, const FrameHeader& header, std::string_view body);
    void tell(const Witness& witness);
    bool resume(ConnectionId from, const FrameHeader& header, std::string_view body);
    bool welcome_standby(ConnectionId from, const FrameHeader& header, std::string_view body);
    bool welcome_report(ConnectionId from, const FrameHeader& header, std::string_view body);
    bool hear_standby(const FrameHeader& header, std::string_view body);
    void send_everything();
    void begin_term();
    void hear_primary();
    bool take(const FrameHeader& header, std::string_view body);
    void lose_other(const net::Address& other, bool in_order);
    void notice();
    std::string other_name() const;

    ServerData& data_;
    Loop loop_;
    Follower* follower_;
    Succession succession_;
    std::atomic<Succession::Role> role_;
    std::atomic<bool> expects_end_{false};
    std::uint64_t seq_ = 0;  // of the last change
    std::unordered_map<ClientId, Client> clients_;
    std::unordered_map<ConnectionId, ClientId> resumed_;  // connections of clients that came from the other server
    std::deque<Held> held_;
    ClientId changing_ = 0;  // whose change is being made, for its answer
    std::uint64_t changing_request_ = 0;
    bool changing_counts_ = false;

    std::vector<Witness> witnesses_;
    std::uint64_t version_ = 1;  // of what witnesses are told
    Standing told_standing_;
    Term told_term_ = 0;

    ConnectionId standby_ = 0, report_ = 0;  // the primary's: where it speaks to the standby, and hears it
    net::Address other_;                     // where the standby listens; of the primary, at the standby
    Instant pulsed_{};
    std::int64_t heard_pulse_ = 0;  // this and the next two are the standby's
    bool primary_lost_ = false;
    FrameReader frames_;
    std::optional<Instant> came_to_power_;
};

}  // namespace tutti::store
