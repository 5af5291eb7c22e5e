#include "litmus.hpp"

#include "explorer.hpp"

#include <functional>

namespace tutti::memory_model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

struct Program {
    std::atomic<int> x{0}, y{0};
    std::vector<int> loads = std::vector<int>(4, -1);
};

Outcomes outcomes_of(std::vector<std::function<void(Program&)>> threads) {
    static Program program;
    Outcomes all;
    explore([&] {
        program.loads.assign(4, -1);
        Scenario scenario{.memory = {{reinterpret_cast<const std::byte*>(&program), 2 * sizeof(std::atomic<int>),
                                      [](std::size_t offset) { return offset == 0 ? "x" : "y"; }}}};
        for (const auto& thread : threads) scenario.threads.emplace_back([&] { thread(program); });
        scenario.at_end = [&] { all.insert(program.loads); };
        return scenario;
    });
    return all;
}

void full_fence(bool wanted) {
    if (wanted) std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

Outcomes store_buffering(bool first_fences, bool second_fences) {
    return outcomes_of({[=](Program& p) {
                            p.x.store(1, relaxed);
                            full_fence(first_fences);
                            p.loads[0] = p.y.load(relaxed);
                        },
                        [=](Program& p) {
                            p.y.store(1, relaxed);
                            full_fence(second_fences);
                            p.loads[1] = p.x.load(relaxed);
                        }});
}

Outcomes message_passing(std::memory_order store, std::memory_order load) {
    return outcomes_of({[=](Program& p) {
                            p.x.store(1, relaxed);
                            p.y.store(1, store);
                        },
                        [=](Program& p) {
                            p.loads[0] = p.y.load(load);
                            p.loads[1] = p.x.load(relaxed);
                        }});
}

Outcomes message_passing_by_fences() {
    return outcomes_of({[](Program& p) {
                            p.x.store(1, relaxed);
                            std::atomic_thread_fence(std::memory_order_release);
                            p.y.store(1, relaxed);
                        },
                        [](Program& p) {
                            p.loads[0] = p.y.load(relaxed);
                            std::atomic_thread_fence(std::memory_order_acquire);
                            p.loads[1] = p.x.load(relaxed);
                        }});
}

Outcomes independent_reads(bool fences) {
    constexpr auto acquire = std::memory_order_acquire;
    return outcomes_of({[](Program& p) { p.x.store(1, std::memory_order_release); },
                        [](Program& p) { p.y.store(1, std::memory_order_release); },
                        [=](Program& p) {
                            p.loads[0] = p.x.load(acquire);
                            full_fence(fences);
                            p.loads[1] = p.y.load(acquire);
                        },
                        [=](Program& p) {
                            p.loads[2] = p.y.load(acquire);
                            full_fence(fences);
                            p.loads[3] = p.x.load(acquire);
                        }});
}

Outcomes coherence() {
    return outcomes_of({[](Program& p) {
                            p.x.store(1, relaxed);
                            p.x.store(2, relaxed);
                        },
                        [](Program& p) {
                            p.loads[0] = p.x.load(relaxed);
                            p.loads[1] = p.x.load(relaxed);
                        }});
}

Outcomes release_sequence() {
    return outcomes_of({[](Program& p) {
                            p.x.store(1, relaxed);
                            p.y.fetch_add(1, std::memory_order_release);
                        },
                        [](Program& p) { p.y.fetch_add(1, relaxed); },
                        [](Program& p) {
                            p.loads[0] = p.y.load(std::memory_order_acquire);
                            p.loads[1] = p.x.load(relaxed);
                        }});
}

}  // namespace tutti::memory_model
