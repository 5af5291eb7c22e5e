// Handles: C holds them in place of C++ objects.
//
// A handle is a number that is given out once, in the form of a pointer. It is looked up, never followed, so that a
// handle that is old, foreign or of another kind is found out for certain. The objects are handles themselves (copies
// name the same group): a call works on a copy of its own, while another thread may give the C handle back.
// Threads: any; one lock for each kind of handle, held for the look alone.
#pragma once

#include "capi/arguments.hpp"

#include <tutti/tutti.h>
#include <tutti/process_group.hpp>
#include <tutti/store.hpp>
#include <tutti/work.hpp>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace tutti::capi {

/// Odd numbers, of all kinds together: no address of an object, and no other kind's handle, is among them.
std::uintptr_t next_handle() noexcept;

template <class Handle, class Object>
class Handles {
 public:
    explicit Handles(const char* kind) : kind_(kind) {}

    Handle* add(Object object) {
        const std::uintptr_t number = next_handle();
        const std::lock_guard lock(mutex_);
        objects_.emplace(number, std::move(object));
        return reinterpret_cast<Handle*>(number);
    }
    /// Throws InvalidArgument that names function and argument for a value that is no handle, or none any more.
    Object get(const char* function, const char* argument, Handle* handle) {
        if (handle == nullptr) refuse(function, argument, handle);
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) refuse(function, argument, handle);
        return found->second;
    }
    /// The same, and takes the handle back.
    Object take(const char* function, const char* argument, Handle* handle) {
        if (handle == nullptr) refuse(function, argument, handle);
        const std::lock_guard lock(mutex_);
        auto node = objects_.extract(reinterpret_cast<std::uintptr_t>(handle));
        if (node.empty()) refuse(function, argument, handle);
        return std::move(node.mapped());
    }

 private:
    [[noreturn]] void refuse(const char* function, const char* argument, const void* handle) const {
        refuse_handle(function, argument, kind_, handle);
    }
    const char* kind_;
    std::mutex mutex_;
    std::unordered_map<std::uintptr_t, Object> objects_;
};

/// A store, and the functions that only its most derived type has.
struct StoreEntry {
    Store store;
    std::optional<std::uint16_t> port{};
};

/// They outlive main(): threads may still use them while the process ends.
Handles<tutti_store, StoreEntry>& stores();
Handles<tutti_group, ProcessGroup>& groups();
Handles<tutti_work, Work>& works();

/// NULL: the empty handle, which its receiver takes for the default group.
ProcessGroup group_of(const char* function, tutti_group* group);

}  // namespace tutti::capi
