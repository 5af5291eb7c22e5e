// Capturing streams into graphs: what comes into a captured stream becomes a node of a graph, which runs when the graph
// does. A stream that waits for a captured event is captured, too, until the capture ends.
//
// Threads: any.
#pragma once

#include "stream.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace fake_cuda {

enum class CaptureMode { global, thread_local_, relaxed };
inline constexpr int last_capture_mode = 2;

/// Nodes in the order of their capture, in which they also run, one after the other.
struct Graph {
    explicit Graph(Device& graph_device) : device(graph_device) {}
    Device& device;
    std::vector<std::function<void()>> nodes;
};

/// Nodes by number.
using Nodes = std::vector<std::size_t>;

struct Capture {
    Capture(const std::shared_ptr<Stream>& stream, CaptureMode capture_mode)
        : graph(std::make_shared<Graph>(stream->device)), origin(stream.get()), mode(capture_mode) {
        ends[origin];
    }

    const std::shared_ptr<Graph> graph;
    const Stream* const origin;
    const CaptureMode mode;
    const std::thread::id thread = std::this_thread::get_id();
    std::vector<Nodes> after;             ///< of each node: those before it
    std::map<const Stream*, Nodes> ends;  ///< of each captured stream: those that the next node comes after
    bool is_broken = false;               ///< by a call that is not permitted meanwhile
};
using CapturePtr = std::shared_ptr<Capture>;

/// Those that are under way. Errors are the driver's.
class Captures {
 public:
    int begin(const std::shared_ptr<Stream>& stream, CaptureMode mode);
    int end(const Stream& stream, std::shared_ptr<Graph>& graph);
    /// 0: none; 1: it is captured; 2: by a capture that is broken.
    int status(const Stream& stream) const;

    /// Makes a node, where the stream is captured: whether it is so. `error`: what the driver says then.
    bool take(const Stream& stream, std::function<void()> run, int& error);
    bool record(const Stream& stream, Event& event, int& error);
    /// A wait for an event: of a captured stream, or for a captured event.
    bool wait(const Stream& stream, const Event& event, int& error);

    /// Of a call that may not be made while others, or this thread, capture.
    int refuse_unsafe();
    /// Of a call that a captured stream, or event, does not permit.
    int refuse(const Stream& stream);
    int refuse(const Event& event);
    /// The default stream would have to wait for a stream that is captured.
    int refuse_default(const Device& device);

    /// The mode of this thread's.
    static CaptureMode exchange(CaptureMode mode);

 private:
    CapturePtr find(const Stream& stream) const;
    bool is_running(const CapturePtr& capture) const;

    mutable std::mutex mutex_;
    std::vector<CapturePtr> all_;
};

}  // namespace fake_cuda
