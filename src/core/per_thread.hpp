// PerThread: a value of which each thread has its own, also while and after the thread's other objects are destroyed.
//
// Destructors of static objects and atexit(3) functions run on the main thread after its thread_local objects are
// destroyed: what they call must not use such objects.
#pragma once

#include "core/assert.hpp"

namespace tutti {

/// T identifies the value: uses with the same T share it, so each use has a type of its own.
template <class T>
class PerThread {
 public:
    /// The calling thread's. It is made by the thread's first call, and destroyed when the thread ends; a call after
    /// that makes another one, which stays.
    static T& get() {
        if (has_gone_) [[unlikely]]
            return late();
        static thread_local Kept kept [[gnu::tls_model("initial-exec")]];
        return kept.value;
    }

 private:
    struct Kept {
        T value{};
        ~Kept() { has_gone_ = true; }  // before the value goes, whose destructor may come here
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
