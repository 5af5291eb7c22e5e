#include "tensors.hpp"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <optional>

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
namespace c10d {
using PreMulSumSupplement = NCCLPreMulSumSupplement;  // its name in PyTorch 2.12 and older
}
#endif

namespace tutti::torch {
namespace {

std::optional<DType> dtype_of_scalar(at::ScalarType type) {
    switch (type) {
        case at::kBool: return DType::boolean;
        case at::kByte: return DType::uint8;
        case at::kUInt16: return DType::uint16;
        case at::kUInt32: return DType::uint32;
        case at::kUInt64: return DType::uint64;
        case at::kChar: return DType::int8;
        case at::kShort: return DType::int16;
        case at::kInt: return DType::int32;
        case at::kLong: return DType::int64;
        case at::kHalf: return DType::float16;
        case at::kBFloat16: return DType::bfloat16;
        case at::kFloat: return DType::float32;
        case at::kDouble: return DType::float64;
        case at::kComplexFloat: return DType::complex64;
        case at::kComplexDouble: return DType::complex128;
        case at::kFloat8_e4m3fn: return DType::float8_e4m3fn;
        case at::kFloat8_e5m2: return DType::float8_e5m2;
        default: return std::nullopt;
    }
}

// The type for moves, which never look at values: any of the same size.
std::optional<DType> dtype_of_size(std::size_t bytes) {
    switch (bytes) {
        case 1: return DType::uint8;
        case 2: return DType::uint16;
        case 4: return DType::uint32;
        case 8: return DType::uint64;
        case 16: return DType::complex128;
        default: return std::nullopt;
    }
}

DType dtype_for(const at::Tensor& tensor, const char* operation, const char* argument, Use use) {
    std::optional<DType> dtype = dtype_of_scalar(tensor.scalar_type());
    if (!dtype && use == Use::moved) dtype = dtype_of_size(tensor.element_size());
    TORCH_CHECK(dtype, "tutti.", operation, ": Invalid scalar type: ", argument, " has dtype ", tensor.scalar_type(),
                ", which cannot be ", use == Use::moved ? "sent" : "reduced");
    return *dtype;
}

void check_place(const at::Tensor& tensor, const char* operation, const char* argument) {
    TORCH_CHECK(tensor.defined(), "tutti.", operation, ": ", argument,
                " is an undefined tensor; expected one with data");
    TORCH_CHECK(tensor.device().is_cpu(), "tutti.", operation, ": ", argument, " is on device ", tensor.device(),
                "; expected one with data, in host memory or on a device whose tensors can be copied there");
    TORCH_CHECK(tensor.layout() == at::kStrided, "tutti.", operation, ": ", argument, " has the layout ",
                tensor.layout(), "; expected a dense (strided) tensor; of sparse ones only all_reduce is defined");
    TORCH_CHECK(
        !tensor.is_conj() && !tensor.is_neg(), "tutti.", operation, ": ", argument,
        " is a lazily conjugated or negated view; expected one that is resolved (resolve_conj(), resolve_neg())");
}

}  // namespace

TensorView view_of(const at::Tensor& tensor, const char* operation, const char* argument, Use use) {
    check_place(tensor, operation, argument);
    const DType dtype = dtype_for(tensor, operation, argument, use);
    if (tensor.is_contiguous()) return TensorView(tensor.data_ptr(), Extents::of(tensor.numel()), dtype);
    return TensorView(tensor.data_ptr(), Extents(std::span(tensor.sizes().data(), tensor.sizes().size())), dtype,
                      Extents(std::span(tensor.strides().data(), tensor.strides().size())));
}

TensorView shaped_view_of(const at::Tensor& tensor, const char* operation, const char* argument) {
    check_place(tensor, operation, argument);
    const DType dtype = dtype_for(tensor, operation, argument, Use::moved);
    Extents strides;
    if (!tensor.is_contiguous()) strides = Extents(std::span(tensor.strides().data(), tensor.strides().size()));
    return TensorView(tensor.data_ptr(), Extents(std::span(tensor.sizes().data(), tensor.sizes().size())), dtype,
                      strides);
}

TensorList views_of(const Tensors& tensors, const char* operation, const char* argument, Use use) {
    TensorList views;
    views.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) views.push_back(view_of(tensor, operation, argument, use));
    return views;
}

ConstTensorList const_views_of(const Tensors& tensors, const char* operation, const char* argument, Use use) {
    ConstTensorList views;
    views.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) views.push_back(view_of(tensor, operation, argument, use));
    return views;
}

ReduceOp operator_of(const c10d::ReduceOp& op, const char* operation) {
    switch (op.op_) {
        case c10d::ReduceOp::SUM: return ReduceOp::sum;
        case c10d::ReduceOp::AVG: return ReduceOp::avg;
        case c10d::ReduceOp::PRODUCT: return ReduceOp::product;
        case c10d::ReduceOp::MIN: return ReduceOp::min;
        case c10d::ReduceOp::MAX: return ReduceOp::max;
        case c10d::ReduceOp::BAND: return ReduceOp::band;
        case c10d::ReduceOp::BOR: return ReduceOp::bor;
        case c10d::ReduceOp::BXOR: return ReduceOp::bxor;
        case c10d::ReduceOp::PREMUL_SUM: {
            const auto* factor = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
            TORCH_CHECK(factor, "tutti.", operation,
                        ": ReduceOp.PREMUL_SUM comes without its factor; expected one made by "
                        "torch.distributed._make_nccl_premul_sum");
            return ReduceOp::premul_sum(factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                                                        : factor->double_factor);
        }
        default: TORCH_CHECK(false, "tutti.", operation, ": unhandled ReduceOp number ", static_cast<int>(op.op_));
    }
}

void check_supported(ReduceOp op, const at::Tensor& tensor, const char* operation) {
    const DType dtype = dtype_for(tensor, operation, "tensor", Use::combined);
    TORCH_CHECK(is_supported(op.kind(), dtype), "tutti.", operation, ": Cannot use ReduceOp.", to_string(op.kind()),
                " with dtype ", tensor.scalar_type(), ": it is not defined for it");
}

}  // namespace tutti::torch
