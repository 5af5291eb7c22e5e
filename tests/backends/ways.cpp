// backend_ways NAME [DEVICE]: how the backend NAME carries out each collective, as lines "COLLECTIVE TYPE OPERATOR WAY"
// with tabs between them, for tools/backend-table. Three ranks: threads, or the processes of mpirun. DEVICE (cuda,
// rocm, npu, xpu): on tensors there, by the driver that TUTTI_CUDA_LIB or the other vendor's variable names. A
// transport carries bytes, of which tutti composes what its library has no function for. All results have been checked
// by the conformance suite.
#include "conformance/world.hpp"
#include "nccl/device.hpp"
#include "support/covers.hpp"

#include <dlfcn.h>

#include <array>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

void tutti::test::covers_row(std::string_view) {}

namespace tutti::test {
namespace {

constexpr int ranks = 3;

using Counts = std::array<std::uint64_t, 3>;

// Of the backend's library, which is loaded by now.
void* library_of(const std::string& backend) {
    return ::dlopen(loaded_file("libtutti-backend-" + backend + ".so").c_str(), RTLD_NOW | RTLD_NOLOAD);
}

bool is_transport(const std::string& backend) {
    void* library = library_of(backend);
    return library != nullptr && ::dlsym(library, "tutti_transport_abi") != nullptr;
}

Counts counts(const std::string& backend) {
    void* library = library_of(backend);
    void* symbol = library != nullptr ? ::dlsym(library, "tutti_backend_ways") : nullptr;
    if (symbol == nullptr && is_transport(backend)) return {};  // its library has no collectives
    if (symbol == nullptr) throw std::runtime_error("the library of " + backend + " does not say how it works");
    Counts now{};
    reinterpret_cast<void (*)(std::uint64_t*)>(symbol)(now.data());
    return now;
}

// The ranks that share the counts.
std::barrier<>& meeting() {
    static std::barrier<> one(port_of_job() == nullptr ? ranks : 1);
    return one;
}

// Tensors where the backend works.
class Memory {
 public:
    explicit Memory(const Gpu* gpu) : gpu_(gpu) {}
    TensorView make(DType dtype, std::int64_t count) {
        kept_.push_back(zeros(dtype, Extents::of(count)));
        if (gpu_ == nullptr) return kept_.back().view();
        return {gpu_->memory(kept_.back()), Extents::of(count), dtype, {}, gpu_->device()};
    }

 private:
    const Gpu* gpu_;
    std::vector<Tensor> kept_;
};

class Table {
 public:
    Table(const ProcessGroup& group, const std::string& backend, const Gpu* gpu)
        : g_(group), backend_(backend), memory_(gpu) {}

    void write() {
        collectives();
        for (int d = 0; d < dtype_count; ++d) {
            for (int k = 0; k < reduce_op_count; ++k) reduction(static_cast<DType>(d), static_cast<ReduceOp::Kind>(k));
        }
    }

 private:
    static constexpr std::int64_t count = 60;

    void line(const std::string& collective, DType dtype, std::string_view op, const std::function<Work()>& begin) {
        meeting().arrive_and_wait();
        const Counts before = counts(backend_);
        meeting().arrive_and_wait();
        begin().wait(20s);
        meeting().arrive_and_wait();
        const Counts after = counts(backend_);
        const char* way = is_transport(backend_) ? "composed" : "none";
        for (std::size_t i = 0; i < 3; ++i) {
            static constexpr std::array names{"native", "composed", "by_host"};
            if (after[i] > before[i]) way = names[i];
        }
        if (g_.rank() == 0)
            std::printf("%s\t%s\t%s\t%s\n", collective.c_str(), std::string(to_string(dtype)).c_str(),
                        std::string(op).c_str(), way);
    }

    TensorView tensor(std::int64_t elements, DType dtype = float32) { return memory_.make(dtype, elements); }
    std::vector<std::int64_t> sizes(std::int64_t step) const {
        std::vector<std::int64_t> all;
        for (int r = 0; r < ranks; ++r) all.push_back(count + r * step);
        return all;
    }
    std::int64_t own(std::int64_t step) const { return count + g_.rank() * step; }
    std::int64_t sum(std::int64_t step) const { return ranks * count + 3 * step; }
    TensorList list(std::int64_t step) {
        TensorList all;
        for (const std::int64_t size : sizes(step)) all.push_back(tensor(size));
        return all;
    }
    // The same in one piece.
    TensorList parts() {
        const TensorView whole = tensor(ranks * count);
        TensorList all;
        for (std::int64_t r = 0; r < ranks; ++r)
            all.emplace_back(static_cast<float*>(whole.data()) + r * count, Extents::of(count), float32, Extents{},
                             whole.device());
        return all;
    }
    ConstTensorList const_list(std::int64_t step) {
        const TensorList all = list(step);
        return {all.begin(), all.end()};
    }

