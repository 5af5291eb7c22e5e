#include "capture.hpp"

#include "driver.hpp"

#include <algorithm>
#include <utility>

namespace fake_cuda {
namespace {

thread_local CaptureMode thread_mode = CaptureMode::global;

// Whether some stream's work is in the graph and yet not before the end of the one that the capture began with.
bool is_unjoined(const Capture& capture) {
    std::vector<bool> joined(capture.after.size(), false);
    Nodes open = capture.ends.at(capture.origin);
    while (!open.empty()) {
        const std::size_t node = open.back();
        open.pop_back();
        if (joined[node]) continue;
        joined[node] = true;
        open.insert(open.end(), capture.after[node].begin(), capture.after[node].end());
    }
    return std::ranges::any_of(capture.ends, [&](const auto& end) {
        return std::ranges::any_of(end.second, [&](std::size_t node) { return !joined[node]; });
    });
}

}  // namespace

int Captures::begin(const std::shared_ptr<Stream>& stream, CaptureMode mode) {
    const std::lock_guard lock(mutex_);
    if (stream->kind == Stream::Kind::legacy) return capture_unsupported;
    if (find(*stream)) return illegal_state;
    all_.push_back(std::make_shared<Capture>(stream, mode));
    return success;
}

int Captures::end(const Stream& stream, std::shared_ptr<Graph>& graph) {
    const std::lock_guard lock(mutex_);
    const CapturePtr capture = find(stream);
    if (!capture) return illegal_state;
    if (capture->origin != &stream) return capture_unmatched;
    if (capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id())
        return capture_wrong_thread;
    std::erase(all_, capture);
    if (capture->is_broken) return capture_invalidated;
    if (is_unjoined(*capture)) return capture_unjoined;
    graph = capture->graph;
    return success;
}

int Captures::status(const Stream& stream) const {
    const std::lock_guard lock(mutex_);
    const CapturePtr capture = find(stream);
    if (!capture) return 0;
    return capture->is_broken ? 2 : 1;
}

bool Captures::take(const Stream& stream, std::function<void()> run, int& error) {
    const std::lock_guard lock(mutex_);
    const CapturePtr capture = find(stream);
    if (!capture) return false;
    error = capture->is_broken ? capture_invalidated : success;
    if (error != success) return true;
    Nodes& end = capture->ends[&stream];
    capture->graph->nodes.push_back(std::move(run));
    capture->after.push_back(std::exchange(end, {capture->after.size()}));
    return true;
}

bool Captures::record(const Stream& stream, Event& event, int& error) {
    const std::lock_guard lock(mutex_);
    const CapturePtr capture = find(stream);
    event.capture = capture;
    event.nodes.clear();
    if (!capture) return false;
    error = capture->is_broken ? capture_invalidated : success;
    event.nodes = capture->ends[&stream];
    return true;
}

bool Captures::wait(const Stream& stream, const Event& event, int& error) {
    const std::lock_guard lock(mutex_);
    const CapturePtr own = find(stream), its = event.capture;
    if (!own && !its) return false;
    error = success;
    if (its && !is_running(its)) {
        error = captured_event;
    } else if (!its) {
        error = capture_isolation;
    } else if (own && own != its) {
        error = capture_merge;
        its->is_broken = true;
    } else if (its->is_broken) {
        error = capture_invalidated;
    } else {
        Nodes& end = its->ends[&stream];
        end.insert(end.end(), event.nodes.begin(), event.nodes.end());
    }
    if (own && error != success) own->is_broken = true;
    return true;
}

int Captures::refuse_unsafe() {
    const std::lock_guard lock(mutex_);
    int error = success;
    for (const CapturePtr& capture : all_) {
        const bool is_own = capture->thread == std::this_thread::get_id() && capture->mode != CaptureMode::relaxed;
        const bool is_global = capture->mode == CaptureMode::global && thread_mode == CaptureMode::global;
        if (thread_mode == CaptureMode::relaxed || !(is_own || is_global)) continue;
        capture->is_broken = true;
        error = capture_unsupported;
    }
    return error;
}

int Captures::refuse(const Stream& stream) {
    const std::lock_guard lock(mutex_);
    const CapturePtr capture = find(stream);
    if (!capture) return success;
    capture->is_broken = true;
    return capture_unsupported;
}

int Captures::refuse(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (!event.capture) return success;
    event.capture->is_broken = true;
    return captured_event;
}

int Captures::refuse_default(const Device& device) {
    const std::lock_guard lock(mutex_);
    for (const CapturePtr& capture : all_) {
        const bool waits = std::ranges::any_of(capture->ends, [&](const auto& end) {
            return &end.first->device == &device && end.first->kind == Stream::Kind::blocking;
        });
        if (!waits || capture->mode == CaptureMode::relaxed) continue;
        capture->is_broken = true;
        return capture_implicit;
    }
    return success;
}

CaptureMode Captures::exchange(CaptureMode mode) {
    return std::exchange(thread_mode, mode);
}

CapturePtr Captures::find(const Stream& stream) const {
    const auto found = std::ranges::find_if(all_, [&](const auto& one) { return one->ends.contains(&stream); });
    return found == all_.end() ? nullptr : *found;
}

bool Captures::is_running(const CapturePtr& capture) const {
    return std::ranges::find(all_, capture) != all_.end();
}

}  // namespace fake_cuda
