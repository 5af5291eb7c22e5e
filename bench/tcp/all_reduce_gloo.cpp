// Gloo's all_reduce of floats, in place, over TCP. Started by veth.py, with RANK, WORLD_SIZE, HOST (this rank's
// address) and MEETING (a directory that the ranks share).
#include "contender.hpp"

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

int main(int argc, char** argv) {
    contender::Ranks ranks;
    ranks.rank = std::atoi(std::getenv("RANK"));
    ranks.size = std::atoi(std::getenv("WORLD_SIZE"));
    gloo::transport::tcp::attr where;
    where.hostname = std::getenv("HOST");
    gloo::rendezvous::FileStore store(std::getenv("MEETING"));
    auto rendezvous = std::make_shared<gloo::rendezvous::Context>(ranks.rank, ranks.size);
    auto device = gloo::transport::tcp::CreateDevice(where);
    rendezvous->connectFullMesh(store, device);
    const std::shared_ptr<gloo::Context> context = rendezvous;
    ranks.barrier = [&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
    };
    ranks.mean = [&](double value) {
        gloo::AllreduceOptions options(context);
        options.setOutput(&value, 1);
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<double>));
        gloo::allreduce(options);
        return value / ranks.size;
    };
    // The options, and with them the registered buffers, are made once a size: Gloo's quickest way.
    return contender::run(argc, argv, ranks, [&](float* data, std::size_t count) {
        auto options = std::make_shared<gloo::AllreduceOptions>(context);
        options->setOutput(data, count);
        options->setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
        return [options] { gloo::allreduce(*options); };
    });
}
