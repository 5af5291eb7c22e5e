#include "nccl_parts/parts.hpp"

#include "nccl/host_fallback.hpp"
#include "nccl/messages.hpp"
#include "nccl/pinned.hpp"

#include <memory>
#include <mutex>
#include <thread>

namespace tutti::test {
namespace {

class Parts final : public CustomBackend {
 public:
    Parts(const DistributedBackendOptions& options, bool host_memory)
        : context_(std::make_shared<nccl::Context>(FakeLibrary::get(host_memory), options, NcclOptions{})),
          by_host_(context_),
          messages_(context_) {}
    ~Parts() override { abort("the test has ended"); }

    void run(const BackendRequest& request, BackendCompletion completion) override {
        if (request.call == BackendCall::send || request.call == BackendCall::receive)
            messages_.run(request, std::move(completion));
        else
            by_host_.run(request, std::move(completion));
    }
    bool takes_blocks() const override { return true; }

    void leave() noexcept override {
        const auto until = nccl::Clock::now() + context_->timeout();
        by_host_.drain(until);
        context_->keep_quiet();
        if (messages_.drain(until) && context_->watcher().drain(until) && !context_->is_over()) context_->leave(until);
    }
    void abort(const std::string& reason) noexcept override {
        const auto until = nccl::Clock::now() + 10s;
        context_->fail(std::make_exception_ptr(Aborted(context_->title() + ": " + reason)));
        EXPECT_TRUE(context_->wait_for_end(until));
        EXPECT_TRUE(by_host_.drain(until));
    }

 private:
    const std::shared_ptr<nccl::Context> context_;
    nccl::HostFallback by_host_;
    nccl::Messages messages_;
};

void register_backends() {
    static std::once_flag once;
    std::call_once(once, [] {
        FakeDriver::get();
        const auto make = [](bool host_memory) -> Backend::Extended {
            return [host_memory](const DistributedBackendOptions& options, const std::any&) {
                return std::make_shared<Parts>(options, host_memory);
            };
        };
        Backend::register_backend("parts", make(false), {Device::Type::cuda});
        Backend::register_backend("parts_host", make(true), {Device::Type::cpu});
    });
}

struct StreamOfThread {
    std::vector<nccl::Driver::StreamHandle> handles;
    ~StreamOfThread() {
        for (const auto handle : handles) FakeDriver::get()->destroy_stream(handle);
    }
};
thread_local StreamOfThread streams_of_thread;

}  // namespace

Stream Rank::stream() const {
    if (device.type == Device::Type::cpu) return {};
    streams_of_thread.handles.push_back(FakeDriver::get()->make_stream(device.index, false));
    return {streams_of_thread.handles.back()};
}

void Rank::wait_for(Stream stream) const {
    if (device.type != Device::Type::cpu) FakeDriver::get()->wait_for_stream(stream.handle);
}

void on_ranks(int size, const std::function<void(const Rank&)>& body, const PartsWorld& world) {
    register_backends();
    const HashStore store;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                const bool on_host = world.where == Where::host;
                Device device{};
                if (!on_host) device = {Device::Type::cuda, rank % FakeDriver::devices};
                FakeDriver::get()->use(device.index);
                const Rank own{ProcessGroup({.store = store,
                                             .rank = rank,
                                             .world_size = size,
                                             .timeout = world.timeout,
                                             .determinism = world.determinism,
                                             .backend = on_host ? "parts_host" : "cuda:parts"}),
                               device};
                body(own);
                ProcessGroup(own.group).destroy();
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    for (auto& thread : threads) thread.join();
    // The last handle of a group may go with an operation, in a thread of the parts.
    const auto live = [] { return FakeDriver::get()->live(); };
    const auto some = [&] { return live().streams + FakeLibrary::communicators > 0 || live().host_bytes > 0; };
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (some() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(live().streams, 0) << "of groups that are gone";
    EXPECT_EQ(live().host_bytes, 0U);
    EXPECT_EQ(FakeLibrary::communicators, 0);
}

std::size_t idle_pinned_bytes() {
    return nccl::PinnedMemory::of(FakeDriver::get())->idle_bytes();
}

}  // namespace tutti::test
