// PublicCall: each public function that communicates holds one for as long as it runs: the call site of its operations,
// and the hooks around it. While there are no hooks it costs a CallSite and one load more.
//
// Threads: each call has its own; hooks come and go at any time.
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
/// Called from now on; the id is for remove_hooks().
std::uint64_t add_hooks(Hooks hooks);
/// Waits until no thread runs them.
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
    std::uint64_t latest_hooks_ = 0;  ///< which hooks there were; 0: none were called
    int exceptions_ = 0;
};

}  // namespace tutti::record
