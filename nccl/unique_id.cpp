#include "unique_id.hpp"

#include "failure.hpp"
#include "process_mutex.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace tutti::nccl_library {
namespace {

// What an id holds; the rest of its bytes are zero.
struct Contents {
    char mark[8] = {};
    char key[64] = {};   // letters and digits; all zero: the job's secret is the key
    char host[46] = {};  // as text, with a zero byte behind it
    std::uint16_t port = 0;
    std::uint64_t number = 0;  // of the id, among those whose ranks meet in one store
};
static_assert(sizeof(Contents) <= NCCL_UNIQUE_ID_BYTES);
constexpr char mark[8] = {'t', 'u', 't', 't', 'i', 'i', 'd', '2'};

Contents contents_of(const ncclUniqueId& id) {
    Contents contents;
    std::memcpy(&contents, id.internal, sizeof contents);
    return contents;
}

ncclUniqueId id_of(const Contents& contents) {
    ncclUniqueId id{};
    std::memcpy(id.internal, &contents, sizeof contents);
    return id;
}

std::string key_of(const Contents& contents) {
    return contents.key[0] == '\0' ? std::string() : std::string(contents.key, sizeof contents.key);
}

std::string setting(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

// NCCL_SOCKET_IFNAME: names' beginnings, separated by commas; "=" before them: whole names; "^": all but these.
bool allowed(const std::string& rules, std::string_view name) {
    const bool except = rules.starts_with('^');
    std::string_view rest = std::string_view(rules).substr(except ? 1 : 0);
    const bool whole = rest.starts_with('=');
    if (whole) rest.remove_prefix(1);
    bool listed = false;
    while (!rest.empty()) {
        const std::string_view one = rest.substr(0, rest.find(','));
        listed = listed || (!one.empty() && (whole ? name == one : name.starts_with(one)));
        rest.remove_prefix(one.size() < rest.size() ? one.size() + 1 : one.size());
    }
    return listed != except;
}

std::string own_address() {
    if (std::string host = setting("TUTTI_HOST"); !host.empty()) return host;
    const std::string rules = setting("NCCL_SOCKET_IFNAME");
    std::string found;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return "127.0.0.1";
    for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0) continue;
        const bool loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
        if (rules.empty() ? loopback : !allowed(rules, one->ifa_name)) continue;
        char text_of_address[INET_ADDRSTRLEN] = {};
        const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
        if (::inet_ntop(AF_INET, &address->sin_addr, text_of_address, sizeof text_of_address) != nullptr)
            found = text_of_address;
    }
    ::freeifaddrs(all);
    if (found.empty() && !rules.empty()) {
        fail(ncclInvalidUsage, "NCCL_SOCKET_IFNAME=", rules, " names no interface of this host that is up");
    }
    return found.empty() ? "127.0.0.1" : found;
}

void put_host(Contents& contents, const std::string& host) {
    if (host.size() >= sizeof contents.host) {
        fail(ncclInvalidUsage, "the address ", host, " is too long for a unique id: expected at most ",
             sizeof contents.host - 1, " letters, such as a numeric one");
    }
    std::memcpy(contents.host, host.data(), host.size());
}

// ---- The stores that this process serves ----------------------------------------------------------------------------

// A server costs a thread and descriptors, and so serves many ids. Nobody deletes what the ranks of one have left in
// it, so that a server has a last id.
constexpr std::uint64_t most_ids = 256;
constexpr std::chrono::seconds time_to_connect{15};
struct Served {
    Store store;
    pid_t process;
    Contents contents;  // of the last id
};
struct AllServed {
    ProcessMutex mutex;
    std::list<Served> stores;
};
AllServed& served() {
    static AllServed* all = new AllServed;
    return *all;
}

constexpr const char* all_left = "all have left";

// Where the ranks of an id meet in its server's store.
std::string prefix_of(std::uint64_t number) {
    return text("id ", number);
}

// Whether all ranks of all ids of a server have left.
bool finished(Served& one) {
    std::vector<std::string> keys;
    for (std::uint64_t number = 1; number <= one.contents.number; ++number)
        keys.push_back(prefix_of(number) + "/" + all_left);
    return one.store.check(keys);
}

// Those servers whose ids' ranks have all left. A store is asked while nobody waits for it: the list is this thread's
// meanwhile.
void drop_finished() {
    AllServed& all = served();
    std::list<Served> asked;
    {
        const std::lock_guard lock(all.mutex);
        asked.swap(all.stores);
    }
    asked.remove_if([](Served& one) {
        try {
            return one.process == ::getpid() && finished(one);
        } catch (...) {
            return true;
        }
    });
    const std::lock_guard lock(all.mutex);
    all.stores.splice(all.stores.end(), asked);
}

