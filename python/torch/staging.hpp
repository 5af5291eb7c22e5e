// Tensors of other devices: operations run on copies of them in host memory.
//
// The call makes the copies to the host on its current stream and waits for them: from then on the operation does not
// look at the device. The thread that completes an asynchronous operation makes the copies back, on streams of their
// own; the future has the devices, so a thread that waits for it makes its current streams wait for the copies. Copies
// of CUDA tensors are in pinned memory.
#pragma once

#include "tensors.hpp"
#include "work.hpp"

#include <c10/core/Stream.h>

#include <memory>
#include <utility>
#include <vector>

namespace tutti::torch {

/// The host copies of one operation's tensors. A tensor in host memory stands for itself.
class Staging {
 public:
    enum class Fill { yes, no };

    static bool needed(const at::Tensor& tensor);
    static bool needed(const Tensors& tensors);
    static bool needed(const std::vector<Tensors>& lists);
    template <class Outputs, class Inputs>
    static bool needed(const Outputs& outputs, const Inputs& inputs) {
        return needed(outputs) || needed(inputs);
    }

    /// The copy of a tensor that the operation only reads.
    at::Tensor in(const at::Tensor& tensor);
    Tensors in(const Tensors& tensors);
    std::vector<Tensors> in(const std::vector<Tensors>& lists);
    /// The copy of a tensor that the operation writes; copy_back() returns it. Fill::no: the operation writes all of
    /// it.
    at::Tensor out(const at::Tensor& tensor, Fill fill);
    Tensors out(const Tensors& tensors, Fill fill);
    std::vector<Tensors> out(const std::vector<Tensors>& lists, Fill fill);

    /// Makes the copies back on the current streams.
    void copy_back();
    /// For each device a stream that is neither the default one nor the program's, for the copies back.
    std::vector<c10::Stream> streams_of_their_own();
    const std::vector<c10::Device>& devices() const noexcept { return devices_; }
    /// The tensor whose copy `host` is; `host` itself if it is no copy.
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
