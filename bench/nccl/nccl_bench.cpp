// nccl_bench [--json FILE]: the cost of a call beside NCCL's own function, and the time that the backend takes to load.
//
// call   an all_reduce on a library and a driver that do nothing, so that all time is ours: of the plug-in (run() in
//        the thread that calls), and of the whole call, async::all_reduce(...).wait(). The raw call is the same
//        table's: the calls of a program without tutti, an event before and after it. The other rank is idle.
// load   in a fresh process, until the backend "nccl" can be used with the library that TUTTI_NCCL_LIB names.
// Medians of batches.
#include "nccl/plug_in.hpp"
#include "noop.hpp"

#include <tutti/tutti.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

constexpr int batches = 101, calls_in_batch = 200;

double ns_since(Clock::time_point start) {
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

// The median over batches of the mean time of one call.
double time_of(const std::function<void()>& call) {
    std::vector<double> means;
    for (int batch = 0; batch < batches; ++batch) {
        const auto start = Clock::now();
        for (int i = 0; i < calls_in_batch; ++i) call();
        means.push_back(ns_since(start) / calls_in_batch);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // calls under way end
    }
    return median(means);
}

// A backend that takes the time of another one's run().
class Timed final : public CustomBackend {
 public:
    explicit Timed(std::shared_ptr<CustomBackend> timed) : timed_(std::move(timed)) {}
    void run(const BackendRequest& request, BackendCompletion completion) override {
        const auto start = Clock::now();
        timed_->run(request, std::move(completion));
        times().push_back(ns_since(start));
    }
    void abort(const std::string& reason) noexcept override { timed_->abort(reason); }
    static std::vector<double>& times() {
        thread_local std::vector<double> all;
        return all;
    }

 private:
    std::shared_ptr<CustomBackend> timed_;
};

std::shared_ptr<const nccl::Library> library() {
    static const nccl::Vendor vendor{.backend = "noop",
                                     .title = "nothing",
                                     .prefix = "nccl",
                                     .devices = {Device::Type::cuda},
                                     .resolve = &nccl::resolve_nccl,
                                     .abilities = &nccl::nccl_abilities,
                                     .version_text = &nccl::nccl_version_text};
    static const auto one = std::make_shared<const nccl::Library>(vendor, bench::noop_calls(), "no file", 22800, false);
    return one;
}

struct CallTimes {
    double raw = 0, in_plug_in = 0, whole = 0;
};

CallTimes measure_calls() {
    CallTimes times;
    const auto driver = bench::noop_driver();
    const nccl::Interface calls = bench::noop_calls();
    std::vector<float> memory(1024);
    int stream = 0;
    times.raw = time_of([&] {
        driver->record(nullptr, nullptr);
        driver->make_wait(&stream, nullptr);
        calls.AllReduce(memory.data(), memory.data(), memory.size(), nccl::float32, nccl::sum, nullptr, &stream);
        driver->record(nullptr, &stream);
        driver->make_wait(nullptr, nullptr);
    });
    std::vector<double> clock;
    for (int i = 0; i < calls_in_batch; ++i) clock.push_back(ns_since(Clock::now()));

    nccl::provide_driver(Device::Type::cuda, &bench::noop_driver);
    Backend::register_backend("noop",
                              [](const DistributedBackendOptions& options, const std::any& pg_options) {
                                  return std::make_shared<Timed>(nccl::make_backend(library(), options, pg_options));
                              },
                              {Device::Type::cuda});
    const HashStore store;
    const auto rank_main = [&](int rank) {
        const Device device{Device::Type::cuda, rank};
        ProcessGroup g(
            {.store = store, .rank = rank, .world_size = 2, .backend = "cpu:native,cuda:noop", .device_id = device});
        const TensorView x(memory.data(), {1024}, float32, {}, device);
        if (rank == 0) {
            const auto call = [&] { async::all_reduce(x, {.group = g}).wait(); };
            call();
            Timed::times().clear();
            times.whole = time_of(call);
            times.in_plug_in = median(Timed::times()) - median(clock);
        }
        barrier({.group = g});
        g.destroy();
    };
    std::thread other(rank_main, 1);
    rank_main(0);
    other.join();
    return times;
}

// Of a process that has just begun.
double load_ms() {
    std::vector<double> all;
    for (int i = 0; i < 7; ++i) {
        int answer[2];
        if (::pipe(answer) != 0) std::abort();
        const pid_t child = ::fork();
        if (child == 0) {
            const auto start = Clock::now();
            const double ns = is_backend_available("nccl") ? ns_since(start) : -1;
            std::ignore = ::write(answer[1], &ns, sizeof ns);
            ::_exit(0);
        }
        double ns = -1;
        std::ignore = ::read(answer[0], &ns, sizeof ns);
        ::close(answer[0]);
        ::close(answer[1]);
        ::waitpid(child, nullptr, 0);
        if (ns < 0)
            throw DistBackendError("nccl_bench: the backend \"nccl\" cannot be loaded; TUTTI_NCCL_LIB names a library");
        all.push_back(ns / 1e6);
    }
    return median(all);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        auto rows = nlohmann::json::array();
        const double load = load_ms();  // before this process opens anything
        const CallTimes times = measure_calls();
        std::printf("raw call %.0f ns; in the plug-in %.0f ns; whole call %.0f ns\nload %.2f ms\n", times.raw,
                    times.in_plug_in, times.whole, load);
        rows.push_back(
            {{"case", "call"}, {"raw_ns", times.raw}, {"plug_in_ns", times.in_plug_in}, {"whole_ns", times.whole}});
        rows.push_back({{"case", "load"}, {"ms", load}});
        if (argc == 3 && std::string_view(argv[1]) == "--json") std::ofstream(argv[2]) << rows.dump(1);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "nccl_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
