#include "launch/nodes.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/names.hpp"
#include "core/patience.hpp"
#include "core/socket.hpp"
#include "core/this_host.hpp"
#include "core/thread.hpp"
#include "security/local_secret.hpp"
#include "store/encryption.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <system_error>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto slice = 500ms;        // between two signs of life
constexpr auto look_time = 50ms;     // between two looks of node 0 at those that are to come
constexpr auto change_time = 100ms;  // between two looks at what the nodes' ranks do, where they are replaced
constexpr auto silence = Places::silence;
constexpr auto farewell = 3s;      // node 0 waits for the others' leaving
constexpr auto attempt_time = 2s;  // of one try to reach the store
constexpr auto retry = 200ms;      // between two of them
constexpr const char* left_key = "launch/left";

std::string sign_of_life() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

std::string end_key(int attempt) {
    TUTTI_ASSERT(attempt >= 0);
    return attempt_key(attempt, "end");
}

std::string to_text(const JobOutcome& v) {
    return fmt::format("{} {} {} {} {} {}", v.good ? 1 : 0, v.again ? 1 : 0, v.lost ? 1 : 0, v.status, v.node, v.text);
}

JobOutcome to_outcome(const std::string& text) {
    std::istringstream in(text);
    JobOutcome v;
    in >> v.good >> v.again >> v.lost >> v.status >> v.node;
    std::getline(in >> std::ws, v.text, '\0');
    return v;
}

// Its ranks may be started again, by another launcher.
JobOutcome lost_launcher(int node, std::string text) {
    return {.good = false, .again = true, .status = 1, .node = node, .text = std::move(text), .lost = true};
}

}  // namespace

Nodes::Nodes(NodesOptions options)
    : options_(std::move(options)),
      node_(options_.node_rank),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      may_leave_(options_.node_rank != 0) {
    TUTTI_ASSERT(options_.nodes > 1 && options_.node_rank >= -1 && options_.node_rank < options_.nodes &&
                 options_.ranks >= 1);
    TUTTI_ASSERT(!options_.id.empty() && options_.id.find_first_of(" \n") == std::string::npos);
    if (!wake_) throw std::system_error(errno, std::generic_category(), "tutti run: no descriptor for the nodes");
    thread_ = thread::start({"tutti-nodes", "watching the other nodes"}, [this] { watch(); });
}

Nodes::~Nodes() {
    leaving_.raise("this launcher ends");
    thread_.join();
    post([&](Store& store) { leave(store); });
}

void Nodes::clear() {
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
}

std::optional<Nodes::Layout> Nodes::layout(int attempt) {
    const std::lock_guard lock(mutex_);
    return layout_ && layout_->attempt >= attempt ? layout_ : std::nullopt;
}

std::optional<JobOutcome> Nodes::outcome(int attempt) {
    const std::lock_guard lock(mutex_);
    // A launcher that came later knows of no attempt before its own.
    const auto found = outcomes_.lower_bound(attempt);
    if (found != outcomes_.end()) return found->second;
    return lost_;
}

void Nodes::done(int attempt) {
    TUTTI_ASSERT(attempt >= 0);
    post([&](Store& store) {
        if (store.add(attempt_key(attempt, "done"), 1) == options_.nodes)
            store.compare_set(end_key(attempt), "", to_text({}));
    });
}

void Nodes::failed(int attempt, JobOutcome outcome) {
    outcome.good = false;
    outcome.node = node_;
    post([&](Store& store) {
        // One that waits for a place is no part of an attempt that runs.
        if (!met_ && store.check({attempt_key(0, "roster")})) return;
        store.compare_set(end_key(attempt), "", to_text(outcome));
    });
}

void Nodes::tell(int attempt, const NodeState& state) {
    JobOutcome failure = state.failure;
    failure.node = node_;
    post([&](Store& store) {
        store.set(attempt_key(attempt, "state/") + id_,
                  fmt::format("{} {}", static_cast<int>(state.kind), to_text(failure)));
    });
}

void Nodes::stopped(int attempt) {
    post([&](Store& store) { store.append(attempt_key(attempt, "stopped"), id_ + "\n"); });
}

