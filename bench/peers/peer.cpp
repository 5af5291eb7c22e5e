#include "peer.hpp"

#include "bench/collectives/contents.hpp"
#include "bench/collectives/line.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tutti::bench {
namespace {

struct Arguments {
    std::string collectives, dtype = "float32", op = "sum", json, line_file;
    std::vector<std::uint64_t> sizes;
    bool pin = false, check = true;
    Sampling sampling;
};

constexpr double lowest_input = 1;

Values<double> values_of(const Run& run, const std::string& op, int ranks) {
    if (run.rank != all_ranks) return inputs_of(run.rank, lowest_input);
    return inputs_combined(run.combined(ranks), lowest_input, [&op](double value, double next) {
        if (op == "sum") return value + next;
        if (op == "prod") return value * next;
        return op == "min" ? std::min(value, next) : std::max(value, next);
    });
}

/// A buffer of elements of one type.
class Elements {
 public:
    virtual ~Elements() = default;
    virtual void write(const Run& run, const Values<double>& values) = 0;
    virtual std::uint64_t wrong(const Run& run, const Values<double>& wanted) const = 0;
    virtual void* data() = 0;
};
/// Many bytes begin where a huge page does and have their last one to themselves, as tutti's tensors do.
template <class T>
struct PageAllocator {
    using value_type = T;
    static constexpr std::size_t page = std::size_t{2} << 20;
    PageAllocator() = default;
    template <class Other>
    PageAllocator(const PageAllocator<Other>&) {}
    static std::size_t unit(std::size_t bytes) { return bytes >= page / 16 ? page : 64; }
    T* allocate(std::size_t count) {
        const std::size_t bytes = count * sizeof(T), whole = (bytes + unit(bytes) - 1) / unit(bytes) * unit(bytes);
        return static_cast<T*>(::operator new (whole, std::align_val_t{unit(bytes)}));
    }
    void deallocate(T* at, std::size_t count) { ::operator delete (at, std::align_val_t{unit(count * sizeof(T))}); }
    friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }
};

template <class T>
class ElementsOf final : public Elements {
 public:
    explicit ElementsOf(std::size_t count) : elements_(count) {}
    void write(const Run& run, const Values<double>& values) override {
        write_run(elements_.data(), run, converted(values));
    }
    std::uint64_t wrong(const Run& run, const Values<double>& wanted) const override {
        return count_wrong(elements_.data(), run, converted(wanted), [&](std::uint64_t i, std::size_t c) {
            return std::abs(static_cast<double>(elements_[i]) - wanted[c]) <= 1e-6 * wanted[c];
        });
    }
    void* data() override { return elements_.empty() ? nullptr : elements_.data(); }

 private:
    static Values<T> converted(const Values<double>& values) {
        Values<T> result;
        std::ranges::transform(values, result.begin(), [](double value) { return static_cast<T>(value); });
        return result;
    }
    std::vector<T, PageAllocator<T>> elements_;
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
    Program(Arguments arguments, Peer& peer)
        : a_(std::move(arguments)), peer_(peer), line_(a_.line_file, peer.rank()), ranks_(peer.ranks()) {
        ranks_.line_ns = [this] { return line_.measure(); };
    }
    void run() {
        std::istringstream names(a_.collectives);
        for (std::string name; std::getline(names, name, ',');) {
            const Layout* const layout = find_layout(name);
            if (layout == nullptr) throw std::invalid_argument("unknown collective \"" + name + "\"");
            std::uint64_t last = UINT64_MAX;
            for (const std::uint64_t size : a_.sizes) {
                const Counts counts = counts_of(*layout, peer_.rank(), peer_.size(), size / size_of(a_.dtype));
                if (counts.whole == last) continue;  // rounded to the same, or a barrier
                last = counts.whole;
                row(*layout, counts);
            }
        }
        if (peer_.rank() != 0) return;
        std::ofstream out(a_.json);
        out << rows_.dump() << '\n';
        out.close();
        if (!out) throw std::runtime_error("--json " + a_.json + " cannot be written");
    }

