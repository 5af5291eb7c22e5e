// record_bench: the flight recorder's cost for an operation: its record, its end, and both. A reading of the counter is
// in each of the two, but not in the end of a brief one.
#include "record/recorder.hpp"

#include <benchmark/benchmark.h>

namespace {

using namespace tutti::record;

std::string nothing(std::uint64_t) {
    return {};
}

Ticket begin(Recorder& recorder, std::uint64_t sequence) {
    return recorder.begin({.sequence = sequence, .fingerprint = 7, .bytes = 8}, State::started);
}

void read_the_counter(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(ticks());
}
BENCHMARK(read_the_counter);

void begin_a_record(benchmark::State& state) {
    Recorder recorder("bench", 0, 2, &nothing);
    std::uint64_t sequence = 0;
    for (auto _ : state) benchmark::DoNotOptimize(begin(recorder, ++sequence));
}
BENCHMARK(begin_a_record);

void end_a_record(benchmark::State& state) {
    Recorder recorder("bench", 0, 2, &nothing);
    const Ticket ticket = begin(recorder, 1);
    for (auto _ : state) recorder.end(ticket, State::completed);
}
BENCHMARK(end_a_record);

template <class Record>
void record_with_call_site(benchmark::State& state, Record record) {
    Recorder recorder("bench", 0, 2, &nothing);
    std::uint64_t sequence = 0;
    for (auto _ : state) {
        const CallSite site;
        record(recorder, ++sequence);
        benchmark::ClobberMemory();
    }
}
BENCHMARK_CAPTURE(record_with_call_site, a_short_operation, [](Recorder& recorder, std::uint64_t sequence) {
    recorder.settle(recorder.begin_brief({.sequence = sequence, .fingerprint = 7, .bytes = 8}));
});
BENCHMARK_CAPTURE(record_with_call_site, an_operation, [](Recorder& recorder, std::uint64_t sequence) {
    recorder.end(begin(recorder, sequence), State::completed);
});

}  // namespace

BENCHMARK_MAIN();
