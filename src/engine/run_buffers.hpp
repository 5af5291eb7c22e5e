// RunBuffers: where the chunks of a schedule lie in one run of it: in the caller's input and output, and in scratch
// buffers, which lie one after the other in memory that later runs reuse.
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"
#include "schedule/schedule.hpp"
#include "tensor/user_operator.hpp"

#include <tutti/reduce_op.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::engine {

/// The parameters of a quantised call that may differ between ranks, unlike its schedule. The memory is the caller's.
struct Coding {
    std::optional<float> scale{};         ///< for all blocks (Step::given)
    std::optional<std::uint64_t> seed{};  ///< if set: stochastic rounding, with this seed
    /// The rounding errors of earlier calls, which this call adds to the values that it rounds, and replaces by its own
    /// errors. Null, or one for each element of the input, and of this rank's slice.
    float* residual = nullptr;
    float* result_residual = nullptr;
    std::uint64_t first_result = 0;  ///< number of the first element of this rank's slice
};

/// The call that a schedule is run for. The buffers are the caller's, who keeps them in place.
struct Operands {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    DType dtype = DType::uint8;
    ReduceOp::Kind op = ReduceOp::Kind::sum;
    const tutti::detail::UserOperator* user = nullptr;  ///< an operator of the caller, who keeps it
    std::uint64_t divisor = 1;
    std::uint64_t channel = 0;
    std::uint64_t fingerprint = 0;
    const Coding* coding = nullptr;  ///< set for a quantised call; owned by the caller
    std::size_t element_bytes() const noexcept {
        return user == nullptr ? size_of(dtype) : user->parts().element_bytes;
    }
};

class RunBuffers {
 public:
    /// Places the chunks of this schedule in the buffers of this call.
    void place(const schedule::Schedule& schedule, const Operands& operands);

    /// A row of the schedule's table of buffers, in this run.
    struct Place {
        std::byte* base = nullptr;
        std::size_t element_bytes = 0;
        DType dtype = DType::uint8;
        std::optional<schedule::CodeForm> codes{};
    };
    const Place& place_of(const schedule::Chunk& chunk) const {
        TUTTI_ASSERT(schedule::row(chunk.buffer) < places_.size());
        return places_[schedule::row(chunk.buffer)];
    }
    std::byte* address(const schedule::Chunk& chunk) const {
        TUTTI_ASSERT(chunk.count == 0 || place_of(chunk).base != nullptr);
        TUTTI_ASSERT(!place_of(chunk).codes || chunk.offset % place_of(chunk).codes->block == 0);
        const Place& place = place_of(chunk);
        return place.base + (place.codes ? place.codes->place(chunk.offset) : chunk.offset * place.element_bytes);
    }
    std::size_t bytes(const schedule::Chunk& chunk) const {
        const Place& place = place_of(chunk);
        return place.codes ? place.codes->bytes(chunk.count) : chunk.count * place.element_bytes;
    }

 private:
    std::vector<Place> places_;  // by schedule::Buffer
    std::unique_ptr<std::byte[]> scratch_;
    std::size_t scratch_bytes_ = 0;
};

}  // namespace tutti::engine
