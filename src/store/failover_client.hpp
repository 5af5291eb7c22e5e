// FailoverClient: a client of a store that two servers may serve, one after the other. When the one is lost it goes to
// the other, and asks again for what was not answered; each change has a number, so that none is made twice.
//
// Threads: any may call; a thread of its own, the witness, learns over a connection of its own which server serves, and
// gives this client's vote (succession.hpp).
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "security/secret.hpp"
#include "store/standby.hpp"
#include "store/succession.hpp"
#include "store/tcp_client.hpp"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

namespace tutti::store {

class FailoverClient {
 public:
    /// `first`: the connection by which this client, `id`, has joined at `server`; it must outlive this object.
    /// `standby`: its address, if the caller knows one beforehand; the server may name another one.
    FailoverClient(TcpClient& first, ClientId id, const net::Address& server, const security::Secret& secret,
                   std::string name, const std::optional<net::Address>& standby);
    ~FailoverClient();
    FailoverClient(const FailoverClient&) = delete;
    FailoverClient& operator=(const FailoverClient&) = delete;

    /// As TcpClient::call(). DistStoreError, which names both servers, when none of them serves for failover_limit.
    std::string call(Op op, std::span<const std::string_view> fields, const Deadline& deadline, const AbortFlag* abort);

 private:
    using Shared = std::shared_ptr<TcpClient>;
    struct Place {
        net::Address address;
        std::string name;
    };
    bool is_forked() const;
    std::string call_until_answered(Op op, std::span<const std::string_view> fields, const Deadline& deadline,
                                    const AbortFlag* abort, std::uint32_t change);
    Shared current();
    void replace(const Shared& broken, Instant since, const Deadline& deadline, const AbortFlag* abort);
    [[noreturn]] void throw_lost(Clock::duration time, const std::string& why);
    void watch();
    void watch_at(const Place& place, bool other_known);
    std::optional<Place> place(int index);
    /// True: `from` serves, and the calls still go elsewhere.
    bool learn(const Place& from, Standing standing, const std::string& standby);
    void come(const Place& here);

    const ClientId id_;
    const security::Secret secret_;
    const std::string name_;
    const unsigned generation_;
    AbortFlag leaving_;

    std::mutex mutex_;       // guards what follows
    bool changing_ = false;  // a client's changes are made one after the other
    std::uint32_t change_ = 0;
    std::condition_variable changed_, news_;
    Shared client_;
    Place at_;  // where client_ is connected
    std::optional<Place> primary_, standby_;
    std::optional<Place> serving_;  // as the witness knows
    std::uint64_t news_count_ = 0;
    bool told_ = false;  // the witness has been told something
    bool replacing_ = false;
    Instant served_;  // when a server last did, as far as the witness knows
    Shared witness_;

    Ballot ballot_;  // the witness's
    std::unique_ptr<std::thread> thread_;
};

}  // namespace tutti::store
