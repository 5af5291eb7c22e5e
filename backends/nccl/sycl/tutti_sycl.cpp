// libtutti-sycl.so: the part of the SYCL driver that SYCL's classes need. It has no kernels, so that any compiler
// builds it, given the headers and libsycl.so.
//
// Devices are numbered as PyTorch numbers them: Level Zero's GPUs, in their platform's order; contexts are the
// platform's default one, so that PyTorch's memory is known here.
#include "nccl/sycl_driver.hpp"

#include <sycl/sycl.hpp>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Place {
    sycl::device device;
    sycl::context context;
    std::unique_ptr<sycl::queue> queue;
};

sycl::queue make(const Place& place, const sycl::property_list& properties) {
    return sycl::queue(place.context, place.device, properties);
}

// The name that the headers have; later headers warn of the other name.
template <class Platform>
sycl::context default_context(const Platform& platform) {
    if constexpr (requires { platform.khr_get_default_context(); })
        return platform.khr_get_default_context();
    else
        return platform.ext_oneapi_get_default_context();
}

std::vector<Place> find_places() {
    std::vector<Place> places;
    for (const sycl::platform& platform : sycl::platform::get_platforms()) {
        if (platform.get_backend() != sycl::backend::ext_oneapi_level_zero) continue;
        for (const sycl::device& device : platform.get_devices(sycl::info::device_type::gpu)) {
            Place place{device, default_context(platform), nullptr};
            place.queue = std::make_unique<sycl::queue>(make(place, {sycl::property::queue::in_order()}));
            places.push_back(std::move(place));
        }
    }
    return places;
}

// Never destroyed: SYCL's own data may go first at the process's end.
std::vector<Place>& places() {
    static auto* list = [] {
        try {
            return new std::vector<Place>(find_places());
        } catch (const std::exception&) {
            return new std::vector<Place>();  // no driver
        }
    }();
    return *list;
}

template <class F>
const char* guarded(F f) {
    thread_local std::string words;
    try {
        f();
        return nullptr;
    } catch (const std::exception& error) {
        words = error.what();
        return words.c_str();
    }
}

Place& at(int device) {
    return places().at(static_cast<std::size_t>(device));
}

int device_count() {
    return static_cast<int>(places().size());
}
const char* make_queue(int device, int high_priority, void** queue) {
    return guarded([&] {
        const auto order = sycl::property::queue::in_order();
        *queue = new sycl::queue(high_priority != 0
                                     ? make(at(device), {order, sycl::ext::oneapi::property::queue::priority_high()})
                                     : make(at(device), {order}));
    });
}
void destroy_queue(void* queue) {
    delete static_cast<sycl::queue*>(queue);
}
const char* wait_for_queue(void* queue) {
    return guarded([&] { static_cast<sycl::queue*>(queue)->wait_and_throw(); });
}
const char* make_event(void** event) {
    return guarded([&] { *event = new sycl::event(); });
}
void destroy_event(void* event) {
    delete static_cast<sycl::event*>(event);
}
const char* record(void* event, void* queue) {
    return guarded(
        [&] { *static_cast<sycl::event*>(event) = static_cast<sycl::queue*>(queue)->ext_oneapi_submit_barrier(); });
}
const char* reached(void* event, int* yes) {
    return guarded([&] {
        const auto status = static_cast<sycl::event*>(event)->get_info<sycl::info::event::command_execution_status>();
        *yes = status == sycl::info::event_command_status::complete ? 1 : 0;
    });
}
const char* make_wait(void* queue, void* event) {
    return guarded(
        [&] { static_cast<sycl::queue*>(queue)->ext_oneapi_submit_barrier({*static_cast<sycl::event*>(event)}); });
}
const char* allocate(int device, std::size_t bytes, void** memory) {
    return guarded([&] {
        *memory = sycl::malloc_device(bytes, at(device).device, at(device).context);
        if (*memory == nullptr) throw std::runtime_error("there is none of " + std::to_string(bytes) + " bytes");
    });
}
void release(int device, void* memory) {
    sycl::free(memory, at(device).context);
}
const char* allocate_host(std::size_t bytes, void** memory) {
    return guarded([&] {
        *memory = sycl::malloc_host(bytes, at(0).context);
        if (*memory == nullptr) throw std::runtime_error("there is none of " + std::to_string(bytes) + " bytes");
    });
}
void release_host(void* memory) {
    sycl::free(memory, at(0).context);
}
const char* copy(void* to, const void* from, std::size_t bytes, void* queue) {
    return guarded([&] { static_cast<sycl::queue*>(queue)->memcpy(to, from, bytes); });
}
int device_of(const void* memory) {
    for (std::size_t i = 0; i < places().size(); ++i) {
        const Place& place = places()[i];
        if (sycl::get_pointer_type(memory, place.context) != sycl::usm::alloc::device) continue;
        if (sycl::get_pointer_device(memory, place.context) == place.device) return static_cast<int>(i);
    }
    return -1;
}
void* default_queue(int device) {
    return at(device).queue.get();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const TuttiSycl* tutti_sycl() {
    static const TuttiSycl functions{TUTTI_SYCL_VERSION, device_count,  make_queue,    destroy_queue, wait_for_queue,
                                     make_event,         destroy_event, record,        reached,       make_wait,
                                     allocate,           release,       allocate_host, release_host,  copy,
                                     device_of,          default_queue};
    return &functions;
}
