// Task: one collective as copies in a stream and calls of the library. Its calls come in units whose count is equal on
// all ranks, so that all can cut a long group at the same places.
//
// Threads: the caller's.
#pragma once

#include "nccl/driver.hpp"
#include "nccl/meeting.hpp"
#include "nccl/plan.hpp"

#include <tutti/backend.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::nccl {

class Communicator;

class Task {
 public:
    /// The most calls of a unit.
    static constexpr int calls_of_a_unit = 2;

    /// `reduction`: for collectives that combine values.
    Task(const BackendRequest& request, int rank, int size, const std::optional<NativeReduction>& reduction,
         const Agreement& agreed);

    /// Device memory that it needs from prepare() to finish().
    std::size_t scratch_bytes() const { return scratch_bytes_; }
    /// Copies before the calls. `scratch`: where it is.
    void prepare(const Driver& driver, Driver::StreamHandle stream, std::byte* scratch);
    int units() const { return units_; }
    /// Its only unit is one call.
    bool is_one_call() const { return units_ == 1 && !is_pairs(); }
    /// The library's own function for it, on the caller's memory.
    bool is_native() const { return is_one_call() && !packs_ && form_ != Form::barrier; }
    /// Makes the calls of a unit. Returns the worst of their results; call() names that call.
    Result issue(int unit, const Interface& calls, Comm comm, Driver::StreamHandle stream);
    const char* call() const { return call_; }
    /// Copies after the calls.
    void finish(const Driver& driver, Driver::StreamHandle stream) const;

    /// The operator for a premul_sum's factor.
    bool needs_operator() const { return reduction_ && reduction_->premultiplied; }
    void make_operator(const Communicator& communicator, const std::string& what);
    void drop_operator(const Communicator& communicator) noexcept;

    const BackendRequest& request() const { return *request_; }

 private:
    enum class Form {
        all_reduce,
        broadcast,
        reduce,
        all_gather,             // blocks of one length
        all_gather_blocks,      // each rank's block to every other
        reduce_scatter,         // blocks of one length
        reduce_scatter_blocks,  // each by a reduce of its own
        all_to_all,             // as with blocks
        gather,
        gather_blocks,
        scatter,
        scatter_blocks,
        barrier,
    };

    bool is_pairs() const {
        return form_ == Form::all_gather_blocks || form_ == Form::all_to_all || form_ == Form::gather_blocks ||
               form_ == Form::scatter_blocks;
    }
    void plan_one(Form form);
    void plan_gathering(bool native, Form one, Form blocks, bool adjoin);
    void plan_exchange();
    void plan_blocks(Form one, Form blocks, bool adjoin);
    Result note(Result result, const char* call);
    Result send(const Interface& calls, const void* data, std::uint64_t elements, int peer, Comm comm,
                Driver::StreamHandle stream);
    Result receive(const Interface& calls, void* data, std::uint64_t elements, int peer, Comm comm,
                   Driver::StreamHandle stream);
    Result issue_pair(int unit, const Interface& calls, Comm comm, Driver::StreamHandle stream);
    Result issue_reduce_of_block(int owner, const Interface& calls, Comm comm, Driver::StreamHandle stream);

    const std::byte* input_block(int rank) const;
    std::byte* output_block(int rank) const;
    std::uint64_t count_of(int rank) const;
    std::uint64_t offset_of(int rank) const;
    std::size_t bytes(std::uint64_t elements) const { return elements * element_; }
    std::uint64_t numbers(std::uint64_t elements) const { return elements * reduction_->parts; }
    ReduceOpHandle op() const { return operator_ ? *operator_ : static_cast<ReduceOpHandle>(reduction_->op); }

    const BackendRequest* request_;
    int rank_, size_;
    std::size_t element_;
    std::optional<NativeReduction> reduction_;
    std::optional<ReduceOpHandle> operator_;
    Form form_ = Form::barrier;
    int units_ = 1;
    std::uint64_t block_ = 0;  // elements of a block in the calls, or in the scratch
    bool packs_ = false;       // its blocks go through the scratch
    std::size_t scratch_bytes_ = 0;
    std::byte* scratch_ = nullptr;
    const char* call_ = "";
};

}  // namespace tutti::nccl
