// Processes that open libtutti-nccl as other programs do, each with an environment of its own. The test program itself
// neither links with the library nor has threads, so it may fork.
#pragma once

#include "ranks.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <vector>

namespace tutti::test {

/// The library in this process.
class Library {
 public:
    Library() : handle_(::dlopen(std::getenv("NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL)) {
        EXPECT_NE(handle_, nullptr) << ::dlerror();
    }
    void* find(const char* name) const { return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr; }
    template <class Function>
    Function* get(const char* name) const {
        void* found = find(name);
        EXPECT_NE(found, nullptr) << name;
        return reinterpret_cast<Function*>(found);
    }

 private:
    void* handle_;
};
/// library.NAME as a call: CALL(library, ncclGetVersion)(&version).
#define NCCL_CALL(library, name) (*(library).get<decltype(name)>(#name))

using Environment = std::map<std::string, std::string>;

/// Forked; ends with a status that is not 0 where something was expected in vain.
inline pid_t start_child(const Environment& environment, const std::function<void(const Library&)>& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::alarm(100);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    {
        const Library library;
        body(library);
    }
    std::fflush(nullptr);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
}
inline int status_of(pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, 0) == child ? status : -1;
}
inline void in_child(const Environment& environment, const std::function<void(const Library&)>& body) {
    EXPECT_EQ(status_of(start_child(environment, body)), 0);
}

/// A value that parent and children share.
template <class T>
class Shared {
 public:
    Shared()
        : value_(new (::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{}) {}
    ~Shared() { ::munmap(value_, sizeof(T)); }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    T* operator->() const { return value_; }
    T& operator*() const { return *value_; }

 private:
    T* value_;
};

/// An id that one process makes and others wait for.
struct Handed {
    std::atomic<bool> there{false};
    ncclUniqueId id{};
    void give(const ncclUniqueId& made) {
        id = made;
        there = true;
    }
    const ncclUniqueId& wait() const {
        while (!there) ::usleep(1000);
        return id;
    }
};

}  // namespace tutti::test
