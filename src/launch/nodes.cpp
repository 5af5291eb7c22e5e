#include "launch/nodes.hpp"

#include "core/patience.hpp"
#include "core/socket.hpp"
#include "core/thread.hpp"
#include "security/local_secret.hpp"
#include "store/encryption.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <system_error>

namespace tutti::launch {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto slice = 500ms;      // between two signs of life
constexpr auto silence = 15s;      // of a launcher that is taken for dead
constexpr auto stall = 2s;         // between two looks at the others, after which their silence may be our own
constexpr auto farewell = 3s;      // node 0 waits for the others' leaving
constexpr auto attempt_time = 2s;  // of one try to reach the store
constexpr auto retry = 200ms;      // between two of them

std::string key(int attempt, const char* what) {
    return fmt::format("launch/{}/{}", attempt, what);
}

std::string to_text(const JobOutcome& v) {
    return fmt::format("{} {} {} {} {}", v.good ? 1 : 0, v.again ? 1 : 0, v.status, v.node, v.text);
}

JobOutcome to_outcome(const std::string& text) {
    std::istringstream in(text);
    JobOutcome v;
    in >> v.good >> v.again >> v.status >> v.node;
    std::getline(in >> std::ws, v.text, '\0');
    return v;
}

}  // namespace

Nodes::Nodes(NodesOptions options) : options_(std::move(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) throw std::system_error(errno, std::generic_category(), "tutti run: no descriptor for the nodes");
    thread_ = thread::start({"tutti-nodes", "watching the other nodes"}, [this] { watch(); });
}

Nodes::~Nodes() {
    leaving_ = true;
    post([&](Store& store) {
        store.add("launch/left", 1);
        const auto end = Clock::now() + farewell;
        while (options_.node_rank == 0 && store.add("launch/left", 0) < options_.nodes && Clock::now() < end)
            std::this_thread::sleep_for(10ms);
    });
    thread_.join();
}

void Nodes::clear() {
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);
}

std::optional<Nodes::Layout> Nodes::layout() {
    const std::lock_guard lock(mutex_);
    return layout_;
}

std::optional<JobOutcome> Nodes::outcome(int attempt) {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<std::size_t>(attempt);
    if (index < outcomes_.size()) return outcomes_[index];
    return lost_;
}

bool Nodes::all_stopped(int attempt) {
    const std::lock_guard lock(mutex_);
    return stopped_ >= attempt;
}

void Nodes::done(int attempt) {
    post([&](Store& store) {
        if (store.add(key(attempt, "done"), 1) == options_.nodes) store.set(key(attempt, "end"), to_text({}));
    });
}

void Nodes::failed(int attempt, JobOutcome outcome) {
    outcome.good = false;
    outcome.node = options_.node_rank;
    post([&](Store& store) { store.compare_set(key(attempt, "end"), "", to_text(outcome)); });
}

void Nodes::stopped(int attempt) {
    post([&](Store& store) {
        if (store.add(key(attempt, "stopped"), 1) == options_.nodes) store.set(key(attempt, "all_stopped"), "1");
    });
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
    if (!met_ || options_.node_rank == 0) return lost(options_.node_rank, error.what());
    const std::string server = fmt::format("its launcher, which serves the job's store at {} port {}, was lost",
                                           options_.master_addr, options_.master_port);
    if (error.code() == ErrorCode::timeout)
        return lost(0, fmt::format("{}: nothing was heard of it for {:.1f} s: it was stopped, or the network between "
                                   "it and node {} was cut; the ranks of this node are ended",
                                   server, since, options_.node_rank));
    std::string why =
        fmt::format("{}: it has closed the connection ({}); the ranks of this node are ended", server, error.what());
    if (since > 1.0 * (silence / 1s))
        why +=
            fmt::format(". This launcher itself stood still for {:.1f} s; the others take a node for lost after {} s",
                        since, silence / 1s);
    lost(0, why);
}

