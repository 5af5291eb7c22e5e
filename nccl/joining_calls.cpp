// The exported functions that make communicators: from a unique id, in one process, and from others.
#include "exports.hpp"
#include "faults.hpp"
#include "group_call.hpp"
#include "streams.hpp"
#include "unique_id.hpp"

#include <tutti/meeting.hpp>
#include <tutti/store.hpp>

#include <algorithm>
#include <cstring>
#include <set>

namespace nccl = tutti::nccl_library;
using nccl::Communicator;
using nccl::GroupCall;
using nccl::Job;

namespace {

void check_ranks(int ranks, int rank) {
    if (ranks < 1) nccl::fail(ncclInvalidArgument, "nranks is ", ranks, ": expected at least 1");
    if (rank < 0 || rank >= ranks) nccl::fail(ncclInvalidArgument, "rank is ", rank, ": expected 0 to ", ranks - 1);
}

// A communicator that this call makes: its handle is there at once, the rest when `job` has run.
Job make(ncclComm_t* place, const std::shared_ptr<Communicator>& communicator, bool blocking,
         std::function<void()> run) {
    ncclComm_t handle = nccl::make_handle(communicator);
    *place = handle;
    return {.communicators = {communicator}, .blocking = blocking, .run = std::move(run), .undo = [place, handle] {
                *place = nullptr;
                nccl::end_handle(handle, "never made");
            }};
}

Job make_by_store(ncclComm_t* place, const nccl::Settings& settings, int device, int ranks, int rank,
                  std::function<tutti::Store()> find_store) {
    auto communicator = std::make_shared<Communicator>(settings, device);
    communicator->set_place(rank, ranks);
    return make(place, communicator, settings.blocking,
                [communicator, find_store = std::move(find_store)] { communicator->join(find_store); });
}

ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
    (void)nccl::faults();  // what is wrong with them is said here
    nccl::check_place("comm", comm);
    *comm = nullptr;
    check_ranks(ranks, rank);
    nccl::check(id);
    const nccl::Settings settings = nccl::settings_of(config);
    return GroupCall::of_this_thread().add(make_by_store(comm, settings, nccl::current_device(), ranks, rank,
                                                         [id, rank] { return nccl::meeting_store(id, rank); }));
}

// One that others are made from: it is ready, or was revoked.
std::shared_ptr<Communicator> parent_of(ncclComm_t comm) {
    auto parent = nccl::communicator_of(comm);
    if (!parent->is_revoked()) parent->check_ready();
    return parent;
}

// `run` gets the parent and, where this rank is in it, the new communicator.
using Make = std::function<void(Communicator& parent, Communicator* made)>;
ncclResult_t make_from(const std::shared_ptr<Communicator>& parent, ncclComm_t* place, const ncclConfig_t* config,
                       bool is_member, Make run) {
    nccl::check_place("newcomm", place);
    *place = nullptr;
    const nccl::Settings settings = nccl::settings_of(config, parent->settings());
    const bool blocking = parent->settings().blocking;
    if (!is_member) {
        return GroupCall::of_this_thread().add(
            Job{.communicators = {parent}, .blocking = blocking, .run = [parent, run] { run(*parent, nullptr); }});
    }
    auto made = std::make_shared<Communicator>(settings, parent->device());
    Job job = make(place, made, blocking, [parent, made, run] {
        try {
            run(*parent, made.get());
        } catch (...) {
            made->become_failed(nccl::as_failure(std::current_exception()));
            throw;
        }
    });
    job.communicators.push_back(parent);
    return GroupCall::of_this_thread().add(std::move(job));
}

// A unique id that one of the ranks makes for the others: made where `is_maker`, given by `pass` to all of them, which
// returns the maker's. A maker that fails says so by an empty one, so that the others do not wait.
ncclUniqueId make_for_others(bool is_maker, const std::function<std::string(const std::string&)>& pass) {
    std::string mine(NCCL_UNIQUE_ID_BYTES, '\0');
    std::exception_ptr error;
    try {
        if (is_maker) mine = nccl::to_bytes(nccl::make_unique_id());
    } catch (...) {
        error = std::current_exception();
    }
    const std::string id = pass(mine);
    if (error != nullptr) std::rethrow_exception(error);
    if (id == std::string(NCCL_UNIQUE_ID_BYTES, '\0')) {
        nccl::fail(ncclRemoteError, "the first rank of the new communicator could not serve a store for it");
    }
    return nccl::from_bytes(id);
}

