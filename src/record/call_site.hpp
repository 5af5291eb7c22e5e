// CallSite: where in the program an operation was asked for.
//
// Each public function holds one for as long as it runs. The outermost counts: a function of the library that calls
// another one is not the program. Costs a load and a store of a thread's variable.
//
// Threads: each has its own.
#pragma once

#include <string>

namespace tutti::record {

inline constinit thread_local const void* current_call_site [[gnu::tls_model("initial-exec")]] = nullptr;

class CallSite {
 public:
    /// Of the function that it is written in: inlined there, so that the return address is that function's.
    [[gnu::always_inline]] CallSite() noexcept : outermost_(current_call_site == nullptr) {
        if (outermost_) current_call_site = __builtin_return_address(0);
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

/// "train_step(int)+0x1f in train+0x4a1f": the symbol where the dynamic linker knows one, then what addr2line takes.
/// Empty for no address.
std::string describe_call_site(const void* address);

}  // namespace tutti::record
