// ProcessGroupTutti: a c10d::Backend whose ranks communicate through a tutti world of their own.
//
// One object serves one group of PyTorch's on one rank. Operations follow ProcessGroupGloo's, and where gloo has none
// ProcessGroupNCCL's; argument errors have gloo's words. An operation whose options say asyncOp = false is done when
// its call returns, without a Work.
//
// Threads: any, one after the other, as for tutti's groups; each thread coalesces its own calls. PyTorch calls all
// methods without the GIL.
#pragma once

#include "failure.hpp"
#include "pieces.hpp"
#include "quantized.hpp"
#include "recorder.hpp"
#include "tensors.hpp"
#include "work.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <tutti/tutti.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class ProcessGroupTutti : public c10d::Backend {
 public:
    struct Options : c10d::Backend::Options {
        explicit Options(std::chrono::milliseconds limit = kBackendDefaultTimeout, const std::string& name = "tutti")
            : c10d::Backend::Options(name, limit) {}
        Options(const c10d::Backend::Options& other, const std::string& name);
        c10::intrusive_ptr<c10d::Backend::Options> clone() const { return c10::make_intrusive<Options>(*this); }

        // At the place that they have in gloo's options: DistributedDataParallel's logger casts a group named "gloo" to
        // ProcessGroupGloo, unchecked, and reads the number of threads.
        std::vector<std::shared_ptr<void>> devices;
        int threads = 2;
        /// The program's list of gloo's devices, in Python; null: none. Nobody uses it.
        std::shared_ptr<void> devices_of_gloo;

        TransportKind transport = TransportKind::automatic;
        Determinism determinism = Determinism::fast;
        std::string listen_host;  ///< address to listen on; empty: TUTTI_HOST, else the one that reaches the store
    };

    /// Joins: returns when all `size` ranks have joined. Throws c10::DistStoreError that lists the ranks that did not
    /// come. With options->enable_reconfigure it joins nobody; reconfigure() does.
    ProcessGroupTutti(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                      c10::intrusive_ptr<Options> options);
    ~ProcessGroupTutti() override;

    const std::string getBackendName() const override { return options_->backend; }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
    const c10::intrusive_ptr<Options>& options() const noexcept { return options_; }
    bool supportsSplitting() const override { return true; }
    /// False, as gloo's. If it is true, PyTorch's batch_isend_irecv opens a coalescing scope, which also collects other
    /// threads' calls of the group, and has one Work for all operations. startCoalescing() works all the same.
    bool supportsCoalescing() const override { return false; }
    void setTimeout(std::chrono::milliseconds timeout) override;
    std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
    void setSequenceNumberForGroup() override {}
    /// The error of the first failed operation, also of one that nobody waits for.
    c10d::ErrorType getError() override;
    /// Makes a group of `ranks`; null on the others. `store` is for this group alone.
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                            const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
                                            const int& size) override;
    void abort() override;
    void shutdown() override;
    // Virtual in the base since 2.14; before that nothing calls them.
    /// Calls `hook` at a failure in the group, once, before abort() ends it, on the thread that notices.
    void registerAbortHook(std::int64_t id, std::function<void()> hook) { failures_.add_hook(id, std::move(hook)); }
    void unregisterAbortHook(std::int64_t id) { failures_.remove_hook(id); }
    bool supportsAbortHooks() const { return true; }
    /// Ignored, with a warning, as by gloo.
    void addEphemeralTimeout(const std::chrono::milliseconds& timeout);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override {
        return true;
    }
    /// "tutti:RANK:UUID:NONCE": the rank among all, the last reconfigure (-1: none), and a nonce that tells this object
    /// apart.
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    /// Makes the group anew, of the ranks of the given handles: all of them call it, and it returns when all have.
    /// A set has the order of the ranks among all. The group stays as it is if this fails; it leaves ranks that are not
    /// in the new one.
    WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
    /// Refused.
    c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override;
