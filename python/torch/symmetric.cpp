// Tensors in memory that all ranks of a host map.
#include "failure.hpp"
#include "process_group.hpp"

#include <ATen/ATen.h>

#include <tutti/symmetric.hpp>

namespace tutti::torch {

at::Tensor ProcessGroupTutti::empty_symmetric(const std::vector<std::int64_t>& sizes, at::ScalarType type) {
    for (const std::int64_t size : sizes) {
        TORCH_CHECK_VALUE(size >= 0, "empty_symmetric: size is ", at::IntArrayRef(sizes),
                          "; expected no negative number");
    }
    const at::Tensor like = at::empty({0}, type);
    const DType dtype = view_of(like, "empty_symmetric", "dtype").dtype();
    tutti::Tensor memory =
        translating([&] { return tutti::empty_symmetric(dtype, Extents(std::span(sizes)), {.group = group()}); });
    void* data = TensorView(memory).data();
    return at::from_blob(
        data, sizes, [memory = std::move(memory)](void*) mutable { memory = tutti::Tensor(); }, like.options());
}

}  // namespace tutti::torch
