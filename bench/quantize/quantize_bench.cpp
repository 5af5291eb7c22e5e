// quantize_bench [--json FILE]: elements a second of the kernels, beside those of memcpy of the same type. In turns, so
// that the same things disturb all; the best turn counts. Two sizes: one that fits a cache, and one that does not.
#include "quantize/quantize.hpp"

#include <tutti/error.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace tutti;
using namespace tutti::quantize;
using Clock = std::chrono::steady_clock;

struct Case {
    std::string name;
    std::function<void()> run;
    double best_s = 1e9;
};

// Distinct numbers of one size: 1 to 2 as float16, small and positive as bfloat16 and float32.
std::vector<std::byte> values(DType dtype, std::size_t elements) {
    std::vector<std::byte> bytes(elements * size_of(dtype));
    for (std::size_t i = 0; i < elements; ++i) {
        const auto bits = static_cast<std::uint16_t>(0x3c00 | (i * 2654435761U >> 12 & 0x3ff));
        std::memcpy(bytes.data() + (i + 1) * size_of(dtype) - 2, &bits, 2);
    }
    return bytes;
}

void measure(nlohmann::json& rows, std::size_t elements) {
    constexpr std::size_t block = 256;
    const Blocks run{elements, block, block};
    std::vector<std::byte> codes(elements), copy(elements * sizeof(float)), half = values(DType::float16, elements),
                                                                            whole = values(DType::float32, elements);
    std::vector<float> scales(run.blocks(), 1), sums(elements);
    std::vector<Case> cases;
    cases.push_back({"memcpy float16", [&] { std::memcpy(copy.data(), half.data(), half.size()); }});
    cases.push_back({"memcpy float32", [&] { std::memcpy(copy.data(), whole.data(), whole.size()); }});
    static constexpr const char* names[] = {"int8", "int4", "float8_e4m3fn", "float8_e5m2"};
    for (int f = 0; f < format_count; ++f) {
        const auto format = static_cast<Format>(f);
        for (const auto& [dtype, from] : {std::pair(DType::float16, &half), std::pair(DType::float32, &whole)}) {
            cases.push_back(
                {std::string("encode ") + std::string(to_string(dtype)) + " " + names[f], [&, format, dtype, from] {
                     encode(format, dtype, from->data(), run, Scales::found, scales.data(), codes.data());
                 }});
        }
        cases.push_back({std::string("add ") + names[f],
                         [&, format] { add(format, codes.data(), scales.data(), run, Into::sum, sums.data()); }});
        cases.push_back({std::string("decode float16 ") + names[f], [&, format] {
                             decode(format, codes.data(), scales.data(), run, DType::float16, copy.data());
                         }});
    }
    cases.push_back({"encode float16 int8 by chance", [&] {
                         const Noise noise{1, 2, 0};
                         encode(Format::int8, DType::float16, half.data(), run, Scales::found, scales.data(),
                                codes.data(), &noise);
                     }});
    const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{1} << 21) / elements);
    for (int turn = 0; turn < 15; ++turn) {
        for (Case& c : cases) {
            const auto start = Clock::now();
            for (std::size_t i = 0; i < repeats; ++i) c.run();
            const double s = std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(repeats);
            c.best_s = std::min(c.best_s, s);
        }
    }
    const auto rate = [&](const Case& c) { return static_cast<double>(elements) / c.best_s / 1e9; };
    for (const Case& c : cases) {
        const bool is_half = c.name.find("float16") != std::string::npos;
        const double part = rate(c) / rate(cases[is_half ? 0 : 1]);
        std::printf("%9zu elements  %-30s %6.2f G elements/s, %.2f of memcpy's\n", elements, c.name.c_str(), rate(c),
                    part);
        rows.push_back({{"elements", elements}, {"case", c.name}, {"gelements_per_s", rate(c)}, {"of_memcpy", part}});
    }
}

}  // namespace

int main(int argc, char** argv) {
    auto rows = nlohmann::json::array();
    for (const std::size_t elements : {std::size_t{1} << 15, std::size_t{1} << 22}) measure(rows, elements);
    if (argc == 3 && std::string_view(argv[1]) == "--json") std::ofstream(argv[2]) << rows.dump(1);
    return 0;
}
