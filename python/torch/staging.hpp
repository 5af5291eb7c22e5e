// Tensors of other devices: operations are carried out on copies of them in host memory.
//
// Copies to the host are made on the stream that is current where the operation is called, and waited for: from then on
// the operation does not look at the device. The copies back of an asynchronous operation are made by the thread that
// completes it, on a stream of their own; its future has the devices, so who waits for it makes his current streams
// wait for the copies. Copies of CUDA tensors are in pinned memory.
#pragma once

#include "tensors.hpp"
#include "work.hpp"

#include <c10/core/Stream.h>

#include <memory>
#include <utility>
#include <vector>

namespace tutti::torch {

/// The host copies of one operation's tensors. Tensors that are in host memory already stand for themselves.
class Staging {
 public:
    enum class Fill { yes, no };

    static bool needed(const at::Tensor& tensor);
    static bool needed(const Tensors& tensors);
    static bool needed(const std::vector<Tensors>& lists);

    /// What is only read.
    at::Tensor in(const at::Tensor& tensor);
    Tensors in(const Tensors& tensors);
    std::vector<Tensors> in(const std::vector<Tensors>& lists);
    /// What is written, and copied back. Fill::no: all of it is written.
    at::Tensor out(const at::Tensor& tensor, Fill fill);
    Tensors out(const Tensors& tensors, Fill fill);
    std::vector<Tensors> out(const std::vector<Tensors>& lists, Fill fill);

    /// On the current streams.
    void copy_back();
    /// For each device one that is neither the default stream nor one of the program's; before copies back on it.
    std::vector<c10::Stream> streams_of_their_own();
    const std::vector<c10::Device>& devices() const noexcept { return devices_; }
    /// The tensor whose copy `host` is; itself if it is none.
    at::Tensor original(const at::Tensor& host) const;

 private:
    void add_device(const at::Tensor& tensor);

    std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // original, copy
    std::vector<c10::Device> devices_;
};

/// The Work of an operation on host copies: complete when they have been copied back.
class StagedWork : public c10d::Work {
 public:
    /// `stagings`: those of all operations that `host` stands for.
    StagedWork(c10::intrusive_ptr<TorchWork> host, std::vector<std::shared_ptr<Staging>> stagings);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void blockCurrentStream() override { synchronize(); }
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    std::uint64_t getSequencenumber() const override;

 private:
    c10::intrusive_ptr<TorchWork> host_;
    std::vector<Tensors> outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti::torch