void Nodes::leave(Store& store) {
    TUTTI_ASSERT(leaving_.raised());
    bool has_ended = true;
    if (hosts_) {
        store.set_timeout(farewell);
        has_ended = store.check({end_key(layout_ ? layout_->attempt : 0)});
        if (has_ended) hosts_->expect_end();
    }
    store.append(left_key, id_ + "\n");
    if (!places_ || !has_ended) return;
    for (const auto end = Clock::now() + farewell; Clock::now() < end; std::this_thread::sleep_for(10ms)) {
        const std::string left = store.get(left_key);
        const auto has_left = [&](const std::string& id) { return left.find(id) != std::string::npos; };
        if (std::ranges::all_of(places_->present(), has_left)) return;
    }
}

// Before the launcher has reached the store there is no other to tell.
template <class Call>
void Nodes::post(Call call) {
    Store store;
    {
        const std::lock_guard lock(mutex_);
        if (lost_) return;
        store = store_;
    }
    try {
        if (store) call(store);
    } catch (const DistError& error) {
        lost_store(error);
    }
}

// The store is that of node 0's launcher: a launcher that does not reach it any more has lost that node, unless the
// others have given this one up.
void Nodes::lost_store(const DistError& error) {
    const auto since = std::chrono::duration<double>(Clock::now() - looked_at_.load()).count();
    bool is_kept_twice = false;
    {
        const std::lock_guard lock(mutex_);
        is_kept_twice = servers_.has_value();
    }
    if (!met_ || options_.node_rank == 0) return lost(node_, error.what());
    if (is_kept_twice) return lost(node_, fmt::format("{}; the ranks of this node are ended", error.what()));
    const std::string server = fmt::format("its launcher, which serves the job's store at {} port {}, was lost",
                                           options_.master_addr, options_.master_port);
    const std::string advice = options_.least > 0 ? "; with --standby a job goes on without its node 0" : "";
    if (error.code() == ErrorCode::timeout)
        return lost(0, fmt::format("{}: nothing was heard of it for {:.1f} s: it was stopped, or the network between "
                                   "it and node {} was cut; the ranks of this node are ended{}",
                                   server, since, node_.load(), advice));
    std::string why = fmt::format("{}: it has closed the connection ({}); the ranks of this node are ended{}", server,
                                  error.what(), advice);
    if (since > 1.0 * (silence / 1s))
        why +=
            fmt::format(". This launcher itself stood still for {:.1f} s; the others take a node for lost after {} s",
                        since, silence / 1s);
    lost(0, why);
}

void Nodes::lost(int node, const std::string& why) {
    TUTTI_ASSERT(node >= -1 && node < options_.nodes && !why.empty());
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = JobOutcome{false, false, 1, node, why};
    ::eventfd_write(wake_.get(), 1);
}

// ---- The watching thread

void Nodes::watch() {
    const auto end = Clock::now() + options_.patience;
    try {
        for (;;) {
            try {
                return take_part(end);
            } catch (const DistStoreError& error) {
                // A launcher of node 0 that ended before all had come may come again, with a store that knows nobody.
                if (met_ || options_.node_rank == 0 || leaving_.raised() || Clock::now() >= end) throw;
                TUTTI_WARN("tutti run: node 0's launcher was lost before all had come, and is looked for again: {}",
                           error.what());
            }
        }
    } catch (const DistError& error) {
        if (!leaving_.raised()) lost_store(error);
    } catch (const std::exception& error) {
        if (!leaving_.raised()) lost(node_, error.what());
    }
}

void Nodes::take_part(Moment end) {
    hosts_.reset();
    Store store = connect(end);
    int attempt = store ? come(store, end) : -1;
    while (attempt >= 0 && (!places_ || form(store, attempt)) && join(store, attempt) && watch_attempt(store, attempt))
        ++attempt;
}

// Where the store itself hands out the secret, on one host, there is none before it is there.
bool Nodes::is_absence(const DistError& error) const {
    if (error.code() == ErrorCode::network || error.code() == ErrorCode::timeout) return true;
    return error.code() == ErrorCode::security && !options_.secret && net::is_loopback(options_.master_addr) &&
           !security::Secret::from_environment();
}

std::string Nodes::secret_of_node_0(std::chrono::milliseconds limit) const {
    if (options_.secret) return *options_.secret;
    return security::resolve_secret({.host = options_.master_addr, .port = options_.master_port},
                                    Deadline::after(limit))
        .secret.to_text();
}

