// A value of which each thread has its own, also after the thread's other objects are destroyed: programs end their
// communicators in destructors of static objects, which run on the main thread when its thread_local objects have gone.
#pragma once

namespace tutti::nccl_library {

/// The calling thread's. The type names the value: each use has one of its own.
template <class T>
T& of_thread() {
    static thread_local bool has_gone = false;
    static thread_local T* late = nullptr;  // stays
    struct Kept {
        T value{};
        ~Kept() { has_gone = true; }
    };
    if (has_gone) return *(late != nullptr ? late : late = new T{});
    static thread_local Kept kept;
    return kept.value;
}

}  // namespace tutti::nccl_library