    void collectives() {
        constexpr std::int64_t close = 3, far = 100;
        const auto plain = [&](const std::string& name, const std::function<Work()>& begin) {
            line(name, float32, "sum", begin);
        };
        plain("broadcast", [&] { return async::broadcast(tensor(count), {.src = 1, .group = g_}); });
        plain("all_reduce", [&] { return async::all_reduce(tensor(count), {.group = g_}); });
        plain("scan", [&] { return async::scan(tensor(count), {.group = g_}); });
        plain("exscan", [&] { return async::exscan(tensor(count), {.group = g_}); });
        plain("reduce", [&] { return async::reduce(tensor(count), {.dst = 1, .group = g_}); });
        plain("all_gather_into_tensor",
              [&] { return async::all_gather_into_tensor(tensor(ranks * count), tensor(count), {.group = g_}); });
        plain("all_gather, tensors anywhere", [&] { return async::all_gather(list(0), tensor(count), {.group = g_}); });
        plain("all_gather_v, sizes within a quarter", [&] {
            return async::all_gather_v(tensor(sum(close)), tensor(own(close)),
                                       {.output_split_sizes = sizes(close), .group = g_});
        });
        plain("all_gather_v, other sizes", [&] {
            return async::all_gather_v(tensor(sum(far)), tensor(own(far)),
                                       {.output_split_sizes = sizes(far), .group = g_});
        });
        plain("reduce_scatter_tensor",
              [&] { return async::reduce_scatter_tensor(tensor(count), tensor(ranks * count), {.group = g_}); });
        plain("reduce_scatter, tensors anywhere",
              [&] { return async::reduce_scatter(tensor(count), const_list(0), {.group = g_}); });
        plain("reduce_scatter_v, sizes within a quarter", [&] {
            return async::reduce_scatter_v(tensor(own(close)), tensor(sum(close)),
                                           {.input_split_sizes = sizes(close), .group = g_});
        });
        plain("reduce_scatter_v, other sizes", [&] {
            return async::reduce_scatter_v(tensor(own(far)), tensor(sum(far)),
                                           {.input_split_sizes = sizes(far), .group = g_});
        });
        const bool is_root = g_.rank() == 1;
        for (const bool apart : {false, true}) {
            const std::string suffix = apart ? ", tensors anywhere" : "";
            const TensorList blocks = !is_root ? TensorList{} : apart ? list(0) : parts();
            plain("gather" + suffix, [&] { return async::gather(tensor(count), blocks, {.dst = 1, .group = g_}); });
            plain("scatter" + suffix, [&] {
                return async::scatter(tensor(count), {blocks.begin(), blocks.end()}, {.src = 1, .group = g_});
            });
        }
        plain("all_to_all_single",
              [&] { return async::all_to_all_single(tensor(ranks * count), tensor(ranks * count), {.group = g_}); });
        plain("all_to_all, tensors anywhere", [&] { return async::all_to_all(list(0), const_list(0), {.group = g_}); });
        plain("all_to_all_v", [&] {
            AllToAllVOptions o{.group = g_};
            for (int r = 0; r < ranks; ++r) {
                o.send_counts.push_back(g_.rank() + 2 * r);
                o.receive_counts.push_back(r + 2 * g_.rank());
                o.send_offsets.push_back(20 * r);
                o.receive_offsets.push_back(20 * (ranks - 1 - r));
            }
            return async::all_to_all_v(tensor(count), tensor(count), o);
        });
        const std::vector<std::int64_t> all_sizes = sizes(far);
        plain("gather_v", [&] {
            return async::gather_v(tensor(own(far)), is_root ? tensor(sum(far)) : TensorView(),
                                   {.receive_counts = all_sizes, .dst = 1, .group = g_});
        });
        plain("scatter_v", [&] {
            return async::scatter_v(tensor(own(far)), is_root ? tensor(sum(far)) : TensorView(),
                                    {.send_counts = all_sizes, .src = 1, .group = g_});
        });
        plain("barrier", [&] { return async::barrier({.group = g_}); });
    }

    void reduction(DType dtype, ReduceOp::Kind kind) {
        if (!is_supported(kind, dtype)) return;
        const ReduceOp op = kind == ReduceOp::Kind::premul_sum ? ReduceOp::premul_sum(2) : ReduceOp(kind);
        line("reduction", dtype, to_string(kind),
             [&] { return async::all_reduce(tensor(count, dtype), {.op = op, .group = g_}); });
    }

    const ProcessGroup& g_;
    const std::string backend_;
    Memory memory_;
};

int run(const std::string& backend, const std::string& device) {
    if (!device.empty()) {
        ::setenv("TUTTI_TEST_GPU", (device + ":" + backend).c_str(), 1);
        on_gpus(ranks, [&](const ProcessGroup& g, const Gpu& gpu) { Table(g, backend, &gpu).write(); },
                {.backend = gpu_backend()});
    } else {
        ::setenv("TUTTI_CONFORMANCE_BACKEND", backend.c_str(), 1);
        run_ranks(ranks, How::threads, [&](const ProcessGroup& g) { Table(g, backend, nullptr).write(); });
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
    if (argc < 2 || argc > 3) {
        std::fputs("usage: backend_ways NAME [DEVICE]\n", stderr);
        return 2;
    }
    try {
        return tutti::test::run(argv[1], argc == 3 ? argv[2] : "");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "backend_ways: %s\n", error.what());
        return 1;
    }
}
