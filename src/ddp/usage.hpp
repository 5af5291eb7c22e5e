// Usage: which parameters the backward passes have used since the last averaging of gradients, on this rank and on all
// ranks, and the former gradients of the parameters that this rank has left out.
//
// A rank that has not used a parameter contributes zeros to the average. If another rank has used the parameter, the
// average is its gradient on every rank; if no rank has, each rank's gradient stays as it was.
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
        Tensor kept{};  ///< its former gradient; empty: Keep::no
    };
    enum class Shared { yes, no };
    enum class Keep { yes, no };

    /// `shared`: whether ranks may use different parameters, and so must tell each other (find_unused_parameters).
    Usage(std::size_t parameters, Shared shared);
    /// A collective that send() has begun keeps its buffer until it is complete.
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
    /// Writes zeros to `place`, which is in host memory. `keep`: keeps a copy of the former values in left_out().
    void leave_out(std::size_t parameter, const TensorView& place, Keep keep);
    /// The parameters left out in this iteration.
    const std::vector<LeftOut>& left_out() const noexcept { return left_out_; }

    /// Starts the exchange of usage between all ranks, if it is shared; a collective call of the group, after the
    /// averages.
    void send(const ProcessGroup& group);
    /// Waits for the collective of send(), and throws its errors. False: nothing was sent.
    bool receive();
    /// After receive(): whether any rank has used the parameter.
    bool is_used_anywhere(std::size_t parameter) const {
        TUTTI_ASSERT(everywhere_.has_value() && parameter < here_.size());
        return everywhere_->span<std::int32_t>()[parameter] != 0;
    }
    /// Forgets all usage, after an averaging.
    void clear();

 private:
    std::vector<std::int32_t> here_;    // by parameter
    std::optional<Tensor> everywhere_;  // the maximum over all ranks, if shared
    std::optional<Work> work_;
    std::vector<LeftOut> left_out_;
};

}  // namespace tutti::ddp
