#include "capi/handles.hpp"

#include "core/assert.hpp"

#include <atomic>

namespace tutti::capi {

std::uintptr_t next_handle() noexcept {
    static std::atomic<std::uintptr_t> next{1};
    TUTTI_ASSERT(next.load(std::memory_order_relaxed) % 2 == 1);
    return next.fetch_add(2, std::memory_order_relaxed);
}

Handles<tutti_store, StoreEntry>& stores() {
    static auto& all = *new Handles<tutti_store, StoreEntry>("store");
    return all;
}
Handles<tutti_group, ProcessGroup>& groups() {
    static auto& all = *new Handles<tutti_group, ProcessGroup>("group");
    return all;
}
Handles<tutti_work, Work>& works() {
    static auto& all = *new Handles<tutti_work, Work>("work");
    return all;
}

Handles<tutti_message, std::shared_ptr<MessageEntry>>& messages() {
    static auto& all = *new Handles<tutti_message, std::shared_ptr<MessageEntry>>("message");
    return all;
}

Handles<tutti_window, Window>& windows() {
    static auto& all = *new Handles<tutti_window, Window>("window");
    return all;
}

ProcessGroup group_of(const char* function, tutti_group* group) {
    return group == nullptr ? ProcessGroup() : groups().get(function, "group", group);
}

ProcessGroup known_group(const char* function, tutti_group* group) {
    return group == nullptr ? default_group() : groups().get(function, "group", group);
}

}  // namespace tutti::capi
