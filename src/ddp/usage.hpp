// Usage: which parameters the backward passes have used since gradients were averaged last, here and on all ranks, and
// what this rank keeps of those that it has left out.
//
// A parameter without a gradient counts as zeros in the average. If another rank has used it, the average is its
// gradient on every rank; if no rank has, each rank's gradient stays as it was.
//
// Threads: one at a time.
#pragma once

#include "core/assert.hpp"

#include <tutti/process_group.hpp>
#include <tutti/tensor.hpp>
#include <tutti/work.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::ddp {

class Usage {
 public:
    /// A parameter that this rank has not used.
    struct LeftOut {
        std::size_t parameter = 0;
        Tensor kept{};  ///< its gradient as it was; empty: leave_out() was not to keep it
    };
    enum class Shared { yes, no };
    enum class Keep { yes, no };

    /// `shared`: whether ranks may differ, so that they have to tell each other (find_unused_parameters).
    Usage(std::size_t parameters, Shared shared);
    /// A collective that send() has begun keeps its buffer until it is over.
    ~Usage();
    Usage(const Usage&) = delete;
    Usage& operator=(const Usage&) = delete;

    void begin_iteration() { left_out_.clear(); }
    void note(std::size_t parameter) {
        TUTTI_ASSERT(parameter < here_.size());
        here_[parameter] = 1;
    }
    bool is_used_here(std::size_t parameter) const {
        TUTTI_ASSERT(parameter < here_.size());
        return here_[parameter] != 0;
    }
    /// Puts zeros to `place`, which is in host memory; `keep`: a copy of what was there stays in left_out().
    void leave_out(std::size_t parameter, const TensorView& place, Keep keep);
    /// Those of this iteration.
    const std::vector<LeftOut>& left_out() const noexcept { return left_out_; }

    /// Tells all ranks, if they have to know; a collective call of the group. The parameters' averages come before it.
    void send(const ProcessGroup& group);
    /// Waits for what send() began, and throws its errors. False: nothing was sent.
    bool receive();
    /// After receive(): whether any rank has used it.
    bool is_used_anywhere(std::size_t parameter) const {
        TUTTI_ASSERT(everywhere_.has_value() && parameter < here_.size());
        return everywhere_->span<std::int32_t>()[parameter] != 0;
    }
    /// Gradients are averaged: counts anew.
    void clear();

 private:
    std::vector<std::int32_t> here_;    // by parameter
    std::optional<Tensor> everywhere_;  // the largest of all ranks, where they need to know
    std::optional<Work> work_;
    std::vector<LeftOut> left_out_;
};

}  // namespace tutti::ddp
