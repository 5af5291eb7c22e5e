#include "nccl/meeting.hpp"

#include <tutti/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace tutti::nccl {
namespace {

using namespace std::chrono_literals;

constexpr int ranks_of_an_id = 128;
constexpr int sharing_since = 23000;
constexpr int float8_capability = 90;  // older devices move float8 and cannot reduce it
constexpr auto slice = 200ms;          // between checks whether the group is over
constexpr auto grace = 2000ms;         // for rank 0's word after its own timeout

std::string machine() {
    if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id != '\0') return id;
    std::array<char, 256> name{};
    (void)::gethostname(name.data(), name.size() - 1);
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    std::getline(file, boot);
    return name.data() + ("/" + boot);
}

// Values of any bytes, each behind its length.
class Writer {
 public:
    Writer& put(const std::string& text) {
        out_ += std::to_string(text.size()) + ":" + text;
        return *this;
    }
    Writer& put(int number) { return put(std::to_string(number)); }
    std::string take() { return std::move(out_); }

 private:
    std::string out_;
};

class Reader {
 public:
    explicit Reader(std::string text) : text_(std::move(text)) {}
    std::string text() {
        const auto colon = text_.find(':', at_);
        if (colon == std::string::npos) throw InternalError("nccl: a note of another rank is cut off");
        const auto size = std::stoul(text_.substr(at_, colon - at_));
        at_ = colon + 1 + size;
        return text_.substr(colon + 1, size);
    }
    int number() { return std::stoi(text()); }
    bool more() const { return at_ < text_.size(); }

 private:
    std::string text_;
    std::size_t at_ = 0;
};

std::string packed(const Facts& f) {
    return Writer()
        .put(f.version)
        .put(f.gathers ? 1 : 0)
        .put(f.capability)
        .put(f.library)
        .put(f.host)
        .put(f.device)
        .put(f.device_text)
        .put(f.may_share ? 1 : 0)
        .put(f.trouble)
        .take();
}

Facts facts_from(Reader& in) {
    Facts f;
    f.version = in.number();
    f.gathers = in.number() != 0;
    f.capability = in.number();
    f.library = in.text();
    f.host = in.text();
    f.device = in.text();
    f.device_text = in.text();
    f.may_share = in.number() != 0;
    f.trouble = in.text();
    return f;
}

std::string bytes_of(const UniqueId& id) {
    return {id.bytes, sizeof id.bytes};
}

UniqueId id_from(const std::string& bytes) {
    UniqueId id{};
    std::memcpy(id.bytes, bytes.data(), std::min(bytes.size(), sizeof id.bytes));
    return id;
}

// Waits in slices, so that it ends when the group does. Passes on the store's own errors, except that of a late key.
bool came(Context& context, const std::string& key, Clock::time_point until) {
    for (;;) {
        context.throw_if_over();
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
        if (left.count() <= 0) return false;
        try {
            context.store().wait({key}, std::min<std::chrono::milliseconds>(left, slice));
            return true;
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
    }
}

[[noreturn]] void throw_missing(const Context& context, int rank) {
    throw Timeout(context.title() + ": rank " + std::to_string(rank) +
                      " has not come to make the communicator within " + std::to_string(context.timeout().count()) +
                      " ms: expected every rank at its first operation",
                  {.rank = context.rank(), .peer = rank, .elapsed = context.timeout()});
}

// Waits until all ranks of the group have come to this meeting.
void wait_for_all(const DistributedBackendOptions& options, const std::string& backend, const std::string& meeting) {
    Store store = options.store;
    const std::string all = "all " + meeting;
    if (store.add(meeting, 1) == options.group_size) store.set(all, "yes");
    try {
        store.wait({all}, options.timeout);
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        throw Timeout(backend + ": " + std::to_string(store.add(meeting, 0)) + " of the " +
                          std::to_string(options.group_size) + " ranks of group \"" + options.group_id +
                          "\" have come within " + std::to_string(options.timeout.count()) + " ms: expected all",
                      {.rank = options.group_rank, .elapsed = options.timeout});
    }
}

// Rank 0 reads all facts and publishes the agreement or the disagreement.
std::string decide(Context& context, const std::string& key) {
    const auto until = Clock::now() + context.timeout();
    std::vector<Facts> all;
    std::vector<std::string> ids;
    for (int rank = 0; rank < context.size(); ++rank) {
        const std::string own = key + std::to_string(rank);
        if (!came(context, own, until)) throw_missing(context, rank);
        Reader in(context.store().get(own));
        all.push_back(facts_from(in));
        if (in.more()) ids.push_back(in.text());
    }
    const std::string trouble = disagreement(context.library()->vendor().backend, all);
    if (!trouble.empty()) return Writer().put(trouble).take();
    const Agreement found = agreement(all);
    Writer out;
    out.put("").put(found.version).put(found.gathers ? 1 : 0).put(found.reduces_float8 ? 1 : 0);
    for (const std::string& id : ids) out.put(id);
    return out.take();
}

}  // namespace

bool all_say_yes(const DistributedBackendOptions& options, const std::string& backend, const std::string& what,
                 bool yes) {
    Store store = options.store;
    if (!yes) store.set("no to " + what, "yes");
    wait_for_all(options, backend, what);
    return !store.check({"no to " + what});
}

void roll_call(const DistributedBackendOptions& options, const std::string& backend, const std::string& trouble) {
    Store store = options.store;
    if (!trouble.empty())
        store.compare_set("trouble", "", "rank " + std::to_string(options.group_rank) + ": " + trouble);
    wait_for_all(options, backend, "present");
    if (store.check({"trouble"}))
        throw DistBackendError(backend + ": group \"" + options.group_id + "\" cannot be made; " + store.get("trouble"),
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
    const std::string key = "meet/" + meeting + "/";
    const std::string verdict_key = key + "verdict";
    std::string note = packed(own);
    if (context.rank() % ranks_of_an_id == 0 && own.trouble.empty()) {
        try {
            note += Writer().put(bytes_of(Communicator::make_id(*context.library(), context.store()))).take();
        } catch (const DistError& error) {
            Facts cannot = own;
            cannot.trouble = error.what();
            note = packed(cannot);
        }
    }
    context.store().set(key + std::to_string(context.rank()), note);
    if (context.rank() == 0) {
        try {
            context.store().set(verdict_key, decide(context, key));
        } catch (const Timeout& error) {
            context.store().set(verdict_key, Writer().put(error.what()).take());
            throw;
        }
    } else if (!came(context, verdict_key, Clock::now() + context.timeout() + grace)) {
        throw_missing(context, 0);
    }
    Reader in(context.store().get(verdict_key));
    if (const std::string trouble = in.text(); !trouble.empty())
        throw DistBackendError(trouble, {.rank = context.rank()});
    Agreement agreed{
        .version = in.number(), .gathers = in.number() != 0, .reduces_float8 = in.number() != 0, .ids = {}};
    while (in.more()) agreed.ids.push_back(id_from(in.text()));
    return agreed;
}

}  // namespace tutti::nccl
