#include "peer.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace tutti::bench {
namespace {

struct Arguments {
    std::string collectives, dtype = "float32", op = "sum", json;
    std::uint64_t begin = 8, end = 64 << 20;
    double factor = 2;
    bool pin = false, check = true;
    Sampling sampling;
};

struct Layout {
    const char* collective;
    bool blocks;    // the size is divided among the ranks
    bool in_place;  // the output is the input
    double (*bus)(double ranks);
};
const Layout layouts[] = {
    {"all_reduce", false, true, [](double n) { return 2 * (n - 1) / n; }},
    {"broadcast", false, true, [](double) { return 1.0; }},
    {"reduce", false, true, [](double) { return 1.0; }},
    {"all_gather", true, false, [](double n) { return (n - 1) / n; }},
    {"reduce_scatter", true, false, [](double n) { return (n - 1) / n; }},
    {"all_to_all", true, false, [](double n) { return (n - 1) / n; }},
    {"gather", true, false, [](double n) { return (n - 1) / n; }},
    {"scatter", true, false, [](double n) { return (n - 1) / n; }},
    {"sendrecv", false, false, [](double) { return 1.0; }},
    {"barrier", false, true, [](double) { return 0.0; }},
};

const Layout& layout_of(const std::string& collective) {
    for (const Layout& layout : layouts) {
        if (collective == layout.collective) return layout;
    }
    throw std::invalid_argument("unknown collective \"" + collective + "\"");
}

// The same inputs as in src/cli/bench/cases.cpp.
double input(int rank, std::size_t i) {
    const std::size_t c = (i * 7 + (i >> 9)) % 5;
    return (c + static_cast<std::size_t>(rank) * 3) % 5 % 2 != 0 ? 2 : 1;
}

double combined(const std::string& op, int ranks, std::size_t i) {
    double value = input(0, i);
    for (int r = 1; r < ranks; ++r) {
        const double next = input(r, i);
        if (op == "sum") value += next;
        if (op == "prod") value *= next;
        if (op == "min") value = std::min(value, next);
        if (op == "max") value = std::max(value, next);
    }
    return value;
}

// What element `i` of this rank's output should be.
double expected(const PeerCase& work, int rank, int ranks, std::size_t i) {
    const std::size_t block = i / work.count, at = i % work.count;
    const std::size_t mine = static_cast<std::size_t>(rank) * work.count;
    const std::string& name = work.collective;
    if (name == "all_reduce" || (name == "reduce" && rank == 0)) return combined(work.op, ranks, i);
    if (name == "reduce") return std::nan("");  // anything
    if (name == "broadcast") return input(0, i);
    if (name == "all_gather" || name == "gather") return input(static_cast<int>(block), at);
    if (name == "reduce_scatter") return combined(work.op, ranks, mine + i);
    if (name == "all_to_all") return input(static_cast<int>(block), mine + at);
    if (name == "scatter") return input(0, mine + i);
    return input((rank + ranks - 1) % ranks, i);  // sendrecv
}

class Elements {
 public:
    virtual ~Elements() = default;
    virtual void set(std::size_t i, double value) = 0;
    virtual double get(std::size_t i) const = 0;
    virtual void* data() = 0;
    virtual std::size_t size() const = 0;
};
template <class T>
class ElementsOf final : public Elements {
 public:
    explicit ElementsOf(std::size_t count) : values_(count) {}
    void set(std::size_t i, double value) override { values_[i] = static_cast<T>(value); }
    double get(std::size_t i) const override { return static_cast<double>(values_[i]); }
    void* data() override { return values_.empty() ? nullptr : values_.data(); }
    std::size_t size() const override { return values_.size(); }

 private:
    std::vector<T> values_;
};

std::size_t size_of(const std::string& dtype) {
    if (dtype == "float32" || dtype == "int32") return 4;
    return dtype == "float64" || dtype == "int64" ? 8 : 0;
}
std::unique_ptr<Elements> make_elements(const std::string& dtype, std::size_t count) {
    if (dtype == "float32") return std::make_unique<ElementsOf<float>>(count);
    if (dtype == "float64") return std::make_unique<ElementsOf<double>>(count);
    if (dtype == "int32") return std::make_unique<ElementsOf<std::int32_t>>(count);
    return std::make_unique<ElementsOf<std::int64_t>>(count);
}

class Program {
 public:
    Program(Arguments arguments, Peer& peer) : a_(std::move(arguments)), peer_(peer) {}
    void run() {
        std::istringstream names(a_.collectives);
        for (std::string name; std::getline(names, name, ',');) {
            std::uint64_t last = UINT64_MAX;
            for (auto size = static_cast<double>(a_.begin); size <= static_cast<double>(a_.end); size *= a_.factor) {
                row(layout_of(name), static_cast<std::uint64_t>(size), last);
            }
        }
        if (peer_.rank() != 0) return;
        std::ofstream out(a_.json);
        out << rows_.dump() << '\n';
        out.close();
        if (!out) throw std::runtime_error("--json " + a_.json + " cannot be written");
    }

