// The driver's functions about capturing streams, and about graphs.
#include "driver.hpp"

using namespace fake_cuda;

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
    const Call call("cuStreamBeginCapture", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    if (mode < 0 || mode > last_capture_mode) return invalid_value;
    return driver().captures.begin(stream, static_cast<CaptureMode>(mode));
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
    const Call call("cuStreamEndCapture", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    std::shared_ptr<Graph> captured;
    const int error = driver().captures.end(*stream, captured);
    *graph = captured ? driver().graphs.add(captured) : nullptr;
    return error;
}

CUresult cuStreamIsCapturing(CUstream handle, int* status) {
    const Call call("cuStreamIsCapturing", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    if (!stream) return invalid_handle;
    if (stream->kind == Stream::Kind::legacy) {
        if (const int error = driver().captures.refuse_default(stream->device); error != success) return error;
    }
    *status = driver().captures.status(*stream);
    return success;
}

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
    const Call call("cuThreadExchangeStreamCaptureMode", Needs::initialized);
    if (call.error != success) return call.error;
    if (*mode < 0 || *mode > last_capture_mode) return invalid_value;
    *mode = static_cast<int>(Captures::exchange(static_cast<CaptureMode>(*mode)));
    return success;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
    const Call call("cuGraphInstantiateWithFlags", Needs::context);
    if (call.error != success) return call.error;
    const auto found = driver().graphs.find(graph);
    if (!found) return invalid_value;
    *exec = driver().runnable_graphs.add(found);
    return success;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    const Call call("cuGraphLaunch", Needs::context);
    if (call.error != success) return call.error;
    const auto stream = driver().stream(handle, *call.device);
    const auto graph = driver().runnable_graphs.find(exec);
    if (!stream || !graph || &graph->device != &stream->device) return invalid_handle;
    for (const auto& node : graph->nodes) {
        if (const int error = driver().enqueue(*stream, node); error != success) return error;
    }
    return success;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    const Call call("cuGraphExecDestroy", Needs::initialized);
    if (call.error != success) return call.error;
    return driver().runnable_graphs.remove(exec) ? success : invalid_value;
}

CUresult cuGraphDestroy(CUgraph graph) {
    const Call call("cuGraphDestroy", Needs::initialized);
    if (call.error != success) return call.error;
    return driver().graphs.remove(graph) ? success : invalid_value;
}
}