 private:
    void row(const Layout& layout, const Counts& counts) {
        const std::string name(layout.collective);
        const auto in = make_elements(a_.dtype, counts.in), out = make_elements(a_.dtype, counts.out);
        PeerCase work{.collective = name,
                      .dtype = a_.dtype,
                      .op = a_.op,
                      .count = counts.block,
                      .element_size = size_of(a_.dtype),
                      .in = in->data(),
                      .out = out->data()};
        for (int other = 0; layout.pattern != nullptr && other < peer_.size(); ++other) {
            const auto block = [&](int from, int to) {
                return static_cast<int>(layout.pattern(counts.whole, from, to, peer_.size()));
            };
            work.send_counts.push_back(block(peer_.rank(), other));
            work.receive_counts.push_back(block(other, peer_.rank()));
        }
        const auto call = peer_.call(work);
        if (!call) return;
        std::vector<double> wrong{0};
        if (a_.check) {
            wrong[0] = static_cast<double>(check(layout, counts, *in, *out, call));
            ranks_.means(wrong);
        }
        const Sampled sampled = sample(a_.sampling, ranks_, call);
        if (peer_.rank() != 0) return;
        const std::uint64_t bytes = counts.whole * size_of(a_.dtype);
        const double median = quantile(sampled.times_us, 0.5), ranks = peer_.size();
        rows_.push_back({{"collective", name},
                         {"bytes", bytes},
                         {"dtype", a_.dtype},
                         {"op", layout.reduces ? a_.op : "none"},
                         {"ranks", peer_.size()},
                         {"implementation", peer_.name()},
                         {"median_us", median},
                         {"p10_us", quantile(sampled.times_us, 0.1)},
                         {"p90_us", quantile(sampled.times_us, 0.9)},
                         {"mean_us", sampled.mean_us},
                         {"busbw_gbps", static_cast<double>(bytes) / median / 1000 * layout.bus(ranks)},
                         {"cpu_us", sampled.cpu_us},
                         {"line_before_ns", sampled.line_before_ns},
                         {"line_after_ns", sampled.line_after_ns},
                         {"wrong", static_cast<std::uint64_t>(std::llround(wrong[0] * ranks))}});
    }

    /// Elements of this rank's output that are wrong after one call.
    std::uint64_t check(const Layout& layout, const Counts& counts, Elements& in, Elements& out,
                        const std::function<void()>& call) const {
        const int rank = peer_.rank(), ranks = peer_.size();
        const Values<double> own = inputs_of(rank, lowest_input);
        in.write({0, counts.in, rank, 0}, own);
        out.write({0, counts.out, rank, 0}, layout.in_place ? own : Values<double>{});
        call();
        if (layout.collective == "reduce" && rank != 0) return 0;  // some use its buffer
        std::uint64_t wrong = 0;
        for (const Run& run : outcome(layout, rank, ranks, counts)) {
            wrong += out.wrong(run, values_of(run, a_.op, ranks));
        }
        return wrong;
    }

    Arguments a_;
    Peer& peer_;
    LineProbe line_;
    Ranks ranks_;
    nlohmann::json rows_ = nlohmann::json::array();
};

}  // namespace

int run_peer(int argc, char** argv, const std::function<Peer&()>& connect) {
    Arguments a;
    CLI::App app("One rank of a peer's program; tutti bench --against starts it");
    app.add_option("collectives", a.collectives)->required();
    app.add_option("--sizes", a.sizes, "in bytes")->delimiter(',')->required();
    app.add_option("--dtype", a.dtype)->check(CLI::IsMember({"float32", "float64", "int32", "int64"}));
    app.add_option("--op", a.op)->check(CLI::IsMember({"sum", "prod", "min", "max"}));
    app.add_option("--iters", a.sampling.iterations);
    app.add_option("--warmup", a.sampling.warmup);
    app.add_option("--seconds", a.sampling.row_seconds);
    app.add_flag("--fill", a.sampling.fill);
    app.add_option("--json", a.json)->required();
    app.add_option("--line-file", a.line_file);
    app.add_flag("--pin", a.pin);
    app.add_flag("!--no-check", a.check);
    CLI11_PARSE(app, argc, argv);
    try {
        Peer& peer = connect();
        if (!a.pin || !pin_to(peer.rank(), peer.size())) a.line_file.clear();
        Program(a, peer).run();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
        return 1;
    }
}

}  // namespace tutti::bench
