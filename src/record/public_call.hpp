// PublicCall: each public function that communicates holds one while it runs: it sets the call site of its operations,
// and calls the hooks around it. Without hooks it costs a CallSite and one more load.
//
// Threads: each call has its own object; hooks may be added and removed at any time.
#pragma once

#include "record/call_site.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

namespace tutti::record {

struct Hooks {
    std::function<void(std::string_view operation)> before;
    std::function<void(std::string_view operation, bool failed)> after;
};
/// The hooks are called from now on; the returned id is for remove_hooks().
std::uint64_t add_hooks(Hooks hooks);
/// Removes the hooks, after waiting until no thread runs any.
void remove_hooks(std::uint64_t id);

inline constinit std::atomic<bool> hooks_wanted{false};

class PublicCall {
 public:
    [[gnu::always_inline]] explicit PublicCall(const char* name) noexcept : name_(name) {
        if (hooks_wanted.load(std::memory_order_relaxed) && site_.outermost()) [[unlikely]]
            begin();
    }
    ~PublicCall() {
        if (latest_hooks_ != 0) [[unlikely]]
            end();
    }
    PublicCall(const PublicCall&) = delete;
    PublicCall& operator=(const PublicCall&) = delete;

 private:
    void begin() noexcept;
    void end() noexcept;

    CallSite site_;
    const char* name_;
    std::uint64_t latest_hooks_ = 0;  ///< id of the newest hooks at begin(); 0: begin() did not run
    int exceptions_ = 0;
};

}  // namespace tutti::record
