#include "rendezvous/rendezvous.hpp"

#include "core/deadline.hpp"
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"
#include "rendezvous/job_environment.hpp"
#include "rendezvous/spawned.hpp"
#include "store/encryption.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace tutti::rendezvous {
namespace {

// The time of a rank that cannot join: to reach the store; and, where it serves that itself, for the others to come and
// learn why.
constexpr std::chrono::milliseconds brief_time{500};

struct Url {
    std::string scheme, rest;
    std::optional<int> rank, world_size;
};

[[noreturn]] void refuse_scheme(const std::string& text) {
    throw InvalidArgument(
        fmt::format("init_process_group: init_method \"{}\": expected env://, tcp://host:port or file:///path{}", text,
                    did_you_mean(text.substr(0, text.find(':')), std::array{"env", "tcp", "file"})));
}

Url parse(const std::string& text) {
    const std::size_t colon = text.find("://");
    if (colon == std::string::npos) {
        refuse_scheme(text);
    }
    Url url{text.substr(0, colon), text.substr(colon + 3), {}, {}};
    const std::size_t question = url.rest.find('?');
    if (question == std::string::npos) return url;
    std::string_view query = std::string_view(url.rest).substr(question + 1);
    while (!query.empty()) {
        const std::string_view item = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), item.size() + 1));
        const std::size_t equal = item.find('=');
        const auto name = item.substr(0, equal);
        const auto value = equal == std::string_view::npos ? std::nullopt : number_in<int>(item.substr(equal + 1));
        if ((name != "rank" && name != "world_size") || !value) {
            throw InvalidArgument(
                fmt::format("init_process_group: init_method \"{}\": \"{}\": expected rank=R or world_size=N{}", text,
                            item, value ? did_you_mean(name, std::array{"rank", "world_size"}) : ""));
        }
        (name == "rank" ? url.rank : url.world_size) = value;
    }
    url.rest.resize(question);
    return url;
}

// One value from several places, which must agree.
int agree(const char* name, int argument, std::optional<int> url, const std::string& method) {
    if (url && argument != -1 && argument != *url) {
        throw InvalidArgument(
            fmt::format("init_process_group: {} is {} as an argument and {} in init_method \"{}\": expected one of "
                        "them, or the same",
                        name, argument, *url, method));
    }
    return url.value_or(argument);
}

// An argument wins over the environment.
int from_environment(const Fact& fact, int value) {
    return value != -1 || !fact ? value : number_in<int>(fact.value).value_or(-1);
}

void check(const Joined& joined, const Request& request, const char* how) {
    if (request.only_to_tell) {
        if (joined.rank < 0 || joined.world_size == 1)
            throw InvalidArgument("nobody waits for a process that is alone, or has no rank");
        return;
    }
    if (joined.world_size < 1) {
        throw InvalidArgument(
            fmt::format("init_process_group: world_size {}: expected at least 1; {}", joined.world_size, how));
    }
    if (joined.rank < 0 || joined.rank >= joined.world_size) {
        throw InvalidArgument(
            fmt::format("init_process_group: rank {}: expected 0 to {}; {}", joined.rank, joined.world_size - 1, how));
    }
}

// A process may leave a world and join another at the same address. A rank that is early then finds the server of the
// world that it has left, which lives until rank 0 has left, too: a rank of its number has been there already. So it
// comes again, also when that server goes away meanwhile.
class Address {
 public:
    Address(const std::string& host, std::uint16_t port) : key_(host, port) {}

    bool was_joined() const {
        const std::lock_guard lock(mutex());
        return joined().contains(key_);
    }
    void note_joined() const {
        const std::lock_guard lock(mutex());
        joined().insert(key_);
    }

 private:
    using Key = std::pair<std::string, std::uint16_t>;
    static std::mutex& mutex() {
        static std::mutex instance;
        return instance;
    }
    static std::set<Key>& joined() {
        static auto& instance = *new std::set<Key>;
        return instance;
    }
    Key key_;
};

