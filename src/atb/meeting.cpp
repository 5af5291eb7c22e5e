#include "atb/meeting.hpp"

#include "atb/door.hpp"
#include "atb/rank_table.hpp"
#include "core/env.hpp"
#include "core/hash.hpp"
#include "core/interrupt.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"
#include "core/socket.hpp"
#include "group/group.hpp"
#include "rendezvous/job_environment.hpp"
#include "rendezvous/place.hpp"
#include "rendezvous/rendezvous.hpp"
#include "security/secret.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace tutti::atb {
namespace {

using namespace std::chrono_literals;

constexpr const char* own_host = "127.0.0.1";
/// The time of a rank that cannot join, to find the ranks that wait for it.
constexpr auto time_to_tell = 500ms;
constexpr auto between_attempts = 10ms;

std::chrono::milliseconds left(const Deadline& deadline) {
    return std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
}

[[noreturn]] void refuse_domain(const std::string& sentence) {
    throw Error(ERROR_INVALID_PARAM, "AllToAllVV2Param: " + sentence);
}

// ---- By a rank table

void check_rank(const AllToAllVV2Param& p, const RankTable& table) {
    const int size = table.size();
    if (p.rankSize != 0 && p.rankSize != size)
        refuse_domain(fmt::format("rankSize is {}, and {} lists {} ranks", p.rankSize, table.file, size));
    if (p.rank == -1 && size == 1) return;
    if (p.rank < 0 || p.rank >= size)
        refuse_domain(fmt::format("rank is {}: {} lists ranks 0 to {}", p.rank, table.file, size - 1));
}

bool is_known(const std::string& host) {
    try {
        (void)net::is_of_this_host(host);
        return true;
    } catch (const DistNetworkError&) {
        return false;
    }
}

// Checks, for a table of several hosts, the facts that each rank has to know before it waits for others.
void check_hosts(const RankTable& table, int rank) {
    const auto refuse_host = [&](int of, const std::string& sentence) {
        const auto& row = table.ranks[static_cast<std::size_t>(of)];
        const std::string& place = row.host.empty() ? table.server_of(of).place : row.place + "/host_ip";
        throw Error(ERROR_INVALID_PARAM, fmt::format("{}, {}: {}", table.file, place, sentence));
    };
    const std::string& meeting = table.host_of(0);
    if (!is_known(meeting)) {
        refuse_host(0,
                    fmt::format("\"{}\" is no address, and no host of that name is known here: expected a host_ip for "
                                "each server, since ranks meet at that of rank 0",
                                meeting));
    }
    if (rank == 0 && !net::is_of_this_host(meeting))
        refuse_host(0, fmt::format("rank 0 runs here, and \"{}\" is no address of this host", meeting));
}

rendezvous::Joined meet_at(const MeetingPlace& place, const AllToAllVV2Param& p, const Deadline& deadline) {
    const std::string host = place.host.find(':') == std::string::npos ? place.host : fmt::format("[{}]", place.host);
    try {
        return rendezvous::resolve({.init_method = fmt::format("tcp://{}:{}", host, place.port),
                                    .rank = p.rank,
                                    .world_size = p.rankSize,
                                    .timeout = left(deadline)});
    } catch (const DistNetworkError& error) {
        if (p.rank != 0 || error.code() != ErrorCode::network) throw;
        throw DistNetworkError(fmt::format("{}; rank 0 serves its domain there: the address and the port are from rank "
                                           "table {}, where a host_port of rank 0 sets the port of a domain without a "
                                           "name",
                                           error.what(), p.rankTableFile),
                               error.context());
    }
}

ProcessGroup by_rank_table(AllToAllVV2Param p) {
    const Deadline deadline = Deadline::after(time_limit());
    const RankTable table = read_rank_table(p.rankTableFile, p.commDomain, deadline);
    check_rank(p, table);
    p.rank = std::max(p.rank, 0);
    p.rankSize = table.size();
    const MeetingPlace place = place_of(table, p.commDomain);
    std::string listen_host;
    if (!place.on_one_host) {
        check_hosts(table, p.rank);
        const std::string& own = table.host_of(p.rank);
        if (is_known(own) && net::is_of_this_host(own)) listen_host = own;
    }
    p.rankRoot = 0;  // the table gives each rank's place
    if (p.rankSize == 1) return join(p, HashStore());
    const rendezvous::Joined joined = meet_at(place, p, deadline);
    return join(p, PrefixStore("atb", joined.store), joined.hosts_store, listen_host);
}

// ---- In the store that tutti run serves

// The store lasts longer than a domain. Ranks of any number may meet there again and again.
ProcessGroup in_store_of_launcher(const AllToAllVV2Param& p) {
    const rendezvous::Joined joined =
        rendezvous::resolve({.rank = p.rank, .world_size = p.rankSize, .timeout = time_limit()});
    return join(p, joined.store);
}

// ---- Among the processes of this host

// The marks that the processes of a job share, and other jobs of the user do not.
std::vector<std::string> marks_of_job() {
    const auto address = env::get("MASTER_ADDR"), port = env::get("MASTER_PORT");
    if (address && port) return {fmt::format("master {}:{}", *address, *port)};
    if (const auto secret = security::Secret::from_environment())
        return {"secret " + secret->derive("doors of domains").to_text()};
    const std::uint64_t space = rendezvous::process_space();
    const pid_t parent = ::getppid();
    const auto children_of = [&](pid_t process) { return fmt::format("children of {} in {}", process, space); };
    // Orphans, and processes that a container starts, have no parent that tells them apart.
    const std::string siblings = parent > 1 ? children_of(parent) : fmt::format("session {} in {}", ::getsid(0), space);
    return {siblings, children_of(::getpid())};
}

std::vector<std::string> doors_of(const std::string& domain) {
    std::vector<std::string> names;
    for (const std::string& mark : marks_of_job()) {
        names.push_back(fmt::format("tutti/atb/{}/{:016x}", ::geteuid(), fnv1a(mark + '\n' + domain)));  // it is short
    }
    return names;
}

std::string who_is_meant() {
    if (env::get("MASTER_ADDR") && env::get("MASTER_PORT"))
        return "with this MASTER_ADDR and MASTER_PORT; ranks of several hosts need a rankTableFile";
    if (security::Secret::from_environment())
        return "with this TUTTI_JOB_SECRET; ranks of several hosts need a rankTableFile";
    return fmt::format("that process {} has started; for others set MASTER_ADDR and MASTER_PORT, equal on all",
                       ::getppid());
}

// The meetings that this process has been to, as which rank: a door may be open for a moment longer than its meeting
// takes, and a rank that comes again is for the next one.
class Been {
 public:
    bool to(std::uint64_t meeting, int rank) const {
        const std::lock_guard lock(mutex());
        return all().contains({meeting, rank});
    }
    void note(std::uint64_t meeting, int rank) const {
        const std::lock_guard lock(mutex());
        all().emplace(meeting, rank);
    }