// The next id of a server of this process at that host, if there is one that may have more.
std::optional<ncclUniqueId> next_id(const std::string& host) {
    AllServed& all = served();
    const std::lock_guard lock(all.mutex);
    for (Served& one : all.stores) {
        if (one.process != ::getpid() || host != one.contents.host || one.contents.number == most_ids) continue;
        ++one.contents.number;
        return id_of(one.contents);
    }
    return std::nullopt;
}

ncclUniqueId id_of_environment(const std::string& where) {
    const std::size_t colon = where.rfind(':');
    std::uint16_t port = 0;
    const char* const end = where.data() + where.size();
    if (colon != std::string::npos) {
        const auto [stop, error] = std::from_chars(where.data() + colon + 1, end, port);
        if (error != std::errc() || stop != end) port = 0;
    }
    if (port == 0) fail(ncclInvalidArgument, "NCCL_COMM_ID=", where, ": expected ADDRESS:PORT");
    Contents contents;
    std::memcpy(contents.mark, mark, sizeof mark);
    put_host(contents, where.substr(0, colon));
    contents.port = port;
    return id_of(contents);
}

}  // namespace

ncclUniqueId given_unique_id() {
    const std::string where = setting("NCCL_COMM_ID");
    return where.empty() ? make_unique_id() : id_of_environment(where);
}

ncclUniqueId make_unique_id() {
    drop_finished();
    const std::string host = own_address();
    if (const auto id = next_id(host)) return *id;
    Contents contents;
    std::memcpy(contents.mark, mark, sizeof mark);
    unsigned char random[sizeof contents.key / 2];
    if (::getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
        fail(ncclSystemError, "the system gave no random numbers");
    }
    for (std::size_t i = 0; i < sizeof random; ++i) {
        contents.key[2 * i] = "0123456789abcdef"[random[i] >> 4];
        contents.key[2 * i + 1] = "0123456789abcdef"[random[i] & 15];
    }
    put_host(contents, host);
    const TCPStore store({.host = host, .is_master = true, .wait_for_workers = false, .secret = key_of(contents)});
    contents.port = store.port();
    contents.number = 1;
    AllServed& all = served();
    const std::lock_guard lock(all.mutex);
    all.stores.push_back({store, ::getpid(), contents});
    return id_of(contents);
}

void check(const ncclUniqueId& id) {
    const Contents contents = contents_of(id);
    if (std::memcmp(contents.mark, mark, sizeof mark) == 0) return;
    fail(ncclInvalidArgument,
         "the unique id was not made by this library: expected one of its ncclGetUniqueId, whose 128 bytes all ranks "
         "have");
}

Store meeting_store(const ncclUniqueId& id, int rank) {
    const Contents contents = contents_of(id);
    const std::string host(contents.host), key = key_of(contents);
    if (key.empty()) {  // NCCL_COMM_ID: rank 0 may come last
        return TCPStore({.host = host, .port = contents.port, .is_master = rank == 0, .wait_for_workers = false});
    }
    // The store was there before the id, so that nobody has to wait for it. Each rank has a connection of its own, also
    // where the store is served: one ends its waits without the others.
    TCPStore whole = [&] {
        try {
            return TCPStore(
                {.host = host, .port = contents.port, .is_master = false, .timeout = time_to_connect, .secret = key});
        } catch (const DistError& error) {
            fail(ncclRemoteError,
                 "the process that made the unique id serves it no more: it has ended, or all ranks of the id have "
                 "left (",
                 error.what(), "); expected a new ncclGetUniqueId for each communicator");
        }
    }();
    whole.set_timeout(default_store_timeout);
    Store store = PrefixStore(prefix_of(contents.number), whole);
    if (store.check({all_left})) {
        fail(ncclInvalidUsage,
             "all ranks of this unique id have left their communicator: expected a new ncclGetUniqueId for each one");
    }
    return store;
}

void leave_meeting(Store store, int size) noexcept {
    try {
        if (store) {
            store.set_timeout(std::chrono::seconds(5));
            if (store.add("left", 1) == size) store.set(all_left, "");
        }
    } catch (...) {
        // Whoever served the store has gone before: nobody needs it any more.
    }
    try {
        drop_finished();
    } catch (...) {
        // The next call that makes or leaves a communicator tries again.
    }
}

std::string to_bytes(const ncclUniqueId& id) {
    return std::string(id.internal, sizeof id.internal);
}

ncclUniqueId from_bytes(const std::string& bytes) {
    ncclUniqueId id{};
    std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof id.internal));
    return id;
}

}  // namespace tutti::nccl_library
