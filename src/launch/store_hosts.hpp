// StoreHosts: which launchers serve the job's store where that has a standby (--standby). The launcher that serves,
// node 0's at first, asks another one to keep a standby: that of the lowest node which lives, and the next one when
// that is lost. When the server is lost the standby serves (store/PROTOCOL.md), and its launcher does what the lost one
// did.
//
// Keys below "launch/": servers ("ID HOST:PORT HOST:PORT": the launcher that serves, where, and where the standby is,
// if there is one), wanted ("N ID": this launcher is to keep the standby), and for each N: standby/N (its answer,
// HOST:PORT, or "failed").
//
// Threads: one at a time.
#pragma once

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/socket.hpp"
#include "store/tcp_server.hpp"

#include <tutti/store.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace tutti::launch {

class StoreHosts {
 public:
    struct Servers {
        std::string id{};  ///< of the launcher that serves
        net::Address primary{};
        std::string standby{};  ///< HOST:PORT; empty: there is none at the moment
    };
    struct Options {
        std::string id;       ///< of this launcher
        std::string host;     ///< by which others reach this node
        net::Address server;  ///< where this launcher has found the server, as the others shall find it
        std::string secret;   ///< the job's
    };
    /// `own`: the server that this launcher serves from the beginning; null: another launcher does. Both it and
    /// `leaving`, which ends look(), must outlive this object.
    StoreHosts(Options options, store::TcpServer* own, const AbortFlag& leaving);

    /// Whether the store has a standby, so that these are used.
    static bool are_in(Store& store);
    /// To be called with each sign of life: learns which servers there are, and makes the standby if that is wanted
    /// here, which takes ten seconds at most.
    void look(Store& store);
    const Servers& servers() const noexcept { return servers_; }
    /// Whether this launcher's server serves the store.
    bool serves() const;
    /// Whether it does, and a standby may take over.
    bool has_standby() const;

    /// Says where this launcher serves the store: at the beginning, or after it has taken over.
    void publish(Store& store);
    /// The part of the launcher that serves: looks for a standby where there is none. `others`: the IDs of the
    /// launchers that may keep one, the first choice first.
    void keep_standby(Store& store, const std::vector<std::string>& others);
    /// Whether the first launcher that was asked may still answer.
    bool waits_for_standby() const;

    /// The job ends, and its servers with it.
    void expect_end();

 private:
    void say(Store& store) const;
    void give_up(Instant next);
    std::string make_standby();
    UniqueFd listener() const;
    store::TcpServer* server() const noexcept { return own_ != nullptr ? own_ : standby_.get(); }

    const Options options_;
    store::TcpServer* const own_;
    const AbortFlag& leaving_;
    std::unique_ptr<store::TcpServer> standby_;
    Servers servers_;
    std::string first_id_;  // of the launcher that serves at options_.server
    int made_ = 0;          // the number of the last standby that was wanted here

    int number_ = 0;  // these are the serving launcher's: the last standby that it has asked for, whom, and when
    std::string asked_, lost_;  // lost_: that of the last standby that was lost
    Instant asked_at_{}, next_{};
    std::size_t failures_ = 0;  // one after the other
};

}  // namespace tutti::launch
