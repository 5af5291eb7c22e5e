// Gloo as a peer, over its TCP transport: it has no shared memory. Ranks meet in the directory TUTTI_PEER_MEETING, and
// each listens at TUTTI_PEER_ADDRESS, or at 127.0.0.1.
#include "peer.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wpedantic"
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <type_traits>

namespace tutti::bench {
namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set");
    return value;
}

template <class T>
using Combine = void (*)(void*, const void*, const void*, std::size_t);

template <class T>
Combine<T> combine_of(const std::string& op) {
    if (op == "sum") return &gloo::sum<T>;
    if (op == "prod") return &gloo::product<T>;
    if (op == "min") return &gloo::min<T>;
    return &gloo::max<T>;
}

class Gloo final : public Peer {
 public:
    Gloo() : rank_(std::stoi(environment("RANK"))), size_(std::stoi(environment("WORLD_SIZE"))) {
        gloo::transport::tcp::attr where;
        const char* address = std::getenv("TUTTI_PEER_ADDRESS");
        where.hostname = address != nullptr ? address : "127.0.0.1";
        gloo::rendezvous::FileStore store(environment("TUTTI_PEER_MEETING"));
        auto context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
        auto device = gloo::transport::tcp::CreateDevice(where);
        context->connectFullMesh(store, device);
        context_ = context;
    }
    std::string name() const override { return "gloo " TUTTI_GLOO_VERSION; }
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    Ranks ranks() override {
        return {[this] { barrier(); },
                [this](double value) {
                    gloo::BroadcastOptions options(context_);
                    options.setOutput(&value, 1);
                    options.setRoot(0);
                    gloo::broadcast(options);
                    return value;
                },
                [this](std::vector<double>& values) {
                    gloo::AllreduceOptions options(context_);
                    options.setOutput(values.data(), values.size());
                    options.setReduceFunction(combine_of<double>("sum"));
                    gloo::allreduce(options);
                    for (double& value : values) value /= size_;
                },
                size_};
    }
    std::function<void()> call(const PeerCase& work) override {
        if (work.dtype == "float32") return typed<float>(work);
        if (work.dtype == "float64") return typed<double>(work);
        return work.dtype == "int32" ? typed<std::int32_t>(work) : typed<std::int64_t>(work);
    }

 private:
    void barrier() {
        gloo::BarrierOptions options(context_);
        gloo::barrier(options);
    }

    // The options, and with them the registered buffers, are made once a case: Gloo's quickest way.
    template <class Options, class Function>
    static std::function<void()> again(Options options, Function function) {
        return [options = std::make_shared<Options>(std::move(options)), function] { function(*options); };
    }
    template <class T>
    std::function<void()> typed(const PeerCase& work) {
        const std::string& name = work.collective;
        const std::size_t count = work.count, all = count * static_cast<std::size_t>(size_);
        auto* in = static_cast<T*>(work.in);
        auto* out = static_cast<T*>(work.out);
        if (name == "all_reduce") {
            gloo::AllreduceOptions options(context_);
            options.setOutput(out, count);
            options.setReduceFunction(combine_of<T>(work.op));
            return again(std::move(options), [](auto& o) { gloo::allreduce(o); });
        }
        if (name == "broadcast") {
            gloo::BroadcastOptions options(context_);
            options.setOutput(out, count);
            options.setRoot(0);
            return again(std::move(options), [](auto& o) { gloo::broadcast(o); });
        }
        if (name == "reduce") {
            gloo::ReduceOptions options(context_);
            options.setOutput(out, count);
            options.setRoot(0);
            options.setReduceFunction(combine_of<T>(work.op));
            return again(std::move(options), [](auto& o) { gloo::reduce(o); });
        }
        if (name == "all_gather") {
            gloo::AllgatherOptions options(context_);
            options.setInput(in, count);
            options.setOutput(out, all);
            return again(std::move(options), [](auto& o) { gloo::allgather(o); });
        }
        if (name == "all_to_all") {
            gloo::AlltoallOptions options(context_);
            options.setInput(in, all);
            options.setOutput(out, all);
            return again(std::move(options), [](auto& o) { gloo::alltoall(o); });
        }
        if (name == "gather") {
            gloo::GatherOptions options(context_);
            options.setInput(in, count);
            if (rank_ == 0) options.setOutput(out, all);
            options.setRoot(0);
            return again(std::move(options), [](auto& o) { gloo::gather(o); });
        }
        if (name == "scatter") {
            gloo::ScatterOptions options(context_);
            std::vector<T*> parts;
            for (std::size_t r = 0; rank_ == 0 && r < static_cast<std::size_t>(size_); ++r) {
                parts.push_back(in + r * count);
            }
            if (rank_ == 0) options.setInputs(parts, count);
            options.setOutput(out, count);
            options.setRoot(0);
            return again(std::move(options), [](auto& o) { gloo::scatter(o); });
        }
        if (name == "sendrecv") {
            std::shared_ptr<gloo::transport::UnboundBuffer> from = context_->createUnboundBuffer(in, count * sizeof(T));
            std::shared_ptr<gloo::transport::UnboundBuffer> to = context_->createUnboundBuffer(out, count * sizeof(T));
            return [from, to, next = (rank_ + 1) % size_, last = (rank_ + size_ - 1) % size_] {
                constexpr std::uint64_t slot = 1 << 20;
                from->send(next, slot);
                to->recv(last, slot);
                from->waitSend();
                to->waitRecv();
            };
        }
        if (name == "barrier") return [this] { barrier(); };
        return {};  // reduce_scatter, which Gloo has no more, and blocks that differ
    }

    int rank_, size_;
    std::shared_ptr<gloo::Context> context_;
};

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
    std::unique_ptr<tutti::bench::Gloo> gloo;
    return tutti::bench::run_peer(argc, argv, [&gloo]() -> tutti::bench::Peer& {
        gloo = std::make_unique<tutti::bench::Gloo>();
        return *gloo;
    });
}
