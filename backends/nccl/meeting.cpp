#include "nccl/meeting.hpp"

#include "common/meet.hpp"

#include <tutti/error.hpp>
#include <tutti/meeting.hpp>
#include <tutti/object_types.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <span>
#include <utility>

namespace tutti::nccl {

TUTTI_OBJECT(Facts, version, gathers, capability, library, host, device, device_text, may_share, trouble);

namespace {

constexpr int ranks_of_an_id = 128;
constexpr int sharing_since = 23000;
constexpr int float8_capability = 90;  // older devices move float8 and cannot reduce it

std::string machine() {
    if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
    std::array<char, 256> name{};
    (void)::gethostname(name.data(), name.size() - 1);
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    std::getline(file, boot);
    return name.data() + ("/" + boot);
}

// The facts, and the id of a rank that makes one.
std::string card_of(const Facts& facts, const std::string& id) {
    const std::vector<std::byte> bytes = encode(Object(Object::List{Object(facts), Object(id)}));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string bytes_of(const UniqueId& id) {
    return {id.bytes, sizeof id.bytes};
}

UniqueId id_from(const std::string& bytes) {
    UniqueId id{};
    std::memcpy(id.bytes, bytes.data(), std::min(bytes.size(), sizeof id.bytes));
    return id;
}

}  // namespace

bool all_say_yes(const DistributedBackendOptions& options, const std::string& backend, const std::string& what,
                 bool yes) {
    const std::string word = "yes";
    return std::ranges::all_of(backends::meet(options, backend, what, yes ? word : "no"),
                               [&](const std::string& said) { return said == word; });
}

void roll_call(const DistributedBackendOptions& options, const std::string& backend, const std::string& trouble) {
    const std::vector<std::string> troubles = backends::meet(options, backend, "present", trouble);
    const auto found = std::ranges::find_if(troubles, [](const std::string& one) { return !one.empty(); });
    if (found == troubles.end()) return;
    throw DistBackendError(backend + ": group \"" + options.group_id + "\" cannot be made; rank " +
                               std::to_string(found - troubles.begin()) + ": " + *found,
                           {.rank = options.group_rank});
}

std::string disagreement(const std::string& backend, const std::vector<Facts>& facts) {
    const auto rank = [](std::size_t at) { return "rank " + std::to_string(at); };
    for (std::size_t at = 0; at < facts.size(); ++at) {
        if (!facts[at].trouble.empty())
            return backend + ": " + rank(at) + " cannot take part in the communicator: " + facts[at].trouble;
    }
    for (std::size_t at = 1; at < facts.size(); ++at) {
        if (facts[at].version == facts[0].version) continue;
        return backend + ": " + rank(0) + " has " + facts[0].library + ", " + rank(at) + " has " + facts[at].library +
               ": expected the same version on all ranks";
    }
    std::map<std::pair<std::string, std::string>, std::size_t> owners;
    for (std::size_t at = 0; at < facts.size(); ++at) {
        if (facts[at].device.empty() || facts[at].may_share) continue;
        const auto [known, is_new] = owners.try_emplace({facts[at].host, facts[at].device}, at);
        if (is_new) continue;
        return backend + ": " + rank(known->second) + " and " + rank(at) + " are on the same device (" +
               facts[known->second].device_text + " and " + facts[at].device_text +
               "): expected one device for each rank (set the device of the local rank first), or "
               "NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL 2.30 or later, a NCCL_HOSTID for each rank before; the library "
               "is " +
               facts[at].library;
    }
    return {};
}

Agreement agreement(const std::vector<Facts>& facts) {
    const auto all = [&](auto holds) { return std::ranges::all_of(facts, holds); };
    return {
        .version = facts.front().version,
        .gathers = all([](const Facts& f) { return f.gathers; }),
        .reduces_float8 =
            all([](const Facts& f) { return f.version >= float8_since && f.capability >= float8_capability; }),
        .ids = {},
    };
}

Facts facts_of(Context& context, const Place& place) {
    const Library& library = *context.library();
    Facts facts{.version = library.version(),
                .gathers = library.calls().Gather != nullptr && library.calls().Scatter != nullptr,
                .library = library.describe(),
                .host = machine(),
                .device_text = to_string(place.device)};
    if (library.host_memory()) {
        facts.capability = float8_capability;  // any device will do, as it does not compute
        return facts;
    }
    const char* share = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    facts.may_share = library.version() >= sharing_since && share != nullptr && std::string(share) == "1";
    try {
        facts.device = place.driver->identity(place.device.index);
        facts.capability = place.driver->capability(place.device.index);
    } catch (const std::exception& error) {
        facts.trouble = error.what();
    }
    return facts;
}

Agreement meet(Context& context, const Facts& own, const std::string& meeting) {
    const std::string& backend = context.library()->vendor().backend;
    Facts facts = own;
    std::string id;
    if (context.rank() % ranks_of_an_id == 0 && own.trouble.empty()) {
        try {
            id = bytes_of(Communicator::make_id(*context.library(), context.store()));
        } catch (const DistError& error) {
            facts.trouble = error.what();
        }
    }
    Met met;
    try {
        met = tutti::meet({.place = context.store(),
                           .name = meeting,
                           .rank = context.rank(),
                           .size = context.size(),
                           .timeout = context.timeout(),
                           .operation = backend,
                           .once = true,
                           .check = [&context] { context.throw_if_over(); }},
                          card_of(facts, id));
    } catch (const Timeout& error) {
        throw Timeout(context.title() + ": rank " + std::to_string(error.context().peer) +
                          " has not come to make the communicator within " + std::to_string(context.timeout().count()) +
                          " ms: expected every rank at its first operation",
                      {.rank = context.rank(), .peer = error.context().peer, .elapsed = context.timeout()});
    }
    std::vector<Facts> all;
    std::vector<UniqueId> ids;
    for (const std::string& card : met.cards) {
        const Object both = decode(std::as_bytes(std::span(card)));
        all.push_back(both.as_list().at(0).get<Facts>());
        if (const std::string& bytes = both.as_list().at(1).as_string(); !bytes.empty()) ids.push_back(id_from(bytes));
    }
    if (const std::string trouble = disagreement(backend, all); !trouble.empty())
        throw DistBackendError(trouble, {.rank = context.rank()});
    Agreement agreed = agreement(all);
    agreed.ids = std::move(ids);
    return agreed;
}

}  // namespace tutti::nccl