void join_at(Communicator& made, const ncclUniqueId& id, int rank, int size) {
    made.set_place(rank, size);
    made.join([id, rank] { return nccl::meeting_store(id, rank); });
}

struct Wish {
    int color;
    int key;
};

void split(Communicator& parent, Communicator* made, Wish mine) {
    std::string bytes(sizeof mine, '\0');
    std::memcpy(bytes.data(), &mine, sizeof mine);
    const std::vector<std::string> all = parent.exchange(bytes);
    std::vector<std::pair<int, int>> members;  // key and rank
    for (int rank = 0; rank < parent.size(); ++rank) {
        Wish wish{};
        std::memcpy(&wish, all[static_cast<std::size_t>(rank)].data(), sizeof wish);
        if (wish.color == mine.color) members.emplace_back(wish.key, rank);
    }
    std::ranges::sort(members);
    const int maker = members.front().second;
    const bool is_maker = made != nullptr && maker == parent.rank();
    const auto pass = [&](const std::string& id) { return parent.exchange(id)[static_cast<std::size_t>(maker)]; };
    if (made == nullptr) return (void)pass(std::string(NCCL_UNIQUE_ID_BYTES, '\0'));
    const ncclUniqueId id = make_for_others(is_maker, pass);
    const auto own = std::ranges::find(members, std::pair(mine.key, parent.rank()));
    join_at(*made, id, static_cast<int>(own - members.begin()), static_cast<int>(members.size()));
}

// Ranks that are left out do not call it, so those that stay meet in the parent's store.
void shrink(Communicator& parent, Communicator& made, const std::set<int>& excluded) {
    std::vector<int> members;
    for (int rank = 0; rank < parent.size(); ++rank) {
        if (!excluded.contains(rank)) members.push_back(rank);
    }
    std::string without;
    for (const int rank : excluded) without += nccl::text(" ", rank);
    const auto rank = static_cast<int>(std::ranges::find(members, parent.rank()) - members.begin());
    const auto size = static_cast<int>(members.size());
    const ncclUniqueId id = make_for_others(rank == 0, [&](const std::string& mine) {
        const tutti::MeetingTerms terms{.place = parent.store(),
                                        .name = "shrink without" + without,
                                        .rank = rank,
                                        .size = size,
                                        .operation = "ncclCommShrink"};
        return tutti::meet(terms, mine).cards.front();
    });
    join_at(made, id, rank, size);
}

// The ranks that have the id (NCCL's manual: one, RCCL's: all) give it to the others of the parent; new ranks have it
// already.
void grow(Communicator& parent, Communicator& made, const std::string& own_id, int size) {
    const std::string none(NCCL_UNIQUE_ID_BYTES, '\0');
    std::string id = none;
    for (const std::string& one : parent.exchange(own_id)) {
        if (one == none || one == id) continue;
        if (id != none)
            nccl::fail(ncclInvalidUsage,
                       "ranks of the communicator gave different unique ids: expected one that one of "
                       "them has from ncclCommGetUniqueId");
        id = one;
    }
    if (id == none)
        nccl::fail(ncclInvalidUsage,
                   "no rank of the communicator gave a unique id: expected one from "
                   "ncclCommGetUniqueId on one rank at least");
    join_at(made, nccl::from_bytes(id), parent.rank(), size);
}

}  // namespace