 private:
    void row(const Layout& layout, std::uint64_t size, std::uint64_t& last) {
        const auto n = static_cast<std::size_t>(peer_.size());
        const bool root = peer_.rank() == 0, barrier = std::string(layout.collective) == "barrier";
        PeerCase work{layout.collective, a_.dtype, a_.op, size / size_of(a_.dtype), size_of(a_.dtype)};
        if (layout.blocks) work.count = std::max<std::size_t>(1, work.count / n);
        if (barrier) work.count = 0;
        const std::size_t all = work.count * (layout.blocks ? n : 1);
        if (all * work.element_size == last) return;  // rounded to the same, or a barrier
        last = all * work.element_size;

        const std::string& name = work.collective;
        const std::size_t in_count = layout.in_place                            ? 0
                                     : name == "all_gather" || name == "gather" ? work.count
                                     : name == "scatter" && !root               ? 0
                                                                                : all;
        const std::size_t out_count = name == "reduce_scatter" || name == "scatter" ? work.count
                                      : name == "gather" && !root                   ? 0
                                                                                    : all;
        const auto in = make_elements(a_.dtype, in_count), out = make_elements(a_.dtype, out_count);
        work.in = in->data();
        work.out = out->data();
        const auto call = peer_.call(work);
        if (!call) return;
        std::vector<double> wrong{0};
        if (a_.check) {
            for (std::size_t i = 0; i < in_count; ++i) in->set(i, input(peer_.rank(), i));
            for (std::size_t i = 0; i < out_count; ++i) out->set(i, layout.in_place ? input(peer_.rank(), i) : 0);
            call();
            for (std::size_t i = 0; i < out_count; ++i) {
                const double want = expected(work, peer_.rank(), peer_.size(), i);
                if (std::isnan(want)) break;
                if (!(std::abs(out->get(i) - want) <= 1e-6 * want)) ++wrong[0];
            }
            peer_.ranks().means(wrong);
        }
        const auto times = sample(a_.sampling, peer_.ranks(), call);
        if (!root) return;
        const double median = quantile(times, 0.5);
        const bool reduces = name == "all_reduce" || name == "reduce" || name == "reduce_scatter";
        rows_.push_back({{"collective", name},
                         {"bytes", last},
                         {"dtype", a_.dtype},
                         {"op", reduces ? a_.op : "none"},
                         {"ranks", n},
                         {"implementation", peer_.name()},
                         {"median_us", median},
                         {"p10_us", quantile(times, 0.1)},
                         {"p90_us", quantile(times, 0.9)},
                         {"busbw_gbps", static_cast<double>(last) / median / 1000 * layout.bus(static_cast<double>(n))},
                         {"wrong", static_cast<std::uint64_t>(std::llround(wrong[0] * static_cast<double>(n)))}});
    }

    Arguments a_;
    Peer& peer_;
    nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace

int run_peer(int argc, char** argv, const std::function<Peer&()>& connect) {
    Arguments a;
    CLI::App app("One rank of a peer's program; tutti bench --against starts it");
    app.add_option("collectives", a.collectives)->required();
    app.add_option("--begin", a.begin);
    app.add_option("--end", a.end);
    app.add_option("--factor", a.factor)->check(CLI::Range(1.0001, 1e9));
    app.add_option("--dtype", a.dtype)->check(CLI::IsMember({"float32", "float64", "int32", "int64"}));
    app.add_option("--op", a.op)->check(CLI::IsMember({"sum", "prod", "min", "max"}));
    app.add_option("--iters", a.sampling.iterations);
    app.add_option("--warmup", a.sampling.warmup);
    app.add_option("--seconds", a.sampling.row_seconds);
    app.add_option("--json", a.json)->required();
    app.add_flag("--pin", a.pin);
    app.add_flag("!--no-check", a.check);
    CLI11_PARSE(app, argc, argv);
    try {
        Peer& peer = connect();
        if (a.pin) pin_to(peer.rank(), peer.size());
        Program(a, peer).run();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 1;
    }
}

}  // namespace tutti::bench
