// scale_bench: how joining a world, the store, new_group, verdicts and leaving grow with the number of ranks: measured
// on this machine with threads and processes, and simulated beyond that with the library's own state machines.
//
//   scale_bench [--only world,store,…] [--ranks 100,1000,…] [--json FILE]
//
// Prints a line of JSON for each part and number of ranks (of clients, for the store); curves.py makes the table and
// the picture of docs/scale-joining.md of them.
//
// Threads: one; the processes that it forks have many.
#include "rank_program.hpp"
#include "scale/real_store.hpp"
#include "scale/real_world.hpp"
#include "scale/simulated_lifelines.hpp"
#include "scale/simulated_meeting.hpp"

#include <malloc.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tutti::bench;
using nlohmann::json;
using std::chrono::microseconds;

constexpr int ranks_per_host = 8;

json world(int ranks, tutti::TransportKind transport) {
    const WorldFigures f = measure_world(ranks, transport);
    return {
        {"join_s", f.join_s},           {"requests", f.requests},         {"requests_of_rank_0", f.requests_of_rank_0},
        {"bytes_given", f.bytes_given}, {"bytes_got", f.bytes_got},       {"private_kib", f.private_kib},
        {"shared_kib", f.shared_kib},   {"descriptors", f.descriptors},   {"threads", f.threads},
        {"new_group_ms", f.all_ms},     {"new_group_half_ms", f.half_ms}, {"new_group_members_ms", f.members_ms},
        {"leave_ms", f.leave_ms},       {"verdict_ms", f.verdict_ms}};
}

json store(int clients) {
    const StoreFigures f = measure_store(clients);
    return {{"connect_s", f.connect_s},
            {"server_kib", f.server_kib},
            {"server_descriptors", f.server_descriptors},
            {"client_kib", f.client_kib},
            {"wake_ms", f.wake_ms},
            {"requests_per_s", f.requests_per_s},
            {"end_s", f.end_s}};
}

json meeting(SimulatedMeeting::Kind kind, int ranks) {
    const SimulatedMeeting::Figures f = SimulatedMeeting(kind, ranks, ranks_per_host, {}).run();
    // Without the time of the store's thread and card: the requests that wait for each other.
    const SimulatedMeeting::Costs only_latency{.message = std::chrono::nanoseconds(0), .gbit = 1e9};
    const double alone_s = SimulatedMeeting(kind, ranks, ranks_per_host, only_latency).run().seconds;
    return {{"seconds", f.seconds},
            {"latencies", alone_s * 1e9 / static_cast<double>(only_latency.latency.count())},
            {"requests", static_cast<double>(f.requests) / ranks},
            {"requests_of_rank_0", f.of_rank_0},
            {"requests_of_another", f.of_another},
            {"outcome_bytes", f.outcome_bytes},
            {"card_bytes", f.card_bytes},
            {"store_in_bytes", f.bytes_in},
            {"store_out_bytes", f.bytes_out},
            {"store_cpu_s", f.store_cpu_s}};
}

double heap_bytes() {
    return static_cast<double>(::mallinfo2().uordblks);
}

json lifelines(int ranks) {
    const double before = heap_bytes();
    SimulatedLifelines lines(ranks, ranks_per_host, {});
    const auto join = lines.join();
    const double state = (heap_bytes() - before) / ranks;
    const auto most = lines.most_lifelines();
    const auto death = lines.kill(ranks - 1);
    const double told_s = lines.last_told_s();
    const SimulatedLifelines::Costs only_latency{.message = microseconds(0)};
    SimulatedLifelines quick(ranks, ranks_per_host, only_latency);
    quick.join();
    quick.kill(ranks - 1);
    const double latencies = quick.last_told_s() * 1e6 / static_cast<double>(only_latency.latency.count());
    return {{"told", lines.told()},
            {"join_messages", static_cast<double>(join.messages) / ranks},
            {"join_busiest", join.busiest},
            {"join_s", join.seconds},
            {"most_lifelines", most},
            {"verdict_s", told_s},
            {"verdict_latencies", latencies},
            {"verdict_messages", static_cast<double>(death.messages) / ranks},
            {"verdict_busiest", death.busiest},
            {"state_bytes", state}};
}

json leaving(int ranks) {
    json row;
    // At once, and one after the other: then each rank is told of each goodbye.
    for (const auto& [prefix, within] : {std::pair("", std::chrono::seconds(0)), {"slow_", std::chrono::seconds(1)}}) {
        SimulatedLifelines lines(ranks, ranks_per_host, {});
        lines.join();
        const auto leave = lines.leave(within);
        row[std::string(prefix) + "messages"] = static_cast<double>(leave.messages) / ranks;
        row[std::string(prefix) + "bytes"] = static_cast<double>(leave.bytes) / ranks;
        row[std::string(prefix) + "busiest"] = leave.busiest;
        row[std::string(prefix) + "seconds"] = leave.seconds;
        if (lines.present() != 0) throw std::runtime_error("some ranks do not get away");
    }
    return row;
}

struct Part {
    std::string name;
    std::vector<int> counts;
    std::function<json(int)> run;
};

std::vector<Part> parts() {
    using Kind = SimulatedMeeting::Kind;
    // As many ranks as one host may have, which share memory; and more, as if each were a host.
    return {{"world_shm", {10, 30, 100}, [](int n) { return world(n, tutti::TransportKind::shm); }},
            {"world", {10, 30, 100, 300, 1000}, [](int n) { return world(n, tutti::TransportKind::tcp); }},
            {"store", {100, 300, 1000, 3000, 10'000}, store},
            {"meeting", {100, 1000, 10'000, 100'000}, [](int n) { return meeting(Kind::world, n); }},
            {"members", {100, 300, 1000, 3000}, [](int n) { return meeting(Kind::group, n); }},
            {"lifelines", {100, 1000, 10'000, 100'000}, lifelines},
            {"leaving", {100, 300, 1000, 2000}, leaving}};
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> only;
    std::vector<int> ranks;
    std::string file;
    CLI::App app("Shows how joining, the store, new_group, verdicts and leaving grow with the number of ranks.");
    std::vector<std::string> names;
    for (const Part& part : parts()) names.push_back(part.name);
    app.add_option("--only", only, "these parts; default: all")->delimiter(',')->check(CLI::IsMember(names));
    app.add_option("--ranks", ranks, "numbers of ranks; of clients, for the store")
        ->delimiter(',')
        ->check(CLI::Range(4, 1'000'000));
    app.add_option("--json", file, "writes the figures to this file");
    CLI11_PARSE(app, argc, argv);
    try {
        std::vector<json> rows;
        for (const Part& part : parts()) {
            if (!only.empty() && std::ranges::find(only, part.name) == only.end()) continue;
            for (const int count : ranks.empty() ? part.counts : ranks) {
                json row = part.run(count);
                row["part"] = part.name;
                row["ranks"] = count;
                std::fprintf(stderr, "%s %d\n", part.name.c_str(), count);
                rows.push_back(std::move(row));
            }
        }
        report(rows, file);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "scale_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
