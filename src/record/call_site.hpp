// CallSite: the place in the program that called an operation.
//
// Each public function holds one for as long as it runs. The outermost counts: a function of the library that calls
// another one is not the program. Costs two loads and a store of a thread's variables.
//
// A binding to another language, whose call sites are no return addresses, gives a text instead (given_call_site).
//
// Threads: each has its own.
#pragma once

#include "core/assert.hpp"

#include <cstdint>
#include <string>

namespace tutti::record {

inline constinit thread_local const void* current_call_site [[gnu::tls_model("initial-exec")]] = nullptr;
/// The call site that counts instead of return addresses, while a binding has set it: see call_site_at().
inline constinit thread_local const void* given_call_site [[gnu::tls_model("initial-exec")]] = nullptr;

/// Addresses of the upper half are the kernel's, so no return address has this bit.
constexpr std::uintptr_t is_text = std::uintptr_t{1} << 63;
/// A call site that is a text, which must live as long as the process. Null for null.
inline const void* call_site_at(const char* place) noexcept {
    if (place == nullptr) return nullptr;
    TUTTI_ASSERT((reinterpret_cast<std::uintptr_t>(place) & is_text) == 0);
    return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(place) | is_text);
}

/// The same for a text that the process keeps from now on. It keeps 65,536 different ones; others become one text.
const void* kept_call_site(const std::string& place);

class CallSite {
 public:
    /// The call site of the function that holds it: inlined there, so that the return address is that function's.
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

/// "train.cpp:12 in train_step(int)" where `lines` (none: null) knows it. Else "train_step(int)+0x1f in train+0x4a1f":
/// the symbol where the dynamic linker knows one, then the argument for addr2line. For a call site that is a text: the
/// text. Empty for no address.
std::string describe_call_site(const void* address, SourceLines* lines = nullptr);

}  // namespace tutti::record