NCCL_EXPORT(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
    return nccl::guarded("ncclGetUniqueId", [&] {
        (void)nccl::faults();
        nccl::check_place("uniqueId", id);
        *id = nccl::given_unique_id();
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank)) {
    return nccl::collected("ncclCommInitRank", [&] { return join(comm, ranks, id, rank, nullptr); });
}

NCCL_EXPORT(ncclResult_t, ncclCommInitRankConfig,
            (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config)) {
    return nccl::collected("ncclCommInitRankConfig", [&] { return join(comm, ranks, id, rank, config); });
}

// One store is enough for all ranks: the first id's.
NCCL_EXPORT(ncclResult_t, ncclCommInitRankScalable,
            (ncclComm_t * comm, int ranks, int rank, int id_count, ncclUniqueId* ids, ncclConfig_t* config)) {
    return nccl::collected("ncclCommInitRankScalable", [&] {
        nccl::check_place("commIds", ids);
        if (id_count < 1 || id_count > std::max(ranks, 1)) {
            nccl::fail(ncclInvalidArgument, "nId is ", id_count, ": expected 1 to the number of ranks, ", ranks);
        }
        for (int i = 1; i < id_count; ++i) nccl::check(ids[i]);
        return join(comm, ranks, ids[0], rank, config);
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int count, const int* devices)) {
    return nccl::collected("ncclCommInitAll", [&] {
        (void)nccl::faults();
        nccl::check_place("comms", comms);
        if (count < 1) nccl::fail(ncclInvalidArgument, "ndev is ", count, ": expected at least 1");
        std::set<int> seen;
        for (int i = 0; devices != nullptr && i < count; ++i) {
            if (devices[i] < 0)
                nccl::fail(ncclInvalidArgument, "devlist[", i, "] is ", devices[i], ": expected 0 or more");
            if (!seen.insert(devices[i]).second) {
                nccl::fail(ncclInvalidUsage, "devlist has device ", devices[i], " twice: expected one rank a device");
            }
        }
        nccl::Settings settings = nccl::settings_of(nullptr);
        settings.blocking = true;
        const tutti::HashStore store;
        GroupCall& group = GroupCall::of_this_thread();
        group.start();
        for (int i = 0; i < count; ++i) {
            const int device = devices != nullptr ? devices[i] : i;
            group.add(make_by_store(comms + i, settings, device, count, i, [store] { return store; }));
        }
        return group.end();
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommSplit,
            (ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config)) {
    return nccl::collected("ncclCommSplit", [&] {
        const auto parent = parent_of(comm);
        if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
            nccl::fail(ncclInvalidArgument, "color is ", color, ": expected 0 or more, or NCCL_SPLIT_NOCOLOR");
        }
        const auto run = [color, key](Communicator& of, Communicator* made) { split(of, made, {color, key}); };
        return make_from(parent, part, config, color != NCCL_SPLIT_NOCOLOR, run);
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommShrink,
            (ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* part, ncclConfig_t* config, int flags)) {
    return nccl::collected("ncclCommShrink", [&] {
        if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
            nccl::fail(ncclInvalidArgument, "shrinkFlags is ", flags,
                       ": expected NCCL_SHRINK_DEFAULT or NCCL_SHRINK_ABORT");
        }
        const auto parent = flags == NCCL_SHRINK_ABORT ? nccl::communicator_of(comm) : parent_of(comm);
        nccl::check_place("excludeRanksList", excluded);
        if (excluded_count < 1 || excluded_count >= parent->size()) {
            nccl::fail(ncclInvalidArgument, "excludeRanksCount is ", excluded_count, ": expected 1 to ",
                       parent->size() - 1);
        }
        std::set<int> out;
        for (int i = 0; i < excluded_count; ++i) {
            if (excluded[i] < 0 || excluded[i] >= parent->size() || excluded[i] == parent->rank()) {
                nccl::fail(ncclInvalidArgument, "excludeRanksList[", i, "] is ", excluded[i],
                           ": expected a rank from 0 to ", parent->size() - 1, " other than this one, ",
                           parent->rank());
            }
            out.insert(excluded[i]);
        }
        return make_from(parent, part, config, true, [out, flags](Communicator& of, Communicator* made) {
            if (flags == NCCL_SHRINK_ABORT) of.revoke();
            shrink(of, *made, out);
        });
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id)) {
    return nccl::guarded("ncclCommGetUniqueId", [&] {
        parent_of(comm);
        nccl::check_place("uniqueId", id);
        *id = nccl::make_unique_id();
        return ncclSuccess;
    });
}

NCCL_EXPORT(ncclResult_t, ncclCommGrow,
            (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* grown, ncclConfig_t* config)) {
    return nccl::collected("ncclCommGrow", [&] {
        if (id != nullptr) nccl::check(*id);
        if (comm == nullptr) {
            nccl::check_place("uniqueId", id);
            return join(grown, ranks, *id, rank, config);
        }
        const auto parent = parent_of(comm);
        if (rank != -1)
            nccl::fail(ncclInvalidArgument, "rank is ", rank, ": expected -1, as comm has its ranks already");
        if (ranks <= parent->size()) {
            nccl::fail(ncclInvalidArgument, "nRanks is ", ranks, ": expected more than comm has, ", parent->size());
        }
        const std::string own = id != nullptr ? nccl::to_bytes(*id) : std::string(NCCL_UNIQUE_ID_BYTES, '\0');
        return make_from(parent, grown, config, true,
                         [own, ranks](Communicator& of, Communicator* made) { grow(of, *made, own, ranks); });
    });
}