 private:
    static std::mutex& mutex() {
        static std::mutex instance;
        return instance;
    }
    static std::set<std::pair<std::uint64_t, int>>& all() {
        static auto& instance = *new std::set<std::pair<std::uint64_t, int>>;
        return instance;
    }
};

Store store_behind_door(const AllToAllVV2Param& p, const Deadline& deadline) {
    const Been been;
    const auto is_new = [&](std::uint64_t meeting) { return !been.to(meeting, p.rank); };
    const auto awaited = [&] {
        return fmt::format(
            "rank {} (rankRoot) of domain \"{}\", for which rank {} of {} looks among the processes of "
            "this host {}",
            p.rankRoot, p.commDomain, p.rank, p.rankSize, who_is_meant());
    };
    for (;;) {
        const Behind behind = knock(doors_of(p.commDomain), is_new, awaited, deadline);
        try {
            TCPStore store({.host = own_host, .port = behind.port, .timeout = left(deadline)});
            been.note(behind.meeting, p.rank);
            return store;
        } catch (const DistNetworkError& error) {  // the root has died meanwhile: there will be another, or none
            if (error.code() == ErrorCode::security || deadline.expired()) throw;
        } catch (const DistStoreError&) {
            if (deadline.expired()) throw;
        }
        check_wait(deadline, nullptr, "joining a domain");
        std::this_thread::sleep_for(between_attempts);
    }
}

void check_is_one_host(const AllToAllVV2Param& p) {
    const rendezvous::JobEnvironment job = rendezvous::read_job_environment();
    if (!job.local_world_size || !job.world_size) return;
    const int here = std::atoi(job.local_world_size.value.c_str()), all = std::atoi(job.world_size.value.c_str());
    if (here < 1 || here >= all || p.rankSize <= here) return;
    refuse_domain(
        fmt::format("rankSize is {}, and this host has {} of the job's {} ranks ({}): expected a rankTableFile or a "
                    "hcclComm, or a start by tutti run",
                    p.rankSize, here, all, job.local_world_size.source));
}

ProcessGroup on_this_host(const AllToAllVV2Param& p) {
    check_is_one_host(p);
    const Deadline deadline = Deadline::after(time_limit());
    if (p.rank != p.rankRoot) return join(p, store_behind_door(p, deadline));
    const TCPStore store({.host = own_host, .is_master = true, .timeout = left(deadline), .wait_for_workers = false});
    const Door door(doors_of(p.commDomain), store.port());
    return join(p, store, true);
}

void tell_processes(const AllToAllVV2Param& p, const std::exception& error) {
    const auto tell = [&](const Store& store) { say_failed(store, p, error); };
    try {
        return tell(store_behind_door(p, Deadline::after(time_to_tell)));
    } catch (const Timeout&) {
        if (p.rank != p.rankRoot) return;
    }
    const TCPStore store({.host = own_host, .is_master = true, .timeout = time_to_tell, .wait_for_workers = false});
    tell(store);
    const Door door(doors_of(p.commDomain), store.port());
    std::this_thread::sleep_for(rendezvous::time_for_others);
}

}  // namespace

