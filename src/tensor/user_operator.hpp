// UserOperator: what all copies of an operator of the caller share (ReduceOp::of).
//
// Threads: any; it never changes. Its function may run on several threads at the same time.
#pragma once

#include <tutti/operator_function.hpp>
#include <tutti/reduce_op.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::detail {

class UserOperator {
 public:
    static constexpr std::size_t element_bytes_max = std::size_t{64} << 10;

    /// Throws InvalidArgument for a size that no element may have, or that does not fit the dtype.
    UserOperator(const OperatorParts& parts, const OperatorOptions& options);
    ~UserOperator();
    UserOperator(const UserOperator&) = delete;
    UserOperator& operator=(const UserOperator&) = delete;

    const OperatorParts& parts() const noexcept { return parts_; }
    const std::string& name() const noexcept { return name_; }
    bool commutative() const noexcept { return commutative_; }
    /// What ranks compare beside dtype and commutativity: a hash of element size and name.
    std::uint16_t digest() const noexcept { return digest_; }
    /// "operator \"argmin\" of 16-byte elements"; for messages.
    std::string to_string() const;

    void hold() const noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() const noexcept {
        if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

 private:
    const OperatorParts parts_;
    const std::string name_;
    const bool commutative_;
    const std::uint16_t digest_;
    mutable std::atomic<std::size_t> holders_{0};
};

/// to_string() of an operator that this process has made, by its digest; "an operator that this rank does not have" for
/// others. For messages.
std::string describe_operator(std::uint16_t digest);

}  // namespace tutti::detail
