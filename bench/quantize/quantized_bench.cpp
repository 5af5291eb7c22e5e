// quantized_bench FILE ROUNDS MB...: float16 all_reduce and its quantised forms, in turns, on the ranks of a job
// (env://). Rank 0 writes rows {case, mb, median_ms, sent_bytes} to FILE: the median over the rounds of the slowest
// rank's time, and the bytes that rank 0's TCP sockets sent in a call, as the kernel counts. quantized.py starts it on
// two hosts with a limited network between them.
#include "support/tcp_bytes.hpp"

#include <tutti/tutti.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

struct Case {
    std::string name;
    std::function<void(std::vector<Float16>&)> call;
    std::vector<double> ms{};
    std::uint64_t sent = 0;
};

void measure(nlohmann::json& rows, int mb, int rounds) {
    std::vector<Float16> x((static_cast<std::size_t>(mb) << 20) / 2);
    const auto quantised = [](QuantizedOptions o) {
        o.op = ReduceOp::avg;  // values stay as large as they are
        return [o](std::vector<Float16>& values) { quantized_all_reduce(values, o); };
    };
    std::vector<Case> cases{
        {"float16", [](std::vector<Float16>& values) { all_reduce(values, {.op = ReduceOp::avg}); }},
        {"int8", quantised({})},
        {"int8 one leg", quantised({.quantize_results = false})},
        {"int8 shared scales", quantised({.scales = QuantizedScales::shared})},
        {"int4", quantised({.type = QuantizedType::int4})},
        {"float8_e4m3fn", quantised({.type = QuantizedType::float8_e4m3fn})},
    };
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = Float16(static_cast<float>(static_cast<int>(i % 2001) - 1000) / 1000);
    for (int round = 0; round <= rounds; ++round) {
        for (Case& c : cases) {
            barrier();
            const std::uint64_t before = test::tcp_bytes_sent();
            const auto start = Clock::now();
            c.call(x);
            std::vector<double> ms{std::chrono::duration<double, std::milli>(Clock::now() - start).count()};
            all_reduce(ms, {.op = ReduceOp::max});  // comes behind all that was sent
            c.sent = test::tcp_bytes_sent() - before;
            if (round > 0) c.ms.push_back(ms[0]);
        }
    }
    for (Case& c : cases) {
        std::ranges::sort(c.ms);
        rows.push_back({{"case", c.name}, {"mb", mb}, {"median_ms", c.ms[c.ms.size() / 2]}, {"sent_bytes", c.sent}});
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::fputs("usage: quantized_bench FILE ROUNDS MB...\n", stderr);
        return 2;
    }
    try {
        init_process_group();
        auto rows = nlohmann::json::array();
        for (int i = 3; i < argc; ++i) measure(rows, std::atoi(argv[i]), std::atoi(argv[2]));
        if (get_rank() == 0) std::ofstream(argv[1]) << rows.dump(1);
        destroy_process_group();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "quantized_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
