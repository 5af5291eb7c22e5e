// The driver's functions about streams and events.
#include "driver.hpp"

#include <algorithm>

using namespace fake_cuda;

namespace {

constexpr unsigned non_blocking = 1;

int make_stream(CUstream* handle, unsigned flags, int priority, Device& device) {
    if (handle == nullptr || flags > non_blocking) return invalid_value;
    const auto kind = flags == non_blocking ? Stream::Kind::non_blocking : Stream::Kind::blocking;
    *handle = driver().streams.add(
        std::make_shared<Stream>(device, kind, std::clamp(priority, greatest_priority, least_priority)));
    return success;
}

// A kernel or a host function: goes into streams of the current device alone.
int launch(const Call& call, CUstream handle, CUhostFn function, void* argument) {
    if (call.error != success) return call.error;
    if (function == nullptr) return invalid_value;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream || &stream->device != call.device) return invalid_handle;
    return driver().enqueue(*stream, [function, argument] { function(argument); });
}

MarkerPtr recorded(const Event& event) {
    const std::lock_guard lock(driver().mutex);
    return event.recorded;
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    const Call call("cuStreamCreate", Needs::context);
    return call.error != success ? call.error : make_stream(stream, flags, least_priority, *call.device);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    const Call call("cuStreamCreateWithPriority", Needs::context);
    return call.error != success ? call.error : make_stream(stream, flags, priority, *call.device);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
    const Call call("cuStreamDestroy", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().streams.find(handle);
    if (!stream || !driver().streams.remove(handle)) return invalid_handle;
    const std::lock_guard lock(stream->device.mutex);
    if (stream->tail()) stream->device.departed.push_back(stream->tail());
    return success;
}

CUresult cuStreamSynchronize(CUstream handle) {
    const Call call("cuStreamSynchronize", Needs::context, Beside::no_capture);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    if (const int error = driver().captures.refuse(*stream); error != success) return error;
    driver().push(*stream, nullptr)->wait();
    return stream->device.error();
}

CUresult cuStreamQuery(CUstream handle) {
    const Call call("cuStreamQuery", Needs::context, Beside::no_capture);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    if (const int error = driver().captures.refuse(*stream); error != success) return error;
    if (stream->device.error() != success) return stream->device.error();
    const std::lock_guard lock(stream->device.mutex);
    return !stream->tail() || stream->tail()->reached() ? success : not_ready;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
    const Call call("cuStreamWaitEvent", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    const auto event = driver().events.find(event_handle);
    if (!stream || !event) return invalid_handle;
    int error = success;
    if (driver().captures.wait(*stream, *event, error)) return error;
    if (const MarkerPtr marker = recorded(*event)) driver().push(*stream, nullptr, marker);
    return success;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
    const Call call("cuStreamGetPriority", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    *priority = stream->priority;
    return success;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
    const Call call("cuStreamGetCtx", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    *context = stream->device.context();
    return success;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
    return launch(Call("cuLaunchHostFunc", Needs::context), stream, function, argument);
}

CUresult fakeCudaLaunch(CUstream stream, CUhostFn function, void* argument) {
    return launch(Call("fakeCudaLaunch", Needs::context), stream, function, argument);
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
    const Call call("cuEventCreate", Needs::context);
    if (call.error != success) return call.error;
    if (event == nullptr || flags > 7) return invalid_value;
    *event = driver().events.add(std::make_shared<Event>(*call.device));
    return success;
}

CUresult cuEventDestroy_v2(CUevent event) {
    const Call call("cuEventDestroy", Needs::context);
    if (call.error != success) return call.error;
    return driver().events.remove(event) ? success : invalid_handle;
}

CUresult cuEventRecord(CUevent event_handle, CUstream handle) {
    const Call call("cuEventRecord", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    const auto event = driver().events.find(event_handle);
    if (!stream || !event || &event->device != &stream->device) return invalid_handle;
    int error = success;
    const MarkerPtr marker =
        driver().captures.record(*stream, *event, error) ? nullptr : driver().push(*stream, nullptr);
    const std::lock_guard lock(driver().mutex);
    event->recorded = marker;
    return error;
}

CUresult cuEventQuery(CUevent handle) {
    const Call call("cuEventQuery", Needs::initialized, Beside::no_capture);
    if (call.error != success) return call.error;
    const auto event = driver().events.find(handle);
    if (!event) return invalid_handle;
    if (const int error = driver().captures.refuse(*event); error != success) return error;
    if (event->device.error() != success) return event->device.error();
    const MarkerPtr marker = recorded(*event);
    return !marker || marker->reached() ? success : not_ready;
}

CUresult cuEventSynchronize(CUevent handle) {
    const Call call("cuEventSynchronize", Needs::context, Beside::no_capture);
    if (call.error != success) return call.error;
    const auto event = driver().events.find(handle);
    if (!event) return invalid_handle;
    if (const int error = driver().captures.refuse(*event); error != success) return error;
    if (const MarkerPtr marker = recorded(*event)) marker->wait();
    return event->device.error();
}
}