// Other nodes may be started before node 0, and before its name is known.
Store Nodes::connect(Moment end) {
    const tutti::Patience waiting([this] {
        const std::string unknown = net::why_unknown(options_.master_addr);
        return fmt::format("the launcher of node 0 at --master-addr {} --master-port {}{}{}", options_.master_addr,
                           options_.master_port, unknown.empty() ? "" : ": ", unknown);
    });
    while (!leaving_.raised()) {
        try {
            net::await_name(options_.master_addr, Deadline::at(end), &leaving_);
            secret_ = secret_of_node_0(attempt_time);
            const TCPStoreOptions options{
                .host = options_.master_addr, .port = options_.master_port, .timeout = attempt_time, .secret = secret_};
            Store watched = TCPStore(options), own = TCPStore(options);
            own.set_timeout(silence);
            watched.set_timeout(silence);
            const std::lock_guard lock(mutex_);
            store_ = std::move(own);
            return watched;
        } catch (const DistError& error) {
            if (leaving_.raised()) break;
            if (is_absence(error) && Clock::now() < end) {
                tutti::patience::look();
                std::this_thread::sleep_for(retry);
                continue;
            }
            const std::string why = fmt::format(
                "tutti run: the launcher of node 0 is not to be reached at --master-addr {} --master-port "
                "{}: {}",
                options_.master_addr, options_.master_port, error.what());
            tell_node_0(error.what());
            throw DistNetworkError(why, {}, error.code());
        }
    }
    return {};
}

// It may take other connections than those of work, so that all nodes end for the reason of this one.
void Nodes::tell_node_0(const std::string& why) const noexcept {
    try {
        const store::OnlyToTell telling;
        TCPStore store(
            {.host = options_.master_addr, .port = options_.master_port, .timeout = attempt_time, .secret = secret_});
        const JobOutcome outcome{.good = false, .again = false, .status = 1, .node = node_, .text = why};
        if (!store.check({attempt_key(0, "roster")})) store.compare_set(end_key(0), "", to_text(outcome));
    } catch (const std::exception&) {  // no launcher can be told
    }
}

std::string Nodes::others() const {
    if (options_.node_rank < 0)
        return fmt::format("a place in the job at {} port {}", options_.master_addr, options_.master_port);
    return fmt::format("the launchers of all {} nodes; this one has --node-rank {}{}{}", options_.nodes,
                       options_.node_rank, missing_.empty() ? "" : "; ", missing_);
}

std::string Nodes::in_vain() const {
    const std::string flag = options_.node_rank < 0 ? "--join" : fmt::format("--nnodes {}", options_.nodes);
    return fmt::format("{}: {}; waited for {} s", flag, missing_.empty() ? "node 0 says nothing" : missing_,
                       options_.patience / 1s);
}

// Asks for this node's place. The attempt for which it has it; -1: never.
int Nodes::come(Store& store, Moment end) {
    id_ = fmt::format("{}-{}", options_.id, ++connections_);  // its last will is that of one connection
    NodeCard card{.node = options_.node_rank,
                  .id = id_,
                  .ranks = options_.ranks,
                  .nodes = options_.node_rank < 0 ? 0 : options_.nodes,
                  .max_restarts = options_.max_restarts,
                  .least = options_.least,
                  .standby = options_.standby,
                  .pid = ::getpid(),
                  .address = store.backend()->local_host(),
                  .host = this_host::name()};
    if (card.address.empty() || card.address == "0.0.0.0") card.address = options_.master_addr;  // node 0's host
    looked_at_ = Clock::now();
    store.set("launch/beat/" + card.id, sign_of_life());
    store.backend()->set_will("launch/gone/" + card.id, "1", silence);
    if (options_.node_rank == 0) {
        places_.emplace(store, card, options_.ranks_port, options_.run_id, options_.last_call);
        if (options_.standby) look_at_servers(store);
        return 0;
    }
    store.append("launch/came", card.to_text() + "\n");
    const tutti::Patience waiting([this] { return others(); });
    const std::string key = "launch/answer/" + card.id;
    while (!wait_for(store, key, end)) {
        if (leaving_.raised() || elsewhere()) return -1;
    }
    std::istringstream in(store.get(key));
    std::string verb, rest;
    in >> verb;
    std::getline(in >> std::ws, rest, '\0');
    if (verb == "joins") {
        int attempt = -1, node = -1;
        std::istringstream(rest) >> attempt >> node;
        node_ = node;
        return attempt;
    }
    lost(node_, "tutti run: " + rest);
    return -1;
}

