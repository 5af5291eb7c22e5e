#include "cli/explain_quantized.hpp"

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "quantize/quantize.hpp"
#include "schedule/code_form.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace tutti::cli {
namespace {

using quantize::Blocks;
using quantize::Format;

// The quickest of several runs: the kernels' time while nobody disturbs them.
template <class F>
double ns_per_element(std::size_t elements, F&& f) {
    double best = 1e9;
    const Deadline enough = Deadline::after(std::chrono::milliseconds(3));
    for (int run = 0; run < 3 || !enough.expired(); ++run) {
        const Instant start = Clock::now();
        f();
        best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
    }
    TUTTI_ASSERT(elements > 0 && best >= 0);
    return best / static_cast<double>(elements);
}

struct Kernels {
    double encode, add, encode_sums, decode;  // nanoseconds an element
};

Kernels measure(const QuantizedQuestion& q, Format format) {
    constexpr std::size_t elements = 1 << 15;  // a tile
    const Blocks run{elements, q.block, q.block};
    TUTTI_ASSERT(q.block > 0 && size_of(q.dtype) > 0);
    std::vector<std::byte> values(elements * size_of(q.dtype)), codes(run.code_bytes(format));
    std::vector<float> sums(elements, 1.0F), scales(run.blocks());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 7 % 60);
    Kernels k{};
    k.encode = ns_per_element(elements, [&] {
        quantize::encode(format, q.dtype, values.data(), run, quantize::Scales::found, scales.data(), codes.data());
    });
    k.add = ns_per_element(
        elements, [&] { quantize::add(format, codes.data(), scales.data(), run, quantize::Into::sum, sums.data()); });
    k.encode_sums = ns_per_element(elements, [&] {
        quantize::encode(format, DType::float32, sums.data(), run, quantize::Scales::found, scales.data(),
                         codes.data());
    });
    k.decode = ns_per_element(
        elements, [&] { quantize::decode(format, codes.data(), scales.data(), run, q.dtype, values.data()); });
    return k;
}

std::string size_text(double bytes) {
    return bytes >= 1e6 ? fmt::format("{:.4g} MB", bytes / 1e6) : fmt::format("{:.4g} KB", bytes / 1e3);
}

}  // namespace

std::string explain_quantized(const QuantizedQuestion& q, const algorithm::CostModel& costs,
                              const std::string& source) {
    if (q.dtype != DType::float32 && q.dtype != DType::float16 && q.dtype != DType::bfloat16)
        throw InvalidArgument(fmt::format("--dtype {}: expected float32, float16 or bfloat16, which can be quantised",
                                          to_string(q.dtype)));
    TUTTI_ASSERT(q.ranks >= 1 && q.block > 0);
    const auto format = static_cast<Format>(q.type);
    const auto element = static_cast<double>(size_of(q.dtype));
    const double count = static_cast<double>(q.bytes) / element, n = q.ranks;
    const std::uint64_t large = 1 << 20;
    const double code =
        static_cast<double>(schedule::CodeForm{format, q.block}.bytes(large)) / static_cast<double>(large);
    const double leg = (n - 1) / n;  // of all elements a rank sends this part in each leg
    const double plain = 2 * leg * element, quantised = leg * (code + (q.quantize_results ? code : element));
    const double saved = plain - quantised;
    const Kernels k = measure(q, format);
    const double cost = k.encode + k.add + (q.quantize_results ? k.encode_sums / n + k.decode : 0);
    const double memory = std::max({costs.share_gbps, costs.stream_gbps, costs.pull_gbps});
    const double speed = q.one_host ? memory : q.network_gbps > 0 ? q.network_gbps : costs.tcp_gbps;
    TUTTI_ASSERT(speed > 0 && cost > 0);
    const bool pays = saved / speed > cost;

    static constexpr const char* types[] = {"int8", "int4", "float8_e4m3fn", "float8_e5m2"};
    std::string text = fmt::format("quantized_all_reduce of {} × {:.0f} on {} ranks: {} in blocks of {}, {}\n",
                                   to_string(q.dtype), count, q.ranks, types[static_cast<int>(q.type)], q.block,
                                   q.quantize_results ? "both legs" : "the first leg alone");
    text += fmt::format("  a rank sends {} instead of {}: {:.3f} of all_reduce's bytes\n", size_text(quantised * count),
                        size_text(plain * count), quantised / plain);
    text += fmt::format(
        "  rounding costs {:.3f} ns an element (measured now: encode {:.3f}, add {:.3f}, encode sums {:.3f}, decode "
        "{:.3f})\n",
        cost, k.encode, k.add, k.encode_sums, k.decode);
    text +=
        fmt::format("  it pays where bytes saved / speed > rounding: {:.3f} B / {:.3g} GB/s = {:.3f} ns {} {:.3f} ns\n",
                    saved, speed, saved / speed, pays ? ">" : "<=", cost);
    text += fmt::format("  the speed: {}\n", q.one_host ? fmt::format("memory between cores, {}", source)
                                             : q.network_gbps > 0
                                                 ? std::string("as --network says")
                                                 : fmt::format("one TCP connection, {} (over loopback: --network gives "
                                                               "the real one)",
                                                               source));
    const double limit = saved / cost;
    text += fmt::format("  so {}: it pays below {:.3g} GB/s ({:.3g} Gbit/s) for each rank{}\n",
                        pays ? "use it" : "all_reduce is quicker", limit, 8 * limit,
                        q.one_host ? ", and memory is quicker than that" : "");
    if (!q.one_host) {
        // Tiles overlap: the longer one counts, once the first tile is on its way.
        text += fmt::format("  predicted: {:.4g} ms, all_reduce {:.4g} ms\n",
                            std::max(quantised / speed, cost) * count / 1e6, plain / speed * count / 1e6);
    }
    return text;
}

}  // namespace tutti::cli
