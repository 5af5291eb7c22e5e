// Point to point, and barriers.
#include "issue.hpp"

namespace tutti::torch {
namespace {

// The error says "send" for both directions, as gloo's does.
at::Tensor& only_one(Tensors& tensors, const std::string& backend) {
    TORCH_CHECK(tensors.size() == 1, backend == "gloo" ? "ProcessGroupGloo" : "ProcessGroupTutti",
                "::send takes a single tensor");
    return tensors[0];
}

}  // namespace

WorkPtr ProcessGroupTutti::send(Tensors& tensors, int destination, int tag) {
    if (Staging::needed(tensors)) {
        return stage([&](Staging& staging) {
            Tensors tensors_on_host = staging.in(tensors);
            return send(tensors_on_host, destination, tag);
        });
    }
    at::Tensor& tensor = only_one(tensors, options_->backend);
    check_rank("send", "dst", destination);
    const ConstTensorView view = view_of(tensor, "send", "tensor");
    const SendOptions ours{.tag = tag, .group = group()};
    return issue(
        {"send", c10d::OpType::SEND, true, ours.timeout, false, destination},
        [&] { tutti::send(view, destination, ours); }, [&] { return tutti::isend(view, destination, ours); },
        keep(tensors, tensors));
}

WorkPtr ProcessGroupTutti::receive(Tensors& tensors, std::optional<int> source, int tag, c10d::OpType type) {
    if (Staging::needed(tensors))
        return on_host(tensors, [&](auto& copies) { return receive(copies, source, tag, type); });
    at::Tensor& tensor = only_one(tensors, options_->backend);
    const TensorView view = view_of(tensor, "recv", "tensor");
    const RecvOptions ours{.src = source, .tag = tag, .group = group()};
    return issue(
        {source ? "recv" : "recvAnySource", type, true, ours.timeout, false, source.value_or(-1)},
        [&] { tutti::recv(view, ours); }, [&] { return tutti::irecv(view, ours); }, keep(tensors, tensors));
}

WorkPtr ProcessGroupTutti::recv(Tensors& tensors, int source, int tag) {
    check_rank("recv", "src", source);
    return receive(tensors, source, tag, c10d::OpType::RECV);
}

WorkPtr ProcessGroupTutti::recvAnysource(Tensors& tensors, int tag) {
    return receive(tensors, std::nullopt, tag, c10d::OpType::RECVANYSOURCE);
}

WorkPtr ProcessGroupTutti::barrier(const c10d::BarrierOptions& options) {
    const tutti::BarrierOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    return run(functions::barrier, options, ours, [] { return Kept{}; });
}

// gloo's words: rank 0 names the missing ranks, the others say that they are not to blame.
void ProcessGroupTutti::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
    sequence_.fetch_add(1, std::memory_order_relaxed);
    const CallSiteScope site(python::call_site());
    const bool no_time = options.timeout == std::chrono::milliseconds::zero();
    if (no_time && rank_ == 0 && size_ > 1) {
        C10_THROW_ERROR(DistBackendError, "Rank 0 timed out in monitoredBarrier after 0 ms.");
    }
    try {
        monitored_barrier({.group = group(),
                           .timeout = no_time ? std::chrono::milliseconds(1) : timeout_of(options.timeout),
                           .wait_all_ranks = wait_all_ranks});
    } catch (const DistBackendError& error) {
        if (rank_ == 0 && error.code() == ErrorCode::timeout) {
            C10_THROW_ERROR(DistBackendError, c10::str("[Rank 0]: ", error.what()));
        }
        const std::exception_ptr original = translated(std::current_exception());
        if (rank_ == 0) std::rethrow_exception(original);
        try {
            std::rethrow_exception(original);
        } catch (const c10::Error& said) {
            C10_THROW_ERROR(DistBackendError,
                            c10::str("Rank ", rank_,
                                     " successfully reached monitoredBarrier, but received errors while waiting for "
                                     "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original "
                                     "exception: \n",
                                     said.msg()));
        }
    } catch (const DistError&) {
        std::rethrow_exception(translated(std::current_exception()));
    }
}

}  // namespace tutti::torch
