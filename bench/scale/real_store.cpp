#include "scale/real_store.hpp"

#include "core/descriptors.hpp"
#include "scale/children.hpp"
#include "scale/served_store.hpp"

#include <tutti/store.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace tutti::bench {
namespace {

using namespace std::chrono_literals;

constexpr int threads_of_process = 1000;
constexpr auto requests_time = 2s;
constexpr int wakes = 5;

// The gates of wakes are first_wake + 0 to wakes - 1.
enum Gate { connecting, first_wake, asking = first_wake + wakes, dying };
enum Number { port, requests };

TCPStore client(Gates& gates) {
    return TCPStore({.port = static_cast<std::uint16_t>(gates.number(port)), .wait_for_workers = false});
}

void run_client(int number, Gates& gates) {
    gates.pass(connecting);
    TCPStore store = client(gates);
    gates.done(connecting);
    for (int wake = 0; wake < wakes; ++wake) {
        gates.pass(first_wake + wake);
        if (store.get(fmt::format("go/{}", wake)) != "now") throw std::runtime_error("a client got another value");
        gates.done(first_wake + wake);
    }
    gates.pass(asking);
    const std::string key = fmt::format("count/{}", number);
    const auto end = std::chrono::steady_clock::now() + requests_time;
    std::int64_t count = 0;
    while (std::chrono::steady_clock::now() < end) {
        if (store.add(key, 1) != ++count) throw std::runtime_error("a client got another sum");
    }
    gates.number(requests) += count;
    gates.done(asking);
    gates.pass(dying);
    gates.done(dying);
    (void)store.get("never", 10min);  // it is killed
}

void run_clients(int first, int last, Gates& gates) {
    descriptors::raise();
    std::vector<std::thread> threads;
    for (int number = first; number < last; ++number) {
        threads.emplace_back([&, number] {
            try {
                run_client(number, gates);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "scale_bench: client %d: %s\n", number, error.what());
                ::_exit(1);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

StoreFigures measure_store(int clients) {
    Gates gates;
    const Child server = serve_store(gates, port);
    std::vector<Child> processes;
    for (int first = 0; first < clients; first += threads_of_process) {
        const int last = std::min(clients, first + threads_of_process);
        processes.emplace_back([&, first, last] { run_clients(first, last, gates); });
    }
    std::vector<const Child*> children{&server};
    for (const Child& process : processes) children.push_back(&process);
    StoreFigures figures;
    gates.await_all(connecting, clients, children);
    const Use server_before = Use::of(server.pid()), client_before = Use::of(processes.front().pid());
    std::int64_t begin = gates.open(connecting, clients);
    figures.connect_s = gates.await_done(connecting, clients, begin, children) * 1e-3;
    gates.await_all(first_wake, clients, children);
    const Use server_after = Use::of(server.pid()), client_after = Use::of(processes.front().pid());
    const double of_first = std::min(clients, threads_of_process);
    figures.server_kib = (server_after.private_kib - server_before.private_kib) / clients;
    figures.server_descriptors = (server_after.descriptors - server_before.descriptors) / clients;
    figures.client_kib = (client_after.private_kib - client_before.private_kib) / of_first;
    TCPStore own = client(gates);
    std::vector<double> times;
    for (int wake = 0; wake < wakes; ++wake) {
        gates.await_all(first_wake + wake, clients, children);
        gates.open(first_wake + wake, clients);
        std::this_thread::sleep_for(1ms * clients / 4 + 200ms);  // until all wait
        begin = now_ns();
        own.set(fmt::format("go/{}", wake), "now");
        times.push_back(gates.await_done(first_wake + wake, clients, begin, children));
    }
    std::ranges::sort(times);
    figures.wake_ms = times[times.size() / 2];
    gates.await_all(asking, clients, children);
    begin = gates.open(asking, clients);
    const double took_ms = gates.await_done(asking, clients, begin, children);
    figures.requests_per_s = static_cast<double>(gates.number(requests)) / took_ms * 1e3;
    gates.await_all(dying, clients, children);
    begin = gates.open(dying, clients);
    (void)gates.await_done(dying, clients, begin, children);
    std::this_thread::sleep_for(1ms * clients / 4 + 200ms);  // until all wait
    begin = now_ns();
    for (const Child& process : processes) ::kill(process.pid(), SIGKILL);
    for (Child& process : processes) (void)process.end();
    while (Use::of(server.pid()).descriptors > server_before.descriptors + 4) std::this_thread::sleep_for(2ms);
    figures.end_s = static_cast<double>(now_ns() - begin) * 1e-9;
    return figures;
}

}  // namespace tutti::bench
