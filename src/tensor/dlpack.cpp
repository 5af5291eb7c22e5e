// Tensors across DLPack, the exchange format of array libraries.
#include "core/assert.hpp"

#include <tutti/error.hpp>
#include <tutti/tensor.hpp>

#include <dlpack/dlpack.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

namespace tutti {
namespace {

// Type codes that newer headers name and Debian's does not.
constexpr std::uint8_t code_bool = 6;
constexpr std::uint8_t code_float8_e4m3fn = 10;
constexpr std::uint8_t code_float8_e5m2 = 12;

DLDataType to_dl(DType dtype) {
    const auto bits = static_cast<std::uint8_t>(size_of(dtype) * 8);
    TUTTI_ASSERT(bits >= 8);
    std::uint8_t code = kDLFloat;
    if (dtype == DType::boolean)
        code = code_bool;
    else if (dtype >= DType::uint8 && dtype <= DType::uint64)
        code = kDLUInt;
    else if (dtype >= DType::int8 && dtype <= DType::int64)
        code = kDLInt;
    else if (dtype == DType::bfloat16)
        code = kDLBfloat;
    else if (is_complex(dtype))
        code = kDLComplex;
    else if (dtype == DType::float8_e4m3fn)
        code = code_float8_e4m3fn;
    else if (dtype == DType::float8_e5m2)
        code = code_float8_e5m2;
    return {code, bits, 1};
}

std::optional<DType> from_dl(DLDataType type) {
    if (type.lanes != 1) return std::nullopt;
    for (int i = 0; i < dtype_count; ++i) {
        const DLDataType candidate = to_dl(static_cast<DType>(i));
        if (candidate.code == type.code && candidate.bits == type.bits) return static_cast<DType>(i);
    }
    return std::nullopt;
}

// DLPack's numbers of devices; the header of DLPack 0.6 does not name oneAPI's.
std::optional<Device::Type> device_type_from_dl(int type) {
    constexpr int one_api = 14;
    switch (type) {
        case kDLCPU:
        case kDLCUDAHost:
        case kDLROCMHost: return Device::Type::cpu;
        case kDLCUDA:
        case kDLCUDAManaged: return Device::Type::cuda;
        case kDLROCM: return Device::Type::rocm;
        case kDLExtDev: return Device::Type::npu;
        case one_api: return Device::Type::xpu;
        default: return std::nullopt;
    }
}

// The objects that an exported tensor keeps alive.
struct Export {
    Tensor tensor;
    std::vector<std::int64_t> shape;
    DLManagedTensor managed{};
};

}  // namespace

Tensor Tensor::from_dlpack(DLManagedTensor* tensor) {
    if (tensor == nullptr) throw InvalidArgument("from_dlpack: tensor is null");
    const DLTensor& dl = tensor->dl_tensor;
    const auto type = device_type_from_dl(static_cast<int>(dl.device.device_type));
    if (!type) {
        throw InvalidArgument(
            fmt::format("from_dlpack: device type {}: expected host memory (1, 3, 11), CUDA (2, 13), ROCm (10), Ascend "
                        "(12) or oneAPI (14)",
                        static_cast<int>(dl.device.device_type)));
    }
    const auto dtype = from_dl(dl.dtype);
    if (!dtype) {
        throw InvalidArgument(
            fmt::format("from_dlpack: type code {} with {} bits and {} lanes is not an element type "
                        "of tutti",
                        dl.dtype.code, dl.dtype.bits, dl.dtype.lanes));
    }
    if (dl.ndim < 0) throw InvalidArgument(fmt::format("from_dlpack: ndim {}: expected 0 or more", dl.ndim));
    const auto dimensions = static_cast<std::size_t>(dl.ndim);
    Extents shape(std::span<const std::int64_t>(dl.shape, dimensions));
    Extents strides;
    if (dl.strides != nullptr) strides = Extents(std::span<const std::int64_t>(dl.strides, dimensions));
    const Device device{*type, *type == Device::Type::cpu ? 0 : dl.device.device_id};
    auto* const data = dl.data == nullptr ? nullptr : static_cast<std::byte*>(dl.data) + dl.byte_offset;
    TensorView view(data, std::move(shape), *dtype, std::move(strides), device);
    return {std::move(view), std::shared_ptr<void>(tensor, [](void* p) {
                auto* managed = static_cast<DLManagedTensor*>(p);
                TUTTI_ASSERT(managed != nullptr);
                if (managed->deleter != nullptr) managed->deleter(managed);
            })};
}

DLManagedTensor* Tensor::to_dlpack() const {
    auto exported = std::make_unique<Export>();
    exported->tensor = *this;
    exported->shape.assign(shape().begin(), shape().end());
    DLTensor& dl = exported->managed.dl_tensor;
    dl.data = raw_data();
    dl.device = {static_cast<DLDeviceType>(device().type), device().index};
    dl.ndim = static_cast<int>(exported->shape.size());
    dl.dtype = to_dl(dtype());
    dl.shape = exported->shape.data();
    if (!view_.contiguous()) dl.strides = const_cast<std::int64_t*>(exported->tensor.view_.strides().data());
    TUTTI_ASSERT(dl.ndim >= 0 && static_cast<std::size_t>(dl.ndim) == shape().size());
    TUTTI_ASSERT(view_.contiguous() || exported->tensor.view_.strides().size() == shape().size());
    exported->managed.manager_ctx = exported.get();
    exported->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Export*>(self->manager_ctx); };
    return &exported.release()->managed;
}

}  // namespace tutti
