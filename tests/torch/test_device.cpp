// A device for tests of staging where there is no GPU: PyTorch's "PrivateUse1", with its memory on the heap. It has
// streams and events like a GPU's, which only count. A tensor on it is not in host memory as far as PyTorch and tutti
// can tell; every computation on it is done by copying to the CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>

namespace {

constexpr c10::DeviceType device_type = c10::DeviceType::PrivateUse1;
std::atomic<int> side_stream_copies{0};
std::atomic<int> waits_for_events{0};
thread_local c10::StreamId current_stream = 0;

struct Memory final : c10::Allocator {
    c10::DataPtr allocate(std::size_t bytes) override {
        void* data = bytes ? std::malloc(bytes) : nullptr;
        return {data, data, &std::free, c10::Device(device_type, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
Memory memory;

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return device_type; }
    c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
    c10::Device getDevice() const override { return {device_type, 0}; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::Stream getStream(c10::Device device) const override { return stream(device, current_stream); }
    c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream(device, 7); }
    c10::Stream exchangeStream(c10::Stream next) const override {
        return stream(next.device(), std::exchange(current_stream, next.id()));
    }
    void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
    void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
        *event = &memory;
    }
    void block(void*, const c10::Stream&) const override { ++waits_for_events; }
    bool queryEvent(void*) const override { return true; }
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
    static c10::Stream stream(c10::Device device, c10::StreamId id) {
        return c10::Stream(c10::Stream::UNSAFE, c10::Device(device.type(), 0), id);
    }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
    return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
    return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
}
at::Tensor on_host(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return tensor;
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
    if (to.is_privateuseone() && current_stream != 0) ++side_stream_copies;
    on_host(to).copy_(on_host(from));
    return to;
}
void on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
    at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", &empty);
    m.impl("empty_strided", &empty_strided);
    m.impl("_copy_from", &copy_from);
    m.impl("as_strided", &at::native::as_strided_tensorimpl);
    m.impl("view", &at::native::view);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}
const bool allocator_is_set = [] {
    c10::SetAllocator(device_type, &memory);
    return true;
}();

}  // namespace

extern "C" int tutti_test_side_stream_copies() {
    return side_stream_copies;
}
extern "C" int tutti_test_waits_for_events() {
    return waits_for_events;
}
