// The interface of libtutti-sycl.so: SYCL has C++ classes alone, so the part that uses them is a library of its own,
// which a build with SYCL's headers makes (sycl/tutti_sycl.cpp). Streams are sycl::queue*, events are this library's.
#pragma once

#include <cstddef>

/// The version of this struct.
#define TUTTI_SYCL_VERSION 1

extern "C" {
/// Functions return null, or an error text that stays until the thread's next call.
struct TuttiSycl {
    int version;
    int (*device_count)();
    const char* (*make_queue)(int device, int high_priority, void** queue);
    void (*destroy_queue)(void* queue);
    const char* (*wait_for_queue)(void* queue);
    const char* (*make_event)(void** event);
    void (*destroy_event)(void* event);
    const char* (*record)(void* event, void* queue);
    const char* (*reached)(void* event, int* reached);
    const char* (*make_wait)(void* queue, void* event);
    const char* (*allocate)(int device, std::size_t bytes, void** memory);
    void (*release)(int device, void* memory);
    const char* (*allocate_host)(std::size_t bytes, void** memory);
    void (*release_host)(void* memory);
    const char* (*copy)(void* to, const void* from, std::size_t bytes, void* queue);
    int (*device_of)(const void* memory);
    /// The queue that stands for "no stream" on a device.
    void* (*default_queue)(int device);
};
const TuttiSycl* tutti_sycl();
}