#endif
    /// Leaves every group of this process, before the interpreter ends: continuations in Python could not run later.
    /// Waits at most two seconds for operations under way, then ends them.
    static void leave_all();
    void eagerConnectSingleDevice(at::Device) override {}
    void enableCollectivesTiming() override {}
    /// Collects this thread's calls up to endCoalescing(), which launches them together, with one Work.
    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
    WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
    WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
    WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
    WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
    WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& options) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) override;
    WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
    WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
    WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ReduceScatterOptions& options) override;
    WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& options) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                            const c10d::ReduceScatterOptions& options) override;
    WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                          std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
    WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
    // Later versions have more names for the same, which lead to the ones above, and this one:
    WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options);

    /// A new tensor of zeros whose storage is symmetric memory; see tutti/symmetric.hpp. All ranks of the group call
    /// it.
    at::Tensor empty_symmetric(const std::vector<std::int64_t>& sizes, at::ScalarType type);

    /// quantized_all_reduce, quantized_reduce_scatter or quantized_all_gather: tutti/quantized.hpp.
    WorkPtr quantized(const std::string& operation, at::Tensor output, at::Tensor input, const Quantization& how,
                      bool async_op);
    /// quantized_all_reduce with the losses of earlier calls.
    WorkPtr quantized_by(TorchQuantizedReducer& reducer, at::Tensor tensor, std::int64_t bucket, bool async_op);
    /// See ProcessGroup::predicted_us.
    double predicted_us(const std::string& collective, std::uint64_t bytes) const {
        return translating([&] { return group().predicted_us(collective, bytes); });
    }

    /// A piece of a compiled graph's communication (pieces.hpp). Blocks. Throws as the piece's collectives do.
    void replay(const std::string& program, Tensors written, Tensors read);
    /// The pieces that it has replayed.
    std::vector<Pieces::Told> pieces() const {
        return pieces_->tell();
    }

    WorkPtr send(Tensors& tensors, int destination, int tag) override;
    WorkPtr recv(Tensors& tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors& tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions& options) override;
    void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 private:
    /// Throws if reconfigure() has yet to make it.
    const ProcessGroup& group() const {
        if (!group_) [[unlikely]]
            refuse_for_want_of_ranks();
        return group_;
    }
    [[noreturn]] void refuse_for_want_of_ranks() const;
    /// A world of these ranks, which meet in `store`.
    ProcessGroup join(const c10::intrusive_ptr<c10d::Store>& store, int rank, const std::vector<std::uint64_t>& members,
                      int size, std::chrono::milliseconds limit) const;
    /// The options of a group that is made of this one.
    c10::intrusive_ptr<Options> options_of_another(const c10::intrusive_ptr<c10d::Backend::Options>& given) const;
    static void leave(std::vector<ProcessGroup> groups, const std::string& why,
                      std::chrono::steady_clock::time_point end);

    /// The common facts of the operations.
    struct Call {
        const char* operation;  ///< tutti's name of it
        c10d::OpType type;
        bool async_op;
        std::chrono::milliseconds timeout;
        bool counted = true;  ///< collectives are numbered, messages are not
        int peer = -1;        ///< of messages; -1: any
        Recorder::Splits splits{};
    };
    struct Kept {
        std::vector<Tensors> outputs;
        Tensors inputs;
    };
    struct Coalesced;

    /// Carries out one operation: now, later, or together with others, as the call says. `keep()` gives the tensors
    /// that the operation uses, for the Work.
    template <class Blocking, class Asynchronous, class Keep>
    WorkPtr issue(const Call& call, Blocking blocking, Asynchronous asynchronous, Keep keep);
    /// The same of a function of tutti's table (issue.hpp).
    template <class Function, class Theirs, class Ours, class Keep, class... Arguments>
    WorkPtr run(const Function& function, const Theirs& theirs, const Ours& ours, Keep keep,
                const Arguments&... arguments);
    template <class Function, class Ours, class Keep, class... Arguments>
    WorkPtr run_as(const Call& call, const Function& function, const Ours& ours, Keep keep,
                   const Arguments&... arguments);
    template <class Function, class Theirs, class Ours>
    static Call call_of(const Function& function, const Theirs& theirs, const Ours& ours);
    template <class Outputs, class Inputs>
    static auto keep(const Outputs& outputs, const Inputs& inputs);
    template <class Operation>
    WorkPtr stage(Operation operation);
    template <class Written, class Operation>
    WorkPtr on_host(Written& tensors, Operation operation);
    template <class Written, class Read, class Operation>
    WorkPtr on_host(Written& outputs, Read& inputs, Operation operation);
    /// The calls that this thread collects; null: none.
    Coalesced* coalesced() const;
    std::unique_ptr<Coalesced> take_coalesced();
    WorkFacts facts_of(const Call& call);
    std::uint64_t record(const Call& call, const WorkFacts& facts, const Kept& kept);
    /// The Work of an operation that ran within its call.
    WorkPtr finished(const Call& call, std::vector<Tensors> outputs);
    WorkPtr allreduce_several(const Call& call, Tensors& tensors, ReduceOp op);
    WorkPtr allgather_several(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options);
    std::chrono::milliseconds timeout_of(std::chrono::milliseconds timeout) const {
        return timeout < std::chrono::milliseconds::zero() ? std::chrono::milliseconds::zero() : timeout;
    }
    [[noreturn]] void refuse(const char* operation, const std::string& message) const;
    /// For calls that take several operations, or more than tutti's own: refuses them between startCoalescing and
    /// endCoalescing.
    void check_not_coalesced(const char* operation) const;
    void check_rank(const char* operation, const char* argument, int rank) const;
    void drop_coalesced() noexcept;
    WorkPtr receive(Tensors& tensors, std::optional<int> source, int tag, c10d::OpType type);

    std::shared_ptr<void> before_options_;  // the options stand where ProcessGroupGloo has its own; see Options
    c10::intrusive_ptr<Options> options_;
    c10::intrusive_ptr<c10d::Store> store_;
    ProcessGroup group_;
    std::string nonce_;             // in the handle for reconfigure()
    std::int64_t generation_ = -1;  // the uuid of the last reconfigure()
    std::atomic<std::uint64_t> sequence_{0};
    Failures failures_;
    std::shared_ptr<Pieces> pieces_ = std::make_shared<Pieces>();  // a replay under way keeps it
    std::size_t recorded_as_ = 0;                                  // the flight recorder's number of this group
    std::atomic<std::uint64_t> messages_{0};
    mutable std::mutex coalescing_mutex_;
    std::map<std::thread::id, std::unique_ptr<Coalesced>> coalesced_;  // by the thread that collects
    std::atomic<std::size_t> collecting_{0};                           // how many there are
};

}  // namespace tutti::torch
