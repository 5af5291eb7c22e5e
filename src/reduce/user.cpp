#include "reduce/user.hpp"

#include "core/assert.hpp"
#include "core/biased_mutex.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace tutti::kernels {
namespace {

using detail::UserOperator;

// Two of them fit the first-level cache.
constexpr std::size_t usual_block_bytes = 8192;
constexpr std::size_t usual_alignment = 64;

bool is_aligned(const void* at, std::size_t alignment) {
    return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
}

// inout = in op inout.
void apply(const UserOperator& op, const void* in, void* inout, std::size_t count) {
    TUTTI_ASSERT(is_aligned(in, op.parts().alignment) && is_aligned(inout, op.parts().alignment));
    const auto fail = [&](const char* why) {
        throw OperatorFailed(fmt::format("{} has failed: {}", op.to_string(), why));
    };
    try {
        const BiasedMutex::UsersCode scope;
        op.parts().function(in, inout, count, op.parts().context);
    } catch (const std::exception& error) {
        fail(error.what());
    } catch (const abi::__forced_unwind&) {  // the thread ends
        throw;
    } catch (...) {
        fail("it has thrown an object that is no std::exception");
    }
}

/// Room for two blocks, aligned for any element.
class Blocks {
 public:
    Blocks(std::size_t block_bytes, std::size_t alignment)
        : alignment_(std::max(alignment, usual_alignment)),
          block_bytes_((block_bytes + alignment_ - 1) / alignment_ * alignment_) {
        if (2 * block_bytes_ > sizeof few_ || alignment_ > usual_alignment)
            many_ = static_cast<std::byte*>(::operator new(2 * block_bytes_, std::align_val_t(alignment_)));
    }
    ~Blocks() {
        if (many_ != nullptr) ::operator delete(many_, std::align_val_t(alignment_));
    }
    Blocks(const Blocks&) = delete;
    Blocks& operator=(const Blocks&) = delete;
    std::byte* operator[](std::size_t i) noexcept { return (many_ != nullptr ? many_ : few_) + i * block_bytes_; }

 private:
    const std::size_t alignment_, block_bytes_;
    std::byte* many_ = nullptr;
    alignas(usual_alignment) std::byte few_[2 * usual_block_bytes];
};

// One block: `at` are the inputs'.
void combine_block(const UserOperator& op, std::byte* dst, std::span<const std::byte* const> at, std::size_t count,
                   Blocks& blocks) {
    TUTTI_ASSERT(at.size() > 1);
    const std::size_t bytes = count * op.parts().element_bytes, alignment = op.parts().alignment;
    const std::byte* left = at[0];
    std::size_t free = 0;  // the block that does not hold `left`
    // The result goes where it is wanted with the last input: no input is needed after that.
    const bool is_direct = is_aligned(dst, alignment);
    if (!is_aligned(left, alignment) || (is_direct && left == dst)) {
        std::memcpy(blocks[0], left, bytes);
        left = blocks[0];
        free = 1;
    }
    for (std::size_t i = 1; i < at.size(); ++i) {
        std::byte* const right = is_direct && i + 1 == at.size() ? dst : blocks[free];
        if (right != at[i]) std::memcpy(right, at[i], bytes);
        apply(op, left, right, count);
        left = right;
        free = 1 - free;
    }
    if (left != dst) std::memcpy(dst, left, bytes);
}

}  // namespace

void combine_by_user(const UserOperator& op, void* dst, std::span<const void* const> inputs,
                     std::size_t element_count) {
    TUTTI_ASSERT(!inputs.empty() && (element_count == 0 || dst != nullptr));
    if (element_count == 0) return;
    const std::size_t element_bytes = op.parts().element_bytes;
    if (inputs.size() == 1) {
        if (dst != inputs[0]) std::memcpy(dst, inputs[0], element_count * element_bytes);
        return;
    }
    const std::size_t wanted = op.parts().block_bytes > 0 ? op.parts().block_bytes : usual_block_bytes;
    const std::size_t block = std::min(element_count, std::max<std::size_t>(1, wanted / element_bytes));
    Blocks blocks(block * element_bytes, op.parts().alignment);
    std::vector<const std::byte*> at(inputs.size());
    for (std::size_t done = 0; done < element_count; done += block) {
        const std::size_t offset = done * element_bytes;
        std::ranges::transform(inputs, at.begin(),
                               [&](const void* input) { return static_cast<const std::byte*>(input) + offset; });
        combine_block(op, static_cast<std::byte*>(dst) + offset, at, std::min(block, element_count - done), blocks);
    }
}

}  // namespace tutti::kernels
