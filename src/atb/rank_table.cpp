// Rank tables. Each form is turned into rows, one for each rank, with where they stand in the file; the rules about
// ranks are the same for all.
#include "atb/rank_table.hpp"

#include "atb/json.hpp"
#include "core/hash.hpp"
#include "core/interrupt.hpp"
#include "core/patience.hpp"
#include "core/unique_fd.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

namespace tutti::atb {
namespace {

using namespace std::chrono_literals;

constexpr auto between_looks = 100ms;
/// A file that is being written lacks its end for a moment.
constexpr auto time_to_write = 2s;
constexpr std::size_t bytes_max = std::size_t{256} << 20;
constexpr std::size_t server_id_characters = 64;
constexpr std::int64_t ranks_max = 1 << 20;

struct Row {
    RankTable::Rank rank;
    std::int64_t number = 0;
    Json json;  ///< of the number
};

bool is_ip_v4(const std::string& text) {
    in_addr address{};
    return ::inet_pton(AF_INET, text.c_str(), &address) == 1;
}
bool is_ip_v6(const std::string& text) {
    in6_addr address{};
    return ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

/// Addresses of one kind are of one family.
class Families {
 public:
    explicit Families(const char* kind) : kind_(kind) {}
    std::string check(const Json& json) {
        std::string text = json.text();
        const bool v4 = is_ip_v4(text);
        if (!v4 && !is_ip_v6(text)) json.fail(fmt::format("\"{}\": expected an address of IPv4 or IPv6", text));
        if (first_.empty()) {
            v4_ = v4;
            first_ = json.pointer();
        } else if (v4 != v4_) {
            json.fail(fmt::format("\"{}\" is of IPv{}, {} is of IPv{}: expected {}s of one family", text, v4 ? 4 : 6,
                                  first_, v4_ ? 4 : 6, kind_));
        }
        return text;
    }

 private:
    const char* kind_;
    std::string first_;
    bool v4_ = true;
};

class Reader {
 public:
    Reader(const Json& root, const std::string& domain) : root_(root), domain_(domain) {}

    RankTable read() {
        if (const auto version = root_.find("version")) {
            const std::string text = version->text();
            if (text != "1.0" && text != "1.2")
                version->fail(fmt::format("version \"{}\": expected \"1.0\" or \"1.2\"", text));
        }
        if (const auto groups = root_.find("server_group_list")) {
            read_servers(group_among(*groups));
        } else if (root_.find("group_list")) {
            read_instances();
        } else if (root_.find("server_list")) {
            read_servers(root_);
        } else {
            root_.fail("there is no \"server_list\", \"group_list\" or \"server_group_list\"");
        }
        number_ranks();
        return std::move(table_);
    }

 private:
    // ---- server_list: of the whole table, or of one of its groups

    void read_servers(const Json& group) {
        const auto servers = group.at("server_list").filled_list();
        check_count(group, {"server_count"}, servers.size(), "server_list");
        for (const Json& server : servers) {
            const std::size_t index = add_server(server);
            for (const Json& device : server.at({"device", "devices"}).filled_list()) {
                RankTable::Rank rank = read_device(index, device);
                const Json number = device.at("rank_id");
                rows_.push_back({std::move(rank), number.integer(0, ranks_max), number});
            }
            check_ports(index);
        }
        // The table's own pods, or those of its group.
        if (const auto pods = group.find("super_pod_list"))
            read_super_pods(*pods);
        else if (const auto outer = root_.find("super_pod_list"))
            read_super_pods(*outer);
    }

    std::size_t add_server(const Json& server) {
        const Json id = server.at("server_id");
        const auto [index, is_new] = find_server(id, server);
        if (!is_new)
            id.fail(fmt::format("server_id \"{}\" stands at {} too: every server is listed once", id.text(),
                                id_places_[index]));
        return index;
    }

    // Several instances may be on one server.
    std::pair<std::size_t, bool> find_server(const Json& id, const Json& owner) {
        const std::string text = id.text();
        if (text.empty() || text.size() > server_id_characters) {
            id.fail(fmt::format("server_id \"{}\" has {} characters: expected 1 to {}", text, text.size(),
                                server_id_characters));
        }
        const auto known = std::ranges::find(table_.servers, text, &RankTable::Server::id);
        if (known != table_.servers.end()) return {static_cast<std::size_t>(known - table_.servers.begin()), false};
        RankTable::Server server{.id = text, .host = text, .place = id.pointer()};
        if (const auto address = owner.find({"host_ip", "server_ip"})) {
            server.host = host_families_.check(*address);
            server.place = address->pointer();
            server.is_given = true;
        }
        table_.servers.push_back(std::move(server));
        id_places_.push_back(id.pointer());
        return {table_.servers.size() - 1, true};
    }

    RankTable::Rank read_device(std::size_t server, const Json& device) {
        RankTable::Rank rank{.server = server, .place = device.pointer()};
        rank.device = static_cast<int>(device.at("device_id").integer(0, INT32_MAX));
        for (const char* key : {"device_ip", "backup_device_ip"}) {
            const auto address = device.find(key);
            if (address && !address->text().empty()) device_families_.check(*address);
        }
        for (const char* key : {"device_port", "backup_device_port"}) {
            if (const auto port = device.find(key)) port->integer(1, 65535);
        }
        if (const auto host = device.find("host_ip")) rank.host = host_families_.check(*host);
        if (const auto port = device.find("host_port"))
            rank.host_port = static_cast<std::uint16_t>(port->integer(1, 65535));
        return rank;
    }

    void check_ports(std::size_t server) {
        std::map<std::uint16_t, std::string> places;
        for (const Row& row : rows_) {
            if (row.rank.server != server || row.rank.host_port == 0) continue;
            const auto [other, is_new] = places.emplace(row.rank.host_port, row.rank.place);
            if (!is_new) {
                row.json.fail(
                    fmt::format("host_port {} is that of {} too: expected another for each device of a server",
                                row.rank.host_port, other->second));
            }
        }
    }

    void read_super_pods(const Json& list) {
        std::map<std::string, std::string> pods, pod_of_server;  // and where they stand
        for (const Json& pod : list.filled_list()) {
            const Json id = pod.at("super_pod_id");
            if (const auto [other, is_new] = pods.emplace(id.text(), id.pointer()); !is_new)
                id.fail(fmt::format("super_pod_id \"{}\" stands at {} too", id.text(), other->second));
            for (const Json& member : pod.at("server_list").filled_list()) {
                const Json server = member.at("server_id");
                const auto known = std::ranges::find(table_.servers, server.text(), &RankTable::Server::id);
                if (known == table_.servers.end())
                    server.fail(fmt::format("server_id \"{}\" is not in the server_list", server.text()));
                if (const auto [other, is_new] = pod_of_server.emplace(known->id, server.pointer()); !is_new) {
                    server.fail(fmt::format("server \"{}\" is in the super pod at {} already: expected it in one",
                                            known->id, other->second));
                }
                known->super_pod = id.text();
            }
        }
        for (const auto& server : table_.servers) {
            if (!pod_of_server.contains(server.id))
                list.fail(fmt::format("server \"{}\" is in no super pod: expected it in one", server.id));
        }
    }

    // ---- server_group_list: one group is the domain's

    Json group_among(const Json& list) {
        const auto groups = list.filled_list();
        std::vector<std::string> ids;
        for (const Json& group : groups) {
            ids.push_back(group.at("group_id").text());
            if (std::ranges::count(ids, ids.back()) > 1)
                group.at("group_id").fail(fmt::format("group_id \"{}\" stands there twice", ids.back()));
        }
        const auto named = std::ranges::find(ids, domain_);
        if (named == ids.end() && groups.size() > 1) {
            list.fail(fmt::format("commDomain \"{}\" is the group_id of none of the groups: expected {}", domain_,
                                  fmt::join(ids, ", ")));
        }
        const auto index = named == ids.end() ? 0 : static_cast<std::size_t>(named - ids.begin());
        table_.group = ids[index];
        return groups[index];
    }

    // ---- group_list, the older form: all groups are one. A rank is an instance's only device, with the instance's
    // rank_id; or devices are counted in their order.

    void read_instances() {
        const auto groups = root_.at("group_list").filled_list();
        check_count(root_, {"group_count"}, groups.size(), "group_list");
        std::size_t numbered = 0;
        for (const Json& group : groups) {
            const std::size_t before = rows_.size();
            std::set<std::string> servers;
            const auto instances = group.at("instance_list").filled_list();
            check_count(group, {"instance_count"}, instances.size(), "instance_list");
            for (const Json& instance : instances) {
                const Json id = instance.at("server_id");
                const std::size_t server = find_server(id, instance).first;
                servers.insert(table_.servers[server].id);
                numbered += read_instance(instance, server);
            }
            check_count(group, {"device_count", "device_num"}, rows_.size() - before, "instance_list's devices");
            check_count(group, {"server_num"}, servers.size(), "instance_list's servers");
        }
        for (std::size_t server = 0; server < table_.servers.size(); ++server) check_ports(server);
        if (numbered != 0 && numbered != rows_.size())
            root_.at("group_list").fail("some ranks have a rank_id and others do not: expected one for all, or none");
    }

    // Returns how many of its ranks have a number of their own.
    std::size_t read_instance(const Json& instance, std::size_t server) {
        const auto devices = instance.at({"devices", "device"}).filled_list();
        const auto own = instance.find("rank_id");
        if (own && devices.size() > 1 && !devices.front().find("rank_id"))
            own->fail(fmt::format("one rank_id for {} devices: expected an instance for each rank", devices.size()));
        std::size_t numbered = 0;
        for (const Json& device : devices) {
            RankTable::Rank rank = read_device(server, device);
            auto number = device.find("rank_id");
            if (!number) number = own;
            if (number) ++numbered;
            const auto counted = static_cast<std::int64_t>(rows_.size());
            rows_.push_back(
                {std::move(rank), number ? number->integer(0, ranks_max) : counted, number.value_or(device)});
        }
        return numbered;
    }

    // ---- Rules for all forms

    static void check_count(const Json& owner, std::initializer_list<const char*> keys, std::size_t there,
                            const char* what) {
        const auto count = owner.find(keys);
        if (!count) return;
        const std::int64_t said = count->integer(0, INT64_MAX);
        if (said != static_cast<std::int64_t>(there))
            count->fail(fmt::format("{}: {} has {} entries", said, what, there));
    }

    // From 0, without a hole, each once, and those of a server in one piece.
    void number_ranks() {
        std::vector<const Row*> by_rank(rows_.size(), nullptr);
        for (const Row& row : rows_) {
            const auto number = static_cast<std::size_t>(row.number);
            if (number >= rows_.size()) {
                row.json.fail(fmt::format("rank {}: the table has {} ranks: expected 0 to {}, each once", number,
                                          rows_.size(), rows_.size() - 1));
            }
            if (by_rank[number] != nullptr) {
                row.json.fail(fmt::format("rank {} stands at {} too: every rank is listed once", number,
                                          by_rank[number]->json.pointer()));
            }
            by_rank[number] = &row;
        }
        std::vector<std::size_t> order;  // of servers
        for (const Row* row : by_rank) {
            const std::size_t server = row->rank.server;
            if (!order.empty() && order.back() == server) continue;
            if (std::ranges::find(order, server) != order.end()) {
                row->json.fail(
                    fmt::format("rank {} is on server \"{}\", rank {} on another, and lower ranks are on it: "
                                "expected the ranks of a server in one piece",
                                row->number, table_.servers[server].id, row->number - 1));
            }
            order.push_back(server);
        }
        std::vector<RankTable::Server> servers;
        std::vector<std::size_t> now(table_.servers.size());
        for (const std::size_t server : order) {
            now[server] = servers.size();
            servers.push_back(std::move(table_.servers[server]));
        }
        table_.servers = std::move(servers);
        for (const Row* row : by_rank) {
            table_.ranks.push_back(row->rank);
            table_.ranks.back().server = now[row->rank.server];
        }
    }

    const Json& root_;
    const std::string& domain_;
    RankTable table_;
    std::vector<std::string> id_places_;  // by server, as they are read
    std::vector<Row> rows_;
    Families device_families_{"device_ip"}, host_families_{"host_ip"};
};

std::string named(const std::string& path) {
    return "rank table " + path;
}

// The file's text. It may be any path that a user has given: no pipe is waited for.
std::string contents(const std::string& path) {
    const auto fail = [&](std::string_view cause) {
        throw Error(ERROR_INVALID_PARAM, fmt::format("rankTableFile \"{}\": {}", path, cause));
    };
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) fail(std::strerror(errno));
    struct stat about {};
    if (::fstat(fd.get(), &about) != 0) fail(std::strerror(errno));
    if (!S_ISREG(about.st_mode)) fail("expected a regular file");
    if (static_cast<std::size_t>(about.st_size) > bytes_max)
        fail(fmt::format("it has {} bytes: expected at most {}", about.st_size, bytes_max));
    std::string text;
    char piece[64 << 10];
    for (;;) {
        const ssize_t count = ::read(fd.get(), piece, sizeof piece);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(std::strerror(errno));
        if (count == 0) return text;
        text.append(piece, static_cast<std::size_t>(count));
        if (text.size() > bytes_max) fail(fmt::format("it has more than {} bytes", bytes_max));
    }
}

}  // namespace

const std::string& RankTable::host_of(int rank) const {
    const Rank& row = ranks[static_cast<std::size_t>(rank)];
    return row.host.empty() ? servers[row.server].host : row.host;
}

std::uint64_t RankTable::fingerprint() const {
    std::uint64_t hash = fnv1a_basis;
    for (const Rank& rank : ranks) {
        hash = fnv1a(fmt::format("{}/{}/{}\n", servers[rank.server].id, rank.device, rank.host_port), hash);
    }
    return fnv1a(group, hash);
}

MeetingPlace place_of(const RankTable& table, const std::string& domain) {
    // Below the ports that systems give to clients (32768 and up).
    constexpr std::uint64_t first_port = 20000, ports = 10000;
    MeetingPlace place{.host = table.host_of(0), .port = table.ranks.front().host_port};
    if (!domain.empty() || place.port == 0) {
        const std::uint64_t hash = fnv1a(domain, table.fingerprint());
        place.port = static_cast<std::uint16_t>(first_port + (hash ^ hash >> 32) % ports);
    }
    place.on_one_host = table.servers.size() == 1;
    for (int rank = 1; rank < table.size() && place.on_one_host; ++rank)
        place.on_one_host = table.host_of(rank) == place.host;
    if (place.on_one_host) place.host = "127.0.0.1";
    return place;
}

std::optional<RankTable> parse_rank_table(std::string_view text, const std::string& name, const std::string& domain) {
    const Json root(name, text);
    if (!root.is_object()) root.fail(fmt::format("{}: expected an object", root.shown()));
    if (const auto status = root.find("status")) {
        const std::string word = status->text();
        if (word == "initializing") return std::nullopt;
        if (word != "completed")
            status->fail(fmt::format("status \"{}\": expected \"completed\" or \"initializing\"", word));
    }
    RankTable table = Reader(root, domain).read();
    table.file = name;
    return table;
}

RankTable read_rank_table(const std::string& path, const std::string& domain, const Deadline& deadline) {
    const auto awaited = [&] {
        return fmt::format("rank table {} to be completed: its status is \"initializing\" (or it has no end yet)",
                           path);
    };
    const Patience patience(awaited);
    std::optional<Deadline> written;
    for (;;) {
        const std::string text = contents(path);
        if (!ends_early(text)) {
            written.reset();
            if (auto table = parse_rank_table(text, named(path), domain)) return *std::move(table);
        } else {
            if (!written) written = Deadline::after(time_to_write);
            if (written->expired()) (void)Json(named(path), text);  // says where
        }
        if (deadline.expired()) {
            throw Timeout(fmt::format("rank table {}: its status is \"initializing\" still: nobody has completed it in "
                                      "time",
                                      path),
                          {.operation = "AllToAllVV2", .hint = "whoever writes it sets its status to \"completed\""});
        }
        check_wait(Deadline::never(), nullptr, "waiting for a rank table");
        std::this_thread::sleep_for(std::min<Clock::duration>(between_looks, deadline.remaining()));
    }
}

}  // namespace tutti::atb
