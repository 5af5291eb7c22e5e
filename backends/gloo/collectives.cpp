#include "gloo/collectives.hpp"

#include "gloo/lanes.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace tutti::backends::gloo {
namespace {

using ContextPtr = std::shared_ptr<::gloo::Context>;
using Byte = std::uint8_t;

// Gloo counts elements, and needs only their size.
template <class F>
void with_element_of(DType dtype, F f) {
    switch (size_of(dtype)) {
        case 1: return f(std::uint8_t{});
        case 2: return f(std::uint16_t{});
        case 4: return f(std::uint32_t{});
        case 8: return f(std::uint64_t{});
        default: return f(std::array<std::uint64_t, 2>{});
    }
}

std::uint32_t tag_of(const BackendRequest& r) {
    return static_cast<std::uint32_t>(r.sequence);
}

class Call {
 public:
    Call(const BackendRequest& request, const ContextPtr& context)
        : r_(request), context_(context), rank_(context->rank), size_(context->size) {}

    void run() const {
        switch (r_.call) {
            case BackendCall::broadcast: return broadcast();
            case BackendCall::all_reduce: return all_reduce();
            case BackendCall::reduce: return reduce();
            case BackendCall::all_gather: return all_gather();
            case BackendCall::gather: return gather();
            case BackendCall::scatter: return scatter();
            default: return barrier();
        }
    }

 private:
    std::size_t bytes(std::uint64_t count) const { return static_cast<std::size_t>(count) * size_of(r_.dtype); }
    template <class T = Byte>
    T* in() const {
        return static_cast<T*>(const_cast<void*>(r_.input));
    }
    template <class T = Byte>
    T* out() const {
        return static_cast<T*>(r_.output);
    }
    auto function() const {
        return [op = r_.op, dtype = r_.dtype](void* result, const void* a, const void* b, std::size_t count) {
            const std::array inputs{a, b};
            combine(op, dtype, result, inputs, count);
        };
    }
    template <class Options, class Function>
    void call(Options& options, Function function) const {
        options.setTag(tag_of(r_));
        function(options);
    }

    void broadcast() const {
        if (r_.count == 0) return;
        ::gloo::BroadcastOptions options(context_);
        options.setOutput(out(), bytes(r_.count));
        options.setRoot(r_.root);
        call(options, [](auto& o) { ::gloo::broadcast(o); });
    }
    void all_reduce() const {
        if (r_.count == 0) return;
        ::gloo::AllreduceOptions options(context_);
        with_element_of(r_.dtype, [&](auto element) {
            using T = decltype(element);
            if (r_.input != r_.output) options.setInput(in<T>(), r_.count);
            options.setOutput(out<T>(), r_.count);
        });
        options.setReduceFunction(function());
        call(options, [](auto& o) { ::gloo::allreduce(o); });
    }
    // Gloo needs an output on every rank to work in.
    void reduce() const {
        if (r_.count == 0) return;
        ::gloo::ReduceOptions options(context_);
        std::vector<char> room(rank_ == r_.root ? 0 : bytes(r_.count));
        with_element_of(r_.dtype, [&](auto element) {
            using T = decltype(element);
            if (r_.input != r_.output) options.setInput(in<T>(), r_.count);
            options.setOutput(rank_ == r_.root ? out<T>() : reinterpret_cast<T*>(room.data()), r_.count);
        });
        options.setReduceFunction(function());
        options.setRoot(r_.root);
        call(options, [](auto& o) { ::gloo::reduce(o); });
    }
    void all_gather() const {
        std::vector<std::size_t> sizes;
        for (const std::uint64_t count : r_.counts) sizes.push_back(bytes(count));
        if (std::ranges::all_of(sizes, [](std::size_t size) { return size == 0; })) return;
        ::gloo::AllgathervOptions options(context_);
        options.setInput(in(), sizes[static_cast<std::size_t>(rank_)]);
        options.setOutput(out(), sizes);
        call(options, [](auto& o) { ::gloo::allgatherv(o); });
    }
    void gather() const {
        if (r_.count == 0) return;
        ::gloo::GatherOptions options(context_);
        options.setInput(in(), bytes(r_.count));
        if (rank_ == r_.root) options.setOutput(out(), bytes(r_.count) * static_cast<std::size_t>(size_));
        options.setRoot(r_.root);
        call(options, [](auto& o) { ::gloo::gather(o); });
    }
    void scatter() const {
        if (r_.count == 0) return;
        ::gloo::ScatterOptions options(context_);
        std::vector<Byte*> blocks;
        for (std::size_t i = 0; rank_ == r_.root && i < static_cast<std::size_t>(size_); ++i)
            blocks.push_back(in() + i * bytes(r_.count));
        if (rank_ == r_.root) options.setInputs(blocks, bytes(r_.count));
        options.setOutput(out(), bytes(r_.count));
        options.setRoot(r_.root);
        call(options, [](auto& o) { ::gloo::scatter(o); });
    }

    void barrier() const {
        ::gloo::BarrierOptions options(context_);
        call(options, [](auto& o) { ::gloo::barrier(o); });
    }

    const BackendRequest& r_;
    const ContextPtr& context_;
    const int rank_, size_;
};

}  // namespace

bool has_collective(const BackendRequest& r) {
    switch (r.call) {
        case BackendCall::all_reduce:
        case BackendCall::reduce:
            return r.op.kind() != ReduceOp::Kind::avg && !is_low_precision(r.dtype) && !r.in_rank_order;
        case BackendCall::broadcast:
        case BackendCall::all_gather:
        case BackendCall::gather:
        case BackendCall::scatter:
        case BackendCall::barrier: return true;
        default: return false;
    }
}

void run_collective(const BackendRequest& request, const ContextPtr& context) {
    try {
        Call(request, context).run();
    } catch (const ::gloo::Exception& error) {
        throw DistBackendError("gloo: " + request.name + ": a connection has broken: " + error.what());
    }
}

}  // namespace tutti::backends::gloo
