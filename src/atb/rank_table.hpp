// RankTable: a domain's ranks and their hosts, from the file that ATB's users, or a scheduler for them, write.
// docs/atb.md has the forms and rules.
//
// Threads: values and free functions.
#pragma once

#include "core/deadline.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::atb {

struct RankTable {
    struct Rank {
        std::size_t server = 0;
        int device = -1;              ///< device_id; unused
        std::string host{};           ///< the rank's host_ip; empty: the server's
        std::uint16_t host_port = 0;  ///< 0: none
        std::string place{};          ///< in the file: "/server_list/0/device/1"
    };
    struct Server {
        std::string id;
        std::string host;       ///< host_ip, else server_ip, else server_id
        std::string place;      ///< place in the file of the field that gave `host`
        bool is_given = false;  ///< `host` comes from host_ip or server_ip
        std::string super_pod{};
    };

    std::string file;
    std::string group{};          ///< group_id, where the table has several groups
    std::vector<Server> servers;  ///< in the order of their lowest ranks
    std::vector<Rank> ranks;      ///< by rank

    int size() const noexcept { return static_cast<int>(ranks.size()); }
    const Server& server_of(int rank) const { return servers[ranks[static_cast<std::size_t>(rank)].server]; }
    const std::string& host_of(int rank) const;
    /// Equal for equal tables, wherever their files are.
    std::uint64_t fingerprint() const;
};

/// Where the domain's ranks meet: rank 0 listens there.
struct MeetingPlace {
    std::string host;
    std::uint16_t port = 0;
    bool on_one_host = false;  ///< all ranks are on one host: they use loopback
};
/// The port is rank 0's host_port, if there is one and the domain has no name; otherwise derived from the table and the
/// name.
MeetingPlace place_of(const RankTable& table, const std::string& domain);

/// `name`: the name of the file in messages. `domain` chooses among several groups. Returns nullopt if the table's
/// status says that it is not complete yet. Throws Error (ERROR_INVALID_PARAM) with file, JSON pointer and rule.
std::optional<RankTable> parse_rank_table(std::string_view text, const std::string& name, const std::string& domain);

/// Reads the file, repeatedly until it is complete. Throws the same, and Timeout at the deadline.
RankTable read_rank_table(const std::string& path, const std::string& domain, const Deadline& deadline);

}  // namespace tutti::atb
