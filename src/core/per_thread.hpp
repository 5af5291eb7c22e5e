// PerThread: a thread-local value that can be used even while and after the thread's other objects are destroyed.
//
// Destructors of static objects and atexit(3) functions run on the main thread after its thread_local objects are
// destroyed: what they call must not use such objects.
#pragma once

#include "core/assert.hpp"

namespace tutti {

/// Type T identifies the value: uses with the same T share it, so give each use a type of its own.
template <class T>
class PerThread {
 public:
    /// The calling thread's value. The thread's first call makes it; the end of the thread destroys it. A later call
    /// makes a new value, which is never destroyed.
    static T& get() {
        if (has_gone_) [[unlikely]]
            return late();
        static thread_local Kept kept [[gnu::tls_model("initial-exec")]];
        return kept.value;
    }

 private:
    struct Kept {
        T value{};
        ~Kept() { has_gone_ = true; }  // first, as the destructor of `value` may call get()
    };

    [[gnu::cold, gnu::noinline]] static T& late() {
        TUTTI_ASSERT(has_gone_);
        if (late_ == nullptr) late_ = new T{};
        return *late_;
    }

    inline static constinit thread_local bool has_gone_ [[gnu::tls_model("initial-exec")]] = false;
    inline static constinit thread_local T* late_ [[gnu::tls_model("initial-exec")]] = nullptr;
};

}  // namespace tutti
