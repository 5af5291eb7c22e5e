// CallSite: the place in the program that called an operation.
//
// Each public function holds a CallSite while it runs. Only the outermost counts: a public function that the library
// itself calls is not called by the program. Costs two loads and a store of thread-local variables.
//
// A binding to another language, whose call sites are not return addresses, sets a text instead (given_call_site).
//
// Threads: each thread has its own current call site.
#pragma once

#include "core/assert.hpp"

#include <cstdint>
#include <string>

namespace tutti::record {

inline constinit thread_local const void* current_call_site [[gnu::tls_model("initial-exec")]] = nullptr;
/// The call site to use instead of return addresses, while a binding has set one: see call_site_at().
inline constinit thread_local const void* given_call_site [[gnu::tls_model("initial-exec")]] = nullptr;

/// Addresses with this bit belong to the kernel, so no return address has it.
constexpr std::uintptr_t is_text = std::uintptr_t{1} << 63;
/// Makes a call site from a text, which must live as long as the process. Null for null.
inline const void* call_site_at(const char* place) noexcept {
    if (place == nullptr) return nullptr;
    TUTTI_ASSERT((reinterpret_cast<std::uintptr_t>(place) & is_text) == 0);
    return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(place) | is_text);
}

/// As above, but the process keeps the text: up to 65,536 different ones; all others share one replacement text.
const void* kept_call_site(const std::string& place);

class CallSite {
 public:
    /// Notes the caller of the public function that holds the object. Inlined, so that __builtin_return_address gives
    /// the return address of that function.
    [[gnu::always_inline]] CallSite() noexcept : outermost_(current_call_site == nullptr) {
        if (!outermost_) return;
        current_call_site = given_call_site != nullptr ? given_call_site : __builtin_return_address(0);
    }
    ~CallSite() {
        if (outermost_) current_call_site = nullptr;
    }
    bool outermost() const noexcept { return outermost_; }
    CallSite(const CallSite&) = delete;
    CallSite& operator=(const CallSite&) = delete;

 private:
    bool outermost_;
};

class SourceLines;

/// "train.cpp:12 in train_step(int)" if `lines` (may be null) can resolve the address. Else "train_step(int)+0x1f in
/// train+0x4a1f": the symbol if the dynamic linker knows one, then the argument for addr2line. For a call site that is
/// a text: the text. Empty for no address.
std::string describe_call_site(const void* address, SourceLines* lines = nullptr);

}  // namespace tutti::record
