#include "tune/machine.hpp"

#include "core/assert.hpp"
#include "core/huge_pages.hpp"
#include "core/stream_copy.hpp"
#include "core/this_host.hpp"
#include "reduce/reduce.hpp"
#include "tune/measures.hpp"

#include <tutti/error.hpp>
#include <tutti/version.hpp>

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::tune {
namespace {

using algorithm::CostModel;

// The processor's own name: its brand string, which every x86-64 has. Asking costs 8 us in a virtual machine, and the
// kernel writes a page for every few CPUs. Arm's has numbers for its maker and its kind instead.
std::string processor() {
#if defined(__x86_64__)
    std::array<unsigned, 12> name{};
    for (unsigned leaf = 0; leaf < 3; ++leaf) {
        unsigned* at = name.data() + std::size_t{leaf} * 4;
        __cpuid(0x80000002 + leaf, at[0], at[1], at[2], at[3]);
    }
    const std::string text(reinterpret_cast<const char*>(name.data()), sizeof name);
    return text.substr(0, text.find('\0'));
#else
    std::ifstream info("/proc/cpuinfo");
    std::string numbers;
    for (std::string line; std::getline(info, line) && (numbers.empty() || !line.empty());) {
        const std::string value = line.substr(std::min(line.size(), line.find(':') + 1));
        if (line.starts_with("model name")) return value;
        if (line.starts_with("CPU ")) numbers += value;  // implementer, architecture, variant, part, revision
    }
    return numbers.empty() ? "unknown" : "Arm" + numbers;
#endif
}

// Each step has a part of the time, little more than half of all in sum.
void measure_missing(const Deadline& deadline, Measurement& known) {
    using std::chrono::microseconds;
    const std::vector<int> cpus = allowed_cpus();
    const auto fields = algorithm::cost_fields();
    TUTTI_ASSERT(fields.size() < 32 && known.missing >> fields.size() == 0);
    CostModel& costs = known.costs;
    const auto bit_of = [&](double CostModel::*value) {
        const auto at = std::ranges::find(fields, value, &algorithm::CostField::value);
        TUTTI_ASSERT(at != fields.end());
        return std::uint32_t{1} << (at - fields.begin());
    };
    const auto missing = [&](double CostModel::*value) { return (known.missing & bit_of(value)) != 0; };
    const auto set = [&](double CostModel::*value, double measured) {
        if (!(measured > 0)) return;
        costs.*value = measured;
        known.missing &= ~bit_of(value);
    };

    // A step that finds nothing out gives zero.
    const auto step = [&](double CostModel::*value, auto measuring) {
        if (missing(value)) set(value, measuring());
    };
    const auto share = [&](int us) { return piece_of(deadline, microseconds(us)); };
    step(&CostModel::cores, [&] {
        return std::max<double>({1, static_cast<double>(cpus.size()), static_cast<double>(this_host::cpus())});
    });
    step(&CostModel::cache_kb, [&] {
        const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
        return bytes > 0 ? static_cast<double>(bytes) / 1024 : costs.cache_kb;
    });
    constexpr std::size_t inside = std::size_t{64} << 10, beyond = std::size_t{4} << 20;
    step(&CostModel::line_us, [&] { return line_us(share(1000), cpus); });
    step(&CostModel::wake_us, [&] { return wake_us(share(1200), cpus); });
    step(&CostModel::yield_us, [&] { return yield_us(share(100)); });
    step(&CostModel::cache_copy_gbps, [&] { return copy_gbps(deadline, microseconds(300), inside, copy_here); });
    step(&CostModel::combine_gbps, [&] {
        return copy_gbps(deadline, microseconds(300), inside, [](std::byte* to, std::byte* from, std::size_t bytes) {
            const std::array<const void*, 2> inputs{to, from};
            kernels::combine(ReduceOp::Kind::sum, DType::float32, to, inputs, bytes / sizeof(float));
            return true;
        });
    });
    step(&CostModel::share_gbps, [&] { return handover(share(1500), cpus, copy_here).both_gbps; });
    step(&CostModel::stream_gbps, [&] {
        const Handover stream = handover(share(1500), cpus, [](std::byte* to, std::byte* from, std::size_t bytes) {
            stream_copy(to, from, bytes);
            return true;
        });
        set(&CostModel::stream_read_gbps, stream.reading_gbps);
        return stream.both_gbps;
    });
    step(&CostModel::pull_us, [&] { return pull_us(share(100)); });
    step(&CostModel::pull_gbps, [&] { return copy_gbps(deadline, microseconds(300), inside, copy_by_kernel); });
    step(&CostModel::pull_huge_gbps, [&] {
        return HugePages::system_has_them() ? copy_huge_gbps(deadline, microseconds(300), inside) : costs.pull_gbps;
    });
    step(&CostModel::pull_memory_gbps, [&] {
        return HugePages::system_has_them() ? copy_huge_gbps(deadline, microseconds(1000), beyond)
                                            : copy_gbps(deadline, microseconds(1000), beyond, copy_by_kernel);
    });
    step(&CostModel::memory_copy_gbps, [&] { return copy_gbps(deadline, microseconds(1000), beyond, copy_here); });
    try {
        step(&CostModel::tcp_us, [&] {
            const Messages messages = short_messages(share(1500), cpus);
            set(&CostModel::tcp_send_us, messages.send_us);
            set(&CostModel::tcp_receive_us, messages.receive_us);
            return messages.us;
        });
        step(&CostModel::tcp_gbps, [&] { return tcp_gbps(share(2000), cpus); });
    } catch (const DistError&) {
        // No loopback here: the defaults stay.
    }
}

}  // namespace

Measurement measure(const Deadline& deadline, Measurement known) {
    const auto fields = algorithm::cost_fields();
    known.missing &= (std::uint32_t{1} << fields.size()) - 1;
    ++known.attempts;
    Watch watch;
    measure_missing(deadline, known);
    // A step whose threads got no core for as long as it had may have better luck.
    if (known.missing != 0 && !deadline.expired()) measure_missing(deadline, known);
    for (const algorithm::CostField& field : fields)
        known.costs.*field.value = std::clamp(known.costs.*field.value, field.min, field.max);
    const Circumstances before = known.circumstances;
    known.circumstances = watch.circumstances();
    // The numbers known before keep their doubts.
    if (before.when != 0) {
        for (double Circumstances::*member :
             {&Circumstances::load, &Circumstances::stolen, &Circumstances::waited, &Circumstances::spread})
            known.circumstances.*member = std::max(known.circumstances.*member, before.*member);
    }
    TUTTI_ASSERT(known.attempts > 0 && known.missing >> fields.size() == 0);
    TUTTI_ASSERT(known.circumstances.when > 0);
    return known;
}

std::string topology() {
    utsname system{};
    ::uname(&system);
    std::string caches;
    for (const int level : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE})
        caches += fmt::format(" {}", ::sysconf(level));
    return fmt::format("{};{};{} of {} cpus;{};{};tutti {}", this_host::name(), processor(), allowed_cpus().size(),
                       this_host::cpus(), caches, system.release, tutti::version());
}

}  // namespace tutti::tune