Store store_of_this_world(const TCPStoreOptions& options, int rank, bool hosted) {
    if (hosted) return TCPStore(options);
    const Address address(options.host, options.port);
    if (options.is_master) {
        TCPStore store(options);
        address.note_joined();
        return store;
    }
    const bool came_before = address.was_joined();
    const auto old_server = [&] {
        return fmt::format("the next world at {}: the one that rank {} has left still has its server there",
                           net::to_string({options.host, options.port}), rank);
    };
    std::optional<Patience<decltype(old_server)>> patience;
    if (came_before) patience.emplace(old_server);
    const Deadline deadline = Deadline::after(options.timeout);
    TCPStoreOptions left = options;
    while (true) {
        try {
            TCPStore store(left);
            if (store.add(fmt::format("rendezvous/rank/{}", rank), 1) == 1 || !came_before) {
                address.note_joined();
                return store;
            }
        } catch (const DistError& error) {
            const bool is_gone = error.code() == ErrorCode::store || error.code() == ErrorCode::network ||
                                 error.code() == ErrorCode::security;
            if (!came_before || !is_gone || deadline.expired()) throw;
        }
        check_wait(deadline, nullptr, "joining at the address of a world that was left");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        left.timeout = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    }
}

// Two jobs may have made the same port of their numbers. A rank of one must not take the place of a rank of the other.
void check_job(Store store, const std::string& job, const std::string& place, bool serves) {
    constexpr const char* key = "rendezvous/job";
    constexpr std::chrono::seconds limit{10};  // rank 0 has just made the store
    if (job.empty()) return;
    if (serves) return store.set(key, job);
    std::string theirs;
    try {
        theirs = store.get(key, limit);
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        theirs = "a job whose port was said";
    }
    if (theirs == job) return;
    throw DistNetworkError(
        fmt::format("{} is the store of another job ({}): expected that of this one ({})", place, theirs, job));
}

Joined over_tcp(const std::string& host, std::uint16_t port, Joined joined, const Request& request, bool hosted,
                const std::string& job = {}) {
    if (net::is_multicast(host)) {
        throw InvalidArgument(fmt::format(
            "init_process_group: init_method tcp://{}: multicast is not supported; give rank 0's address", host));
    }
    const TCPStoreOptions options{.host = host,
                                  .port = port,
                                  .is_master = joined.rank == 0 && !hosted,
                                  .timeout = request.timeout,
                                  .wait_for_workers = false};
    joined.store = store_of_this_world(options, joined.rank, hosted);
    check_job(joined.store, job, net::to_string({host, port}), options.is_master);
    joined.hosts_store = options.is_master;
    joined.is_fresh = !hosted;
    return joined;
}

std::uint16_t port_of(std::string_view text, const std::string& where) {
    const auto port = number_in<int>(text);
    if (!port || *port < 1 || *port > 65535) {
        throw InvalidArgument(fmt::format("{}: port \"{}\": expected 1 to 65535", where, text));
    }
    return static_cast<std::uint16_t>(*port);
}

// An address and a port that tutti worked out can be wrong: the message tells how it did so.
Joined where_the_launcher_says(const JobEnvironment& job, Joined joined, const Request& request) {
    const auto reach = [&] {
        return over_tcp(job.master_addr.value,
                        port_of(job.master_port.value, "init_process_group: env://: MASTER_PORT"), std::move(joined),
                        request, job.store_is_hosted, job.port_of_job);
    };
    if (!job.master_addr.made && !job.master_port.made) return reach();
    try {
        const std::string& host = job.master_addr.value;
        if (job.master_addr.made && joined.rank == 0 && !job.store_is_hosted &&
            !net::is_of_this_host(host, Deadline::after(request.timeout)))
            throw DistNetworkError(
                fmt::format("rank 0 is to serve the job's store at {}, which is no address of this host", host));
        return reach();
    } catch (const DistNetworkError& error) {
        if (error.code() != ErrorCode::network) throw;
        throw DistNetworkError(
            fmt::format("{}; env:// took the address from: {}; the port from: {}. If that is wrong, set "
                        "MASTER_ADDR to the address of rank 0's host and MASTER_PORT to a free port "
                        "there, equal on all ranks",
                        error.what(), job.master_addr.source, job.master_port.source),
            error.context());
    }
}