void Nodes::lost(int node, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_ = JobOutcome{false, false, 1, node, why};
    ::eventfd_write(wake_.get(), 1);
}

// ---- The watching thread

void Nodes::watch() {
    try {
        Store store = connect();
        if (store) meet(store);
        for (int attempt = 0; !leaving_ && watch_attempt(store, attempt); ++attempt) {
        }
    } catch (const DistError& error) {
        if (!leaving_) lost_store(error);
    } catch (const std::exception& error) {
        if (!leaving_) lost(options_.node_rank, error.what());
    }
}

// Where the store itself hands out the secret, on one host, there is none before it is there.
bool Nodes::is_absence(const DistError& error) const {
    if (error.code() == ErrorCode::network || error.code() == ErrorCode::timeout) return true;
    return error.code() == ErrorCode::security && !options_.secret && net::is_loopback(options_.master_addr) &&
           !security::Secret::from_environment();
}

// Other nodes may be started before node 0.
Store Nodes::connect() {
    const auto end = Clock::now() + options_.patience;
    const tutti::Patience waiting([this] {
        return fmt::format("the launcher of node 0 at --master-addr {} --master-port {}", options_.master_addr,
                           options_.master_port);
    });
    while (!leaving_) {
        try {
            secret_ = options_.secret
                          ? *options_.secret
                          : security::resolve_secret({.host = options_.master_addr, .port = options_.master_port},
                                                     Deadline::after(attempt_time))
                                .secret.to_text();
            const TCPStoreOptions options{
                .host = options_.master_addr, .port = options_.master_port, .timeout = attempt_time, .secret = secret_};
            Store watched = TCPStore(options), own = TCPStore(options);
            own.set_timeout(silence);
            watched.set_timeout(silence);
            const std::lock_guard lock(mutex_);
            store_ = std::move(own);
            return watched;
        } catch (const DistError& error) {
            if (is_absence(error) && Clock::now() < end) {
                // A name server refuses an unknown name at once, and asking again loads the server.
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
        const JobOutcome outcome{.good = false, .again = false, .status = 1, .node = options_.node_rank, .text = why};
        store.compare_set(key(0, "end"), "", to_text(outcome));
    } catch (const std::exception&) {  // no launcher can be told
    }
}

void Nodes::meet(Store& store) {
    const std::string mine =
        fmt::format("{} {} {} {}", options_.ranks, options_.nodes, options_.max_restarts, options_.id);
    const std::string my_key = fmt::format("launch/node/{}", options_.node_rank);
    if (options_.node_rank == 0) {
        store.set("launch/run_id", options_.run_id);
        store.set("launch/ranks_port", std::to_string(options_.ranks_port));
    }
    if (store.compare_set(my_key, "", mine) != mine) {
        throw InvalidArgument(
            fmt::format("tutti run: --node-rank {}: another launcher of this job has it; give each "
                        "node its own, 0 to {}",
                        options_.node_rank, options_.nodes - 1));
    }
    std::vector<std::string> keys{"launch/run_id", "launch/ranks_port"};
    const std::size_t first_node = keys.size();
    for (int k = 0; k < options_.nodes; ++k) keys.push_back(fmt::format("launch/node/{}", k));
    const auto end = Clock::now() + options_.patience;
    const tutti::Patience waiting([this] {
        return fmt::format("the launchers of all {} nodes; this one has --node-rank {}", options_.nodes,
                           options_.node_rank);
    });
    while (!store.check(keys)) {
        tutti::patience::look();
        if (leaving_ || store.check({key(0, "end")})) return;  // one of them does not wait any longer
        if (Clock::now() >= end) {
            std::string missing;
            for (std::size_t k = first_node; k < keys.size(); ++k) {
                if (!store.check({keys[k]}))
                    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", k - first_node);
            }
            throw DistStoreError(fmt::format("tutti run: --nnodes {}: no launcher of node {} has come in {} s",
                                             options_.nodes, missing, options_.patience / 1s),
                                 {}, ErrorCode::timeout);
        }
        std::this_thread::sleep_for(20ms);
    }
    const std::vector<std::string> cards = store.multi_get(keys);
    Layout layout{0, 0, cards[0], secret_, std::atoi(cards[1].c_str())};
    for (int k = 0; k < options_.nodes; ++k) {
        std::istringstream in(cards[first_node + static_cast<std::size_t>(k)]);
        int ranks = 0, nodes = 0, restarts = 0;
        if (!(in >> ranks >> nodes >> restarts) || ranks < 1) {
            throw DistStoreError(
                fmt::format("tutti run: the store says of node {}: \"{}\": expected its ranks, nodes "
                            "and restarts",
                            k, cards[static_cast<std::size_t>(k) + 1]));
        }
        if (nodes != options_.nodes || restarts != options_.max_restarts) {
            throw InvalidArgument(fmt::format(
                "tutti run: node {} was started with --nnodes {} --max-restarts {}, node {} with --nnodes {} "
                "--max-restarts {}: expected the same on all nodes",
                options_.node_rank, options_.nodes, options_.max_restarts, k, nodes, restarts));
        }
        if (k < options_.node_rank) layout.first_rank += ranks;
        layout.world_size += ranks;
    }
    heard_.resize(static_cast<std::size_t>(options_.nodes));
    heard_at_.assign(heard_.size(), Clock::now());
    looked_at_ = Clock::now();
    met_ = true;
    const std::lock_guard lock(mutex_);
    layout_ = layout;
    ::eventfd_write(wake_.get(), 1);
}

// True: there will be another attempt.
bool Nodes::watch_attempt(Store& store, int attempt) {
    if (!wait_for(store, key(attempt, "end"), attempt)) return false;
    const JobOutcome outcome = to_outcome(store.get(key(attempt, "end")));
    conclude(attempt, outcome);
    if (outcome.good || !outcome.again || attempt >= options_.max_restarts) return false;
    if (!wait_for(store, key(attempt, "all_stopped"), attempt + 1)) return false;
    const std::lock_guard lock(mutex_);
    stopped_ = attempt;
    ::eventfd_write(wake_.get(), 1);
    return true;
}

void Nodes::conclude(int attempt, const JobOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_.resize(static_cast<std::size_t>(attempt));
    outcomes_.push_back(outcome);
    ::eventfd_write(wake_.get(), 1);
}

// False: we leave.
bool Nodes::wait_for(Store& store, const std::string& name, int attempt) {
    while (!leaving_) {
        try {
            store.wait({name}, slice);
            return true;
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
        beat(store, attempt);
    }
    return false;
}

// A launcher that is silent for long ends the attempt, on all nodes.
void Nodes::beat(Store& store, int attempt) {
    store.add(fmt::format("launch/beat/{}", options_.node_rank), 1);
    const auto now = Clock::now();
    const auto away = now - looked_at_.exchange(now);
    if (options_.node_rank != 0) return;
    for (int k = 1; k < options_.nodes; ++k) {
        const auto index = static_cast<std::size_t>(k);
        const std::string sign = std::to_string(store.add(fmt::format("launch/beat/{}", k), 0));
        if (sign != heard_[index] || away > stall) {
            heard_[index] = sign;
            heard_at_[index] = now;
        } else if (const auto silent = now - heard_at_[index]; silent > silence) {
            const std::string why = fmt::format(
                "its launcher was lost: nothing was heard of it for {:.1f} s: it was killed or stopped, or "
                "the network between it and node 0 was cut; the ranks of all nodes are ended",
                std::chrono::duration<double>(silent).count());
            const JobOutcome outcome{.good = false, .again = false, .status = 1, .node = k, .text = why};
            store.compare_set(key(attempt, "end"), "", to_text(outcome));
            return;
        }
    }
}

}  // namespace tutti::launch