// The part of the launcher that serves the store: until all are ready for the attempt.
bool Nodes::form(Store& store, int attempt) {
    TUTTI_ASSERT(places_.has_value());
    if (store.check({attempt_key(attempt, "roster")})) return true;  // by the one that served before
    const auto end = Clock::now() + options_.patience;
    places_->rest();
    const tutti::Patience waiting([this] { return others(); });
    const auto fail = [&](const std::string& why) {
        const JobOutcome outcome{.good = false, .status = 1, .node = node_, .text = "tutti run: " + why};
        store.compare_set(end_key(attempt), "", to_text(outcome));
    };
    for (; !leaving_.raised(); std::this_thread::sleep_for(look_time)) {
        tutti::patience::look();
        looked_at_ = Clock::now();
        places_->look();
        if (attempt == 0 && is_elsewhere(store)) return false;
        if (store.check({end_key(attempt)})) {  // one of them does not wait any longer
            places_->give_up(attempt);
            return true;
        }
        const auto missing = places_->missing(attempt);
        missing_ = missing ? missing->text : "";
        // The lowest of all that have come is to keep the standby.
        if (hosts_ && (attempt > 0 || !missing)) look_at_servers(store);
        if (attempt == 0 && !places_->disagreement().empty())
            fail(places_->disagreement());
        else if (!missing) {
            if (hosts_ && hosts_->waits_for_standby()) continue;
            places_->begin(attempt);
            return true;
        } else if (Clock::now() >= end)
            fail(in_vain());
    }
    return false;
}

bool Nodes::join(Store& store, int attempt) {
    const auto limit = Clock::now() + options_.patience + silence;
    const tutti::Patience waiting([this] { return others(); });
    const std::string key = attempt_key(attempt, "roster");
    while (!wait_for(store, key, limit)) {
        if (leaving_.raised() || elsewhere() || !form(store, attempt)) return false;
    }
    if (hosts_ || StoreHosts::are_in(store)) look_at_servers(store);
    const std::string text = store.get(key);
    if (text.empty()) {
        conclude(attempt, to_outcome(store.get(end_key(attempt))));
        return false;
    }
    roster_ = NodesRoster::from_text(text);
    const auto mine = std::ranges::find(roster_.cards, id_, &NodeCard::id);
    const bool comes_later = mine == roster_.cards.end() && options_.least > 0 && !met_;
    if (mine == roster_.cards.end() && !comes_later) {
        const auto other = std::ranges::find(roster_.cards, node_.load(), &NodeCard::node);
        const std::string who = other == roster_.cards.end()
                                    ? "the job goes on without it"
                                    : fmt::format("another one has its place ({})", other->who());
        lost(node_, fmt::format("tutti run: --node-rank {}: nothing was heard of this launcher for more than {} s, and "
                                "{}: it ends here",
                                node_.load(), silence / 1s, who));
        return false;
    }
    Layout layout{.attempt = attempt,
                  .newcomers = comes_later,
                  .group_rank = node_,
                  .group_size = static_cast<int>(roster_.cards.size()),
                  .run_id = roster_.run_id,
                  .secret = secret_,
                  .ranks_port = roster_.ranks_port};
    for (auto card = roster_.cards.begin(); card != roster_.cards.end(); ++card) {
        if (card < mine) layout.first_rank += card->ranks;
        layout.world_size += card->ranks;
    }
    if (!comes_later) layout.group_rank = static_cast<int>(mine - roster_.cards.begin());
    TUTTI_ASSERT(comes_later || layout.world_size - layout.first_rank >= mine->ranks);
    if (options_.node_rank != 0 && options_.least == 0) {
        const JobOutcome will = lost_launcher(node_, words_of_loss(*mine, connection_ended));
        store.backend()->set_will(end_key(attempt), to_text(will), silence);
    }
    enough_at_ = looked_at_ = Clock::now();
    met_ = true;
    const std::lock_guard lock(mutex_);
    layout_ = layout;
    ::eventfd_write(wake_.get(), 1);
    return true;
}

