// Handles: the values that C programs hold instead of C++ objects.
//
// A handle is a unique number in the form of a pointer. It is looked up, never dereferenced, so that a handle that has
// been released, never existed or is of another kind is always detected. The C++ objects are references (copies refer
// to the same group): a call works on its own copy, while another thread may release the C handle.
// Threads: any; one lock for each kind of handle, held only during the lookup.
#pragma once

#include "capi/arguments.hpp"
#include "core/assert.hpp"

#include <tutti/tutti.h>
#include <tutti/probe.hpp>
#include <tutti/process_group.hpp>
#include <tutti/store.hpp>
#include <tutti/window.hpp>
#include <tutti/work.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace tutti::capi {

/// The next handle's number: odd, and unique among all kinds, so a handle is never equal to an object's address or to a
/// handle of another kind.
std::uintptr_t next_handle() noexcept;

template <class Handle, class Object>
class Handles {
 public:
    explicit Handles(const char* kind) : kind_(kind) {}

    Handle* add(Object object) {
        const std::uintptr_t number = next_handle();
        const std::lock_guard lock(mutex_);
        TUTTI_ASSERT(number % 2 == 1 && !objects_.contains(number));
        objects_.emplace(number, std::move(object));
        return reinterpret_cast<Handle*>(number);
    }
    /// Throws InvalidArgument that names function and argument for a value that is not, or no longer, a handle.
    Object get(const char* function, const char* argument, Handle* handle) {
        if (handle == nullptr) refuse(function, argument, handle);
        const std::lock_guard lock(mutex_);
        const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
        if (found == objects_.end()) refuse(function, argument, handle);
        return found->second;
    }
    /// As get(), and releases the handle.
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

/// A store, and the port that only a TCP store has.
struct StoreEntry {
    Store store;
    std::optional<std::uint16_t> port{};
};

/// One thread at a time receives a message or gives it back.
struct MessageEntry {
    explicit MessageEntry(MatchedMessage message) : held(std::move(message)) {}
    std::mutex mutex;
    MatchedMessage held;
};

/// The tables of handles are never destroyed, since threads may use them while the process ends.
Handles<tutti_store, StoreEntry>& stores();
Handles<tutti_group, ProcessGroup>& groups();
Handles<tutti_work, Work>& works();
Handles<tutti_message, std::shared_ptr<MessageEntry>>& messages();
Handles<tutti_window, Window>& windows();

/// NULL: the empty ProcessGroup, which stands for the default group.
ProcessGroup group_of(const char* function, tutti_group* group);
/// NULL: the default group, which has to be there.
ProcessGroup known_group(const char* function, tutti_group* group);

}  // namespace tutti::capi
