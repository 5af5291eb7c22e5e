#include "scale/real_world.hpp"

#include "core/descriptors.hpp"
#include "scale/children.hpp"
#include "scale/served_store.hpp"

#include <tutti/distributed.hpp>
#include <tutti/groups.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

namespace tutti::bench {
namespace {

using namespace std::chrono_literals;

constexpr int ranks_of_process = 250;  // each has up to 40 descriptors

enum Gate { joining, of_all, of_half, of_members, ending };
enum Number { port, requests, requests_of_rank_0, bytes_given, bytes_got };

/// A rank's store: counts what the rank asks of it.
class CountingStore final : public StoreBackend {
 public:
    explicit CountingStore(std::shared_ptr<StoreBackend> inner) : inner_(std::move(inner)) {}

    void set(std::string_view key, std::string_view value, Milliseconds timeout) override {
        gives({key, value});
        inner_->set(key, value, timeout);
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        gives({key});
        return got(inner_->get(key, timeout));
    }
    std::string get_with_bell(std::string_view key, Milliseconds timeout, int bell) override {
        gives({key});
        return got(inner_->get_with_bell(key, timeout, bell));
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds timeout) override {
        gives({key});
        return inner_->add(key, amount, timeout);
    }
    void append(std::string_view key, std::string_view value, Milliseconds timeout) override {
        gives({key, value});
        inner_->append(key, value, timeout);
    }
    bool check(std::span<const std::string> keys, Milliseconds timeout) override {
        gives({});
        return inner_->check(keys, timeout);
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds timeout) override {
        gives({key, expected, desired});
        return got(inner_->compare_set(key, expected, desired, timeout));
    }
    bool delete_key(std::string_view key, Milliseconds timeout) override {
        gives({key});
        return inner_->delete_key(key, timeout);
    }
    std::int64_t num_keys(Milliseconds timeout) override {
        gives({});
        return inner_->num_keys(timeout);
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        gives({});
        inner_->wait(keys, timeout);
    }
    std::vector<std::string> multi_get(std::span<const std::string> keys, Milliseconds timeout) override {
        gives({});
        for (const std::string& key : keys) given += static_cast<std::int64_t>(key.size());
        std::vector<std::string> values = inner_->multi_get(keys, timeout);
        for (const std::string& value : values) gotten += static_cast<std::int64_t>(value.size());
        return values;
    }
    bool set_will(std::string_view key, std::string_view value, Milliseconds timeout) override {
        gives({key, value});
        return inner_->set_will(key, value, timeout);
    }
    std::string describe() const override { return inner_->describe(); }
    std::string local_host() const override { return inner_->local_host(); }
    void abort(const std::string& reason) override { inner_->abort(reason); }

    std::atomic<std::int64_t> count{0}, given{0}, gotten{0};

 private:
    void gives(std::initializer_list<std::string_view> parts) {
        ++count;
        for (const std::string_view part : parts) given += static_cast<std::int64_t>(part.size());
    }
    std::string got(std::string value) {
        gotten += static_cast<std::int64_t>(value.size());
        return value;
    }