std::string name_of_domain(const AllToAllVV2Param& p) {
    return p.commDomain.empty() ? "atb" : "atb/" + p.commDomain;
}

std::chrono::milliseconds time_limit() {
    return settings::timeout().value_or(default_timeout);
}

ProcessGroup join(const AllToAllVV2Param& p, const Store& place, bool serves, const std::string& listen_host) {
    try {
        return ProcessGroup(detail::Group::of_all({.store = place,
                                                   .rank = p.rank,
                                                   .world_size = p.rankSize,
                                                   .timeout = time_limit(),
                                                   .name = name_of_domain(p),
                                                   .listen_host = listen_host},
                                                  {.joining = {.terms = fmt::format("rankRoot {}", p.rankRoot)}}));
    } catch (const DistError& error) {
        rendezvous::stay_for_others(error, serves, p.rankSize);
        throw;
    }
}

void say_failed(const Store& place, const AllToAllVV2Param& p, const std::exception& error) noexcept {
    rendezvous::Attempt(place, name_of_domain(p), rendezvous::Attempt::Worlds::many)
        .say_failed(p.rank, p.rankSize, error);
}

ProcessGroup meet(const AllToAllVV2Param& param) {
    if (!param.rankTableFile.empty()) return by_rank_table(param);
    AllToAllVV2Param p = param;
    p.rank = std::max(p.rank, 0);
    if (p.rankSize == 1) return join(p, HashStore());
    try {
        if (p.commMode == COMM_MULTI_THREAD) return meet_among_threads(p);
        if (rendezvous::read_job_environment().store_is_hosted) return in_store_of_launcher(p);
        return on_this_host(p);
    } catch (const Error& error) {
        tell_others(p, error);
        throw;
    }
}

void tell_others(const AllToAllVV2Param& p, const std::exception& error) noexcept {
    try {
        if (p.hcclComm || !p.rankTableFile.empty() || p.rankSize < 2 || p.rank < 0) return;
        if (p.commMode == COMM_MULTI_THREAD) return tell_threads(p, error);
        if (!rendezvous::read_job_environment().store_is_hosted) tell_processes(p, error);
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("a rank cannot tell the others that it does not join: {}", silent.what());
    }
}

}  // namespace tutti::atb