// A program that was started bare is a world by itself, as with MPI. A program with a part of the facts is a part of an
// unknown world.
bool is_started_alone(const JobEnvironment& job, const Joined& joined) {
    const bool told = job.master_addr || job.master_port;
    if (joined.rank == -1 && joined.world_size == -1 && !told) return true;
    const bool rank_missing = joined.rank == -1, size_missing = joined.world_size == -1;
    if (!rank_missing && !size_missing) return false;
    throw InvalidArgument(
        fmt::format("init_process_group: env://: {} not set, while {} set; set {} in each process, or start them with "
                    "tutti run, torchrun, "
                    "srun or mpirun",
                    rank_missing && size_missing ? "RANK and WORLD_SIZE are"
                    : rank_missing               ? "RANK is"
                                                 : "WORLD_SIZE is",
                    !rank_missing                        ? "RANK is"
                    : !size_missing                      ? "WORLD_SIZE is"
                    : job.master_addr && job.master_port ? "MASTER_ADDR and MASTER_PORT are"
                    : job.master_addr                    ? "MASTER_ADDR is"
                                                         : "MASTER_PORT is",
                    rank_missing && size_missing ? "both" : "it"));
}

Joined alone() {
    TUTTI_INFO(
        "this process is a world of one: no launcher started it; tutti run -n N PROGRAM starts N that work together");
    Joined joined{HashStore(), 0, 1};
    joined.is_fresh = true;
    return joined;
}

// A program that does not say its rank gets that of its spawn; one that does, and says no place to meet, gets that.
// False: the ranks of the spawn are a part of a larger world, or no process is a rank.
bool meet_in_spawn(const JobEnvironment& job, const Request& request, Joined& joined) {
    const auto spawn = spawned();
    if (!spawn) return false;
    const bool says_rank = joined.rank != -1, says_place = job.master_addr || job.master_port;
    if (spawn->is_thread) {
        if (says_rank || spawn->size == 1) return false;
        throw InvalidArgument(fmt::format(
            "init_process_group: rank {} of {} is a thread of spawn(), and threads share one default group: "
            "expected a ProcessGroup for each, from one HashStore, or SpawnMethod::processes",
            spawn->rank, spawn->size));
    }
    if (joined.world_size == -1) joined.world_size = spawn->size;
    if (joined.world_size != spawn->size || (says_rank && says_place)) return false;
    if (!says_rank) joined.rank = spawn->rank;
    check(joined, request, fmt::format("spawn() has started {} ranks", spawn->size).c_str());
    joined.is_fresh = spawn->size == 1;
    if (joined.is_fresh) {
        joined.store = HashStore();
    } else if (!spawn->file.empty()) {
        joined.store = FileStore(spawn->file, -1, request.timeout);
    } else {
        throw InvalidArgument(
            "init_process_group: spawn() could make no file for its ranks to meet: expected a folder for temporary "
            "files (TMPDIR), or rank, world_size and a store");
    }
    return true;
}

Joined by_environment(const Url& url, const std::string& method, const Request& request) {
    JobEnvironment job = read_job_environment();
    Joined joined;
    joined.rank = from_environment(job.rank, agree("rank", request.rank, url.rank, method));
    joined.world_size =
        from_environment(job.world_size, agree("world_size", request.world_size, url.world_size, method));
    if (meet_in_spawn(job, request, joined)) return joined;
    if (!request.only_to_tell && is_started_alone(job, joined)) return alone();
    check(joined, request, "set RANK and WORLD_SIZE, or start the program with tutti run, torchrun, srun or mpirun");
    if (!job.master_port)
        throw InvalidArgument(
            "init_process_group: env://: MASTER_PORT is not set; set it to a free port of rank 0's machine, or use "
            "tutti run");
    if (!job.master_addr && joined.rank != 0)
        throw InvalidArgument(
            "init_process_group: env://: MASTER_ADDR is not set; set it to the address of rank 0's machine");
    if (!job.master_addr) job.master_addr.value = "127.0.0.1";
    joined = where_the_launcher_says(job, std::move(joined), request);
    // The launcher's store lives on when the job is started again; this attempt must not see an earlier one's keys.
    if (job.store_is_hosted && !job.attempt.empty()) joined.store = PrefixStore("attempt/" + job.attempt, joined.store);
    return joined;
}