    std::shared_ptr<StoreBackend> inner_;
};

struct Plan {
    int ranks = 0;
    TransportKind transport = TransportKind::automatic;
    bool dies = false;  // the last rank, at the end
};

void run_rank(const Plan& plan, int rank, Gates& gates) {
    gates.pass(joining);
    const TCPStore store({.port = static_cast<std::uint16_t>(gates.number(port)), .wait_for_workers = false});
    const auto counting = std::make_shared<CountingStore>(store.backend());
    ProcessGroup world({.store = Store(counting), .rank = rank, .world_size = plan.ranks, .transport = plan.transport});
    gates.number(requests) += counting->count;
    gates.number(bytes_given) += counting->given;
    gates.number(bytes_got) += counting->gotten;
    if (rank == 0) gates.number(requests_of_rank_0) = counting->count.load();
    gates.done(joining);
    std::vector<int> half(static_cast<std::size_t>(plan.ranks / 2));
    std::iota(half.begin(), half.end(), 0);
    const auto make = [&](Gate gate, const std::function<ProcessGroup()>& group) {
        gates.pass(gate);
        const ProcessGroup made = group();
        gates.done(gate);
        return made;
    };
    const ProcessGroup all = make(of_all, [&] { return new_group({.world = world}); });
    const ProcessGroup some = make(of_half, [&] { return new_group(half, {.world = world}); });
    const ProcessGroup alone =
        make(of_members, [&] { return new_group(half, {.use_local_synchronization = true, .world = world}); });
    gates.pass(ending);
    if (plan.dies && rank == plan.ranks - 1) std::this_thread::sleep_for(10min);  // it is killed
    if (plan.dies) {
        try {
            barrier({.group = world});
        } catch (const PeerLost&) {
            return gates.done(ending);
        }
        throw std::runtime_error(fmt::format("rank {} has not heard of the death", rank));
    }
    world.destroy();
    gates.done(ending);
}

void run_ranks(const Plan& plan, int first, int last, Gates& gates) {
    descriptors::raise();
    std::vector<std::thread> threads;
    for (int rank = first; rank < last; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                run_rank(plan, rank, gates);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "scale_bench: rank %d: %s\n", rank, error.what());
                ::_exit(1);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

void measure(const Plan& plan, WorldFigures& figures) {
    Gates gates;
    const Child server = serve_store(gates, port);
    std::vector<Child> processes;
    for (int first = 0; first < plan.ranks - 1; first += ranks_of_process) {
        const int end = std::min(plan.ranks - 1, first + ranks_of_process);
        processes.emplace_back([&, first, end] { run_ranks(plan, first, end, gates); });
    }
    Child last([&] { run_ranks(plan, plan.ranks - 1, plan.ranks, gates); });
    std::vector<const Child*> survivors{&server}, children{&server, &last};
    for (const Child& process : processes) survivors.push_back(&process), children.push_back(&process);
    gates.await_all(joining, plan.ranks, children);
    const Use before = Use::of(processes.front().pid());
    std::int64_t begin = gates.open(joining, plan.ranks);
    figures.join_s = gates.await_done(joining, plan.ranks, begin, children) * 1e-3;
    gates.await_all(of_all, plan.ranks, children);
    const Use after = Use::of(processes.front().pid());
    const double ranks = plan.ranks;
    figures.requests = static_cast<double>(gates.number(requests)) / ranks;
    figures.requests_of_rank_0 = static_cast<double>(gates.number(requests_of_rank_0));
    figures.bytes_given = static_cast<double>(gates.number(bytes_given)) / ranks;
    figures.bytes_got = static_cast<double>(gates.number(bytes_got)) / ranks;
    const double of_first = std::min(plan.ranks - 1, ranks_of_process);
    figures.private_kib = (after.private_kib - before.private_kib) / of_first;
    figures.shared_kib = (after.shared_kib - before.shared_kib) / of_first;
    figures.descriptors = (after.descriptors - before.descriptors) / of_first;
    figures.threads = (after.threads - before.threads) / of_first + 1;
    const auto time_of = [&](Gate gate) {
        gates.await_all(gate, plan.ranks, children);
        begin = gates.open(gate, plan.ranks);
        return gates.await_done(gate, plan.ranks, begin, children);
    };
    figures.all_ms = time_of(of_all);
    figures.half_ms = time_of(of_half);
    figures.members_ms = time_of(of_members);
    gates.await_all(ending, plan.ranks, children);
    begin = gates.open(ending, plan.ranks);
    if (plan.dies) {
        std::this_thread::sleep_for(500ms);  // until all wait for it
        begin = now_ns();
        (void)last.end(SIGKILL);
        figures.verdict_ms = gates.await_done(ending, plan.ranks - 1, begin, survivors);
        return;
    }
    figures.leave_ms = gates.await_done(ending, plan.ranks, begin, {&server});
    bool well = last.end();
    for (Child& process : processes) well &= process.end();
    if (!well) throw std::runtime_error("a process of the bench failed: see above");
}

}  // namespace

WorldFigures measure_world(int ranks, TransportKind transport) {
    WorldFigures figures;
    measure({ranks, transport, true}, figures);
    measure({ranks, transport, false}, figures);
    return figures;
}

}  // namespace tutti::bench