// True: there will be another attempt.
bool Nodes::watch_attempt(Store& store, int attempt) {
    while (!wait_for(store, end_key(attempt), Moment::max(), attempt)) {
        if (leaving_.raised()) return false;
    }
    JobOutcome outcome = to_outcome(store.get(end_key(attempt)));
    const auto lost = std::ranges::find(roster_.cards, outcome.node, &NodeCard::node);
    if (outcome.lost && lost != roster_.cards.end())
        outcome.text += words_of_sign(store.get("launch/beat/" + lost->id));
    conclude(attempt, outcome);
    const bool again = !outcome.good && outcome.again && attempt < options_.max_restarts;
    if (!again && hosts_) hosts_->expect_end();
    if (!again && places_) places_->close(outcome.good ? "all of its ranks have ended well" : outcome.text);
    return again;
}

// The part of the launcher that serves the store, where ranks are replaced: nodes may vanish, and the attempt ends when
// no rank works any more.
void Nodes::watch_changes(Store& store, int attempt) {
    TUTTI_ASSERT(places_ && places_->changes());
    const auto now = Clock::now();
    const int living = places_->living();
    const int nodes = places_->own().nodes, least = places_->own().least;
    const std::string few = fmt::format("{} of {} nodes {} left, and {} {} needed", living, nodes,
                                        living == 1 ? "is" : "are", least, least == 1 ? "is" : "are");
    for (const Places::Lost& lost : places_->take_lost()) {
        const bool enough = living >= least;
        TUTTI_WARN("tutti run: node {}: {}; {}", lost.node, lost.text,
                   enough ? fmt::format("the job goes on with {} of {} nodes", living, nodes)
                          : fmt::format("{}: {} is waited for, for {} s", few, places_->another(lost.node),
                                        options_.patience / 1s));
    }
    if (living >= least) enough_at_ = now;
    if (now - enough_at_ >= options_.patience) {
        const JobOutcome outcome{.good = false, .status = 1, .node = node_, .text = fmt::format("{}", few)};
        store.compare_set(end_key(attempt), "", to_text(outcome));
    }
    std::vector<std::string> keys;
    for (const std::string& id : places_->present()) keys.push_back(attempt_key(attempt, "state/") + id);
    if (!store.check(keys)) return;
    std::optional<JobOutcome> dead;
    bool is_well = false;
    for (const std::string& text : store.multi_get(keys)) {
        const auto kind = static_cast<NodeState::Kind>(std::atoi(text.c_str()));
        if (kind == NodeState::Kind::works) return;
        is_well |= kind == NodeState::Kind::well;
        if (kind == NodeState::Kind::dead && !dead) dead = to_outcome(text.substr(text.find(' ') + 1));
    }
    if (is_well || dead) store.compare_set(end_key(attempt), "", to_text(is_well ? JobOutcome{} : *dead));
}

void Nodes::conclude(int attempt, const JobOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_[attempt] = outcome;
    ::eventfd_write(wake_.get(), 1);
}

// False: we leave, this launcher has taken over, or the job is elsewhere.
bool Nodes::wait_for(Store& store, const std::string& name, Moment end, std::optional<int> attempt) {
    const bool decides = places_.has_value();
    while (!leaving_.raised() && places_.has_value() == decides) {
        try {
            store.wait({name}, places_ && places_->changes() ? change_time : slice);
            return true;
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
        beat(store, attempt);
        if (is_elsewhere(store)) break;
        if (Clock::now() >= end) throw DistStoreError("tutti run: " + in_vain(), {}, ErrorCode::timeout);
    }
    return false;
}

// A launcher that is silent for long ends the attempt, on all nodes.
void Nodes::beat(Store& store, std::optional<int> attempt) {
    store.set("launch/beat/" + id_, sign_of_life());
    if (hosts_ || (!places_ && StoreHosts::are_in(store))) look_at_servers(store);
    if (!places_) {
        missing_ = store.get("launch/missing");
    } else if (attempt) {
        places_->look();
        if (places_->changes())
            watch_changes(store, *attempt);
        else if (const auto lost = places_->lost())
            store.compare_set(end_key(*attempt), "", to_text(lost_launcher(lost->node, lost->text)));
    }
    looked_at_ = Clock::now();
}

}  // namespace tutti::launch