Joined by_address(const Url& url, const std::string& method, const Request& request) {
    Joined joined{{},
                  agree("rank", request.rank, url.rank, method),
                  agree("world_size", request.world_size, url.world_size, method)};
    check(joined, request, "tcp:// needs both on every process, as arguments or as ?rank=R&world_size=N");
    std::string_view rest = url.rest;
    while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
    const std::size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos)
        throw InvalidArgument(fmt::format("init_process_group: init_method \"{}\": expected tcp://host:port", method));
    std::string host(rest.substr(0, colon));
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    return over_tcp(host,
                    port_of(rest.substr(colon + 1), fmt::format("init_process_group: init_method \"{}\"", method)),
                    joined, request, false);
}

Joined by_file(const Url& url, const std::string& method, const Request& request) {
    Joined joined{{},
                  agree("rank", request.rank, url.rank, method),
                  agree("world_size", request.world_size, url.world_size, method)};
    check(joined, request, "file:// needs both on every process, as arguments or as ?rank=R&world_size=N");
    if (url.rest.empty() || url.rest.front() != '/') {
        throw InvalidArgument(
            fmt::format("init_process_group: init_method \"{}\": expected file:///absolute/path", method));
    }
    const std::filesystem::path folder = std::filesystem::path(url.rest).parent_path();
    if (!std::filesystem::is_directory(folder)) {
        const bool drive = url.rest.size() > 3 && url.rest[2] == ':' && url.rest[3] == '/';
        throw InvalidArgument(fmt::format(
            "init_process_group: init_method \"{}\": folder {} is not here{}: expected a file in one that all "
            "ranks reach",
            method, folder.string(), drive ? " (a drive of Windows, where tutti does not run)" : ""));
    }
    FileStore store(url.rest, request.only_to_tell ? -1 : joined.world_size, request.timeout);
    // Each process of a job comes once; one more means that the file is left from another job.
    joined.store = store;
    if (request.only_to_tell) return joined;
    const std::int64_t user = store.add("rendezvous/users", 1);
    const std::int64_t same_rank = store.add(fmt::format("rendezvous/rank/{}", joined.rank), 1);
    if (user > joined.world_size || same_rank > 1) {
        throw InvalidArgument(
            fmt::format("init_process_group: init_method \"{}\": the file is in use or stale: rank {} has been here "
                        "before; remove the "
                        "file, or use a new one for each start",
                        method, joined.rank));
    }
    return joined;
}

}  // namespace

Joined resolve(const Request& request) {
    if (request.store) {
        if (!request.init_method.empty())
            throw InvalidArgument("init_process_group: store and init_method are both given: expected one");
        Joined joined{request.store, request.rank, request.world_size};
        check(joined, request, "a store needs rank and world_size as arguments");
        return joined;
    }
    const std::string method = request.init_method.empty() ? "env://" : request.init_method;
    const Url url = parse(method);
    if (url.scheme == "env") return by_environment(url, method, request);
    if (url.scheme == "tcp") return by_address(url, method, request);
    if (url.scheme == "file") return by_file(url, method, request);
    refuse_scheme(method);
}

Store store_of_launcher(std::chrono::milliseconds timeout) {
    const JobEnvironment job = read_job_environment();
    if (!job.store_is_hosted) return {};
    return TCPStore({.host = job.master_addr ? job.master_addr.value : "127.0.0.1",
                     .port = port_of(job.master_port.value, "TUTTI_STORE_PORT"),
                     .timeout = timeout,
                     .wait_for_workers = false});
}

void stay_for_others(const DistError& error, bool serves, int world_size) {
    const bool own = error.context().peer < 0 && error.code() != ErrorCode::timeout &&
                     error.code() != ErrorCode::interrupted;  // the user who interrupts it does not want to wait
    if (own && serves && world_size > 1) std::this_thread::sleep_for(time_for_others);
}

void say_failed(const Request& request, const std::string& name, const std::exception& error) noexcept {
    try {
        Request brief = request;
        brief.only_to_tell = true;
        brief.timeout = brief_time;
        const store::OnlyToTell telling;
        const Joined joined = resolve(brief);
        Attempt(joined.store, name, joined.worlds()).say_failed(joined.rank, joined.world_size, error);
        if (joined.hosts_store) std::this_thread::sleep_for(time_for_others);
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("a rank cannot tell the others that it does not join: {}", silent.what());
    }
}

}  // namespace tutti::rendezvous
