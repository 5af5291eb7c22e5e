#include "driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>

namespace fake_cuda {
namespace {

thread_local bool in_host_function = false;
std::atomic<bool> child_of_user{false};

const char* variable(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

}  // namespace

Driver& driver() {
    static Driver* const one = new Driver;
    return *one;
}

Driver::Driver() {
    faults.set(variable("FAKE_CUDA_FAULTS", ""));
    delay_us = static_cast<unsigned>(std::atoi(variable("FAKE_CUDA_DELAY_US", "0")));
    const int count = std::atoi(variable("FAKE_CUDA_DEVICES", "8"));
    for (int i = 0; i < count; ++i) devices_.push_back(std::make_unique<Device>(i));
    // A forked child cannot use the driver that its parent has begun; neither could it with a real one.
    ::pthread_atfork(nullptr, nullptr, [] {
        if (driver().initialized_) child_of_user = true;
    });
}

int Driver::init() {
    if (child_of_user) return not_initialized;
    if (devices_.empty()) return no_device;
    initialized_ = true;
    return success;
}

Device* Driver::device(int index) const {
    return index >= 0 && index < device_count() ? devices_[static_cast<std::size_t>(index)].get() : nullptr;
}

Device* Driver::device_of(CUcontext context) const {
    for (const auto& device : devices_) {
        if (device->context() == context) return device.get();
    }
    return nullptr;
}

std::shared_ptr<Stream> Driver::stream(CUstream handle, Device& device) {
    const auto number = reinterpret_cast<std::uintptr_t>(handle);
    if (number > 1) return streams.find(handle);
    const std::lock_guard lock(device.mutex);
    if (!device.legacy) device.legacy = std::make_shared<Stream>(device, Stream::Kind::legacy, least_priority);
    return device.legacy;
}

MarkerPtr Driver::push(Stream& stream, std::function<void()> run, const MarkerPtr& event) {
    Device& device = stream.device;
    const auto all = streams.all();
    const std::lock_guard lock(device.mutex);
    std::vector<MarkerPtr> after;
    const auto wait_for = [&](const MarkerPtr& marker) {
        if (marker && !marker->reached()) after.push_back(marker);
    };
    wait_for(event);
    // The legacy default stream and those that are not "non-blocking" wait for each other.
    if (stream.kind == Stream::Kind::blocking && device.legacy) wait_for(device.legacy->tail());
    if (stream.kind == Stream::Kind::legacy) {
        for (const auto& other : all) {
            if (&other->device == &device && other->kind == Stream::Kind::blocking) wait_for(other->tail());
        }
    }
    return stream.push(std::move(run), std::move(after));
}

int Driver::enqueue(Stream& stream, std::function<void()> run, MarkerPtr* end) {
    int error = success;
    if (stream.kind == Stream::Kind::legacy) error = captures.refuse_default(stream.device);
    if (error != success || captures.take(stream, run, error)) return error;
    const MarkerPtr marker = push(stream, std::move(run));
    if (end != nullptr) *end = marker;
    return success;
}

std::vector<MarkerPtr> Driver::tails(Device& device) {
    const auto all = streams.all();
    const std::lock_guard lock(device.mutex);
    std::erase_if(device.departed, [](const MarkerPtr& marker) { return marker->reached(); });
    std::vector<MarkerPtr> tails = device.departed;
    if (device.legacy && device.legacy->tail()) tails.push_back(device.legacy->tail());
    for (const auto& stream : all) {
        if (&stream->device == &device && stream->tail()) tails.push_back(stream->tail());
    }
    return tails;
}

InHostFunction::InHostFunction() {
    in_host_function = true;
}
InHostFunction::~InHostFunction() {
    in_host_function = false;
}

std::vector<CUcontext>& contexts() {
    thread_local std::vector<CUcontext> stack;
    return stack;
}

Call::Call(const char* name, Needs needs, Beside beside) {
    Driver& all = driver();
    error = all.faults.on_call(name);
    if (error != success || needs == Needs::nothing) return;
    if (in_host_function) {
        error = not_permitted;
    } else if (!all.initialized() || child_of_user) {
        error = not_initialized;
    } else {
        device = contexts().empty() ? nullptr : all.device_of(contexts().back());
        if (needs == Needs::context && device == nullptr)
            error = invalid_context;
        else if (needs == Needs::context)
            error = device->retained == 0 ? context_is_destroyed : device->error();
    }
    if (error == success && beside == Beside::no_capture) error = all.captures.refuse_unsafe();
}

}  // namespace fake_cuda
