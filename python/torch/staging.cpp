#include "staging.hpp"

#include "failure.hpp"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace tutti::torch {
namespace {

at::Tensor empty_on_host(const at::Tensor& tensor) {
    return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda()));
}

}  // namespace

// A meta tensor has no elements to copy: the operation itself refuses it.
bool Staging::needed(const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_cpu() && !tensor.is_meta();
}
bool Staging::needed(const Tensors& tensors) {
    return std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return needed(tensor); });
}
bool Staging::needed(const std::vector<Tensors>& lists) {
    return std::ranges::any_of(lists, [](const Tensors& tensors) { return needed(tensors); });
}

void Staging::add_device(const at::Tensor& tensor) {
    if (std::ranges::find(devices_, tensor.device()) == devices_.end()) devices_.push_back(tensor.device());
}

at::Tensor Staging::in(const at::Tensor& tensor) {
    if (!needed(tensor)) return tensor;
    add_device(tensor);
    const at::AutoDispatchBelowADInplaceOrView no_grad;
    if (tensor.layout() != at::kStrided) return tensor.to(at::kCPU);
    at::Tensor host = empty_on_host(tensor);
    host.copy_(tensor);  // waits for the current stream
    return host;
}
at::Tensor Staging::out(const at::Tensor& tensor, Fill fill) {
    if (!needed(tensor)) return tensor;
    add_device(tensor);
    at::Tensor host = fill == Fill::yes || tensor.layout() != at::kStrided ? in(tensor) : empty_on_host(tensor);
    written_.emplace_back(tensor, host);
    return host;
}
Tensors Staging::in(const Tensors& tensors) {
    Tensors copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(in(tensor));
    return copies;
}
Tensors Staging::out(const Tensors& tensors, Fill fill) {
    Tensors copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(out(tensor, fill));
    return copies;
}
std::vector<Tensors> Staging::in(const std::vector<Tensors>& lists) {
    std::vector<Tensors> copies;
    for (const Tensors& tensors : lists) copies.push_back(in(tensors));
    return copies;
}
std::vector<Tensors> Staging::out(const std::vector<Tensors>& lists, Fill fill) {
    std::vector<Tensors> copies;
    for (const Tensors& tensors : lists) copies.push_back(out(tensors, fill));
    return copies;
}

void Staging::copy_back() {
    const at::AutoDispatchBelowADInplaceOrView no_grad;
    for (auto& [original, host] : written_) {
        original.copy_(host, /*non_blocking=*/original.is_cuda() && original.layout() == at::kStrided);
    }
}

std::vector<c10::Stream> Staging::streams_of_their_own() {
    std::vector<c10::Stream> streams;
    for (const c10::Device& device : devices_) {
        const c10::impl::VirtualGuardImpl guard(device.type());
        const c10::Stream stream = guard.getStreamFromGlobalPool(device);
        streams.push_back(stream);
        for (const auto& [original, host] : written_) {  // may be freed before the copy
            if (original.device() != device || original.layout() != at::kStrided) continue;
            guard.recordDataPtrOnStream(original.storage().data_ptr(), stream);
        }
    }
    return streams;
}

at::Tensor Staging::original(const at::Tensor& host) const {
    const auto found = std::ranges::find_if(written_, [&](const auto& pair) { return pair.second.is_same(host); });
    return found == written_.end() ? host : found->first;
}

// ---- StagedWork

namespace {

std::vector<Tensors> originals(std::vector<Tensors> outputs, const std::vector<std::shared_ptr<Staging>>& stagings) {
    for (Tensors& list : outputs) {
        for (at::Tensor& tensor : list) {
            for (const auto& staging : stagings) {
                at::Tensor original = staging->original(tensor);
                if (original.is_same(tensor)) continue;
                tensor = std::move(original);
                break;
            }
        }
    }
    return outputs;
}

std::vector<c10::Device> devices_of(const std::vector<std::shared_ptr<Staging>>& stagings) {
    std::vector<c10::Device> all;
    for (const auto& staging : stagings) {
        for (const c10::Device& device : staging->devices()) {
            if (std::ranges::find(all, device) == all.end()) all.push_back(device);
        }
    }
    return all;
}

}  // namespace

StagedWork::StagedWork(c10::intrusive_ptr<TorchWork> host, std::vector<std::shared_ptr<Staging>> stagings)
    : c10d::Work(-1, host->retrieveOpType()),
      host_(std::move(host)),
      outputs_(originals(host_->outputs(), stagings)),
      future_(c10::make_intrusive<c10::ivalue::Future>(type_of(outputs_), devices_of(stagings))) {
    auto finish = [stagings = std::move(stagings), future = future_, outputs = outputs_](c10::ivalue::Future& done) {
        if (done.hasError()) return future->setError(done.exception_ptr());
        try {
            std::vector<c10::Stream> streams;
            for (const auto& staging : stagings) {
                for (const c10::Stream& stream : staging->streams_of_their_own()) {
                    const auto same = [&](const c10::Stream& one) { return one.device() == stream.device(); };
                    if (std::ranges::none_of(streams, same)) streams.push_back(stream);
                }
            }
            const c10::MultiStreamGuard guard(streams);
            for (const auto& staging : stagings) staging->copy_back();
            future->markCompleted(value_of(outputs));
        } catch (...) {
            future->setErrorIfNeeded(std::current_exception());
        }
    };
    host_->getFuture()->addCallback(std::move(finish));
}

bool StagedWork::isCompleted() {
    return future_->completed();
}
bool StagedWork::isSuccess() const {
    return future_->completed() && !future_->hasError();
}
std::exception_ptr StagedWork::exception() const {
    return future_->completed() && future_->hasError() ? future_->exception_ptr() : nullptr;
}
int StagedWork::sourceRank() const {
    return host_->sourceRank();
}
std::vector<at::Tensor> StagedWork::result() {
    TORCH_CHECK(isCompleted(),
                "Work needs to be completed before calling result(). Should call wait() before result().");
    TORCH_CHECK(outputs_.size() <= 1, "work result does not support list of lists, use .getFuture() and value()");
    return outputs_.empty() ? Tensors() : outputs_.front();
}
void StagedWork::synchronize() {
    wait();
}
bool StagedWork::wait(std::chrono::milliseconds timeout) {
    host_->wait(timeout);
    future_->waitAndThrow();  // also makes the current streams wait for the copies
    return true;
}
void StagedWork::abort() {
    host_->abort();
}
c10::intrusive_ptr<c10::ivalue::Future> StagedWork::getFuture() {
    return future_;
}
c10::intrusive_ptr<c10::ivalue::Future> StagedWork::getFutureResult() {
    return host_->getFutureResult();
}
std::uint64_t StagedWork::getSequencenumber() const {
    return host_->getSequencenumber();
}

}  // namespace tutti::torch
