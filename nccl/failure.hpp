// What goes wrong in a call: NCCL's code and a sentence, and where ncclGetLastError finds it.
//
// Inside the library failures are exceptions; guarded() ends each exported function. Threads: any.
#pragma once

#include "interface.h"

#include <exception>
#include <sstream>
#include <string>
#include <utility>

namespace tutti::nccl_library {

class Failure : public std::exception {
 public:
    Failure(ncclResult_t code, std::string sentence) : code_(code), sentence_(std::move(sentence)) {}
    ncclResult_t code() const noexcept { return code_; }
    const std::string& sentence() const noexcept { return sentence_; }
    const char* what() const noexcept override { return sentence_.c_str(); }

 private:
    ncclResult_t code_;
    std::string sentence_;
};

/// Its parts one after the other.
template <class... Parts>
std::string text(const Parts&... parts) {
    std::ostringstream all;
    (all << ... << parts);
    return all.str();
}

template <class... Parts>
[[noreturn]] void fail(ncclResult_t code, const Parts&... parts) {
    throw Failure(code, text(parts...));
}

/// Throws Failure (invalid argument) where a pointer is null that the call needs.
inline void check_place(const char* name, const void* place) {
    if (place == nullptr) fail(ncclInvalidArgument, name, " is NULL");
}

/// An exception of tutti's, or any other, as NCCL has it: lost peers and deadlines are remote errors, disagreement of
/// ranks is invalid usage, what the system refuses is a system error.
Failure as_failure(const std::exception_ptr& error);

/// Keeps the sentence for this thread's ncclGetLastError; returns the code.
ncclResult_t remember(const Failure& failure);
/// The sentence of this thread's last failure; where it had none, of the process's; "" where nothing failed. Valid
/// until this thread asks again.
const char* last_sentence();
/// Keeps a sentence alive for the same time.
const char* shown(const std::string& sentence);

/// The same with the function's name before the sentence, where it is not there yet.
inline Failure named(const char* name, const Failure& failure) {
    if (failure.sentence().starts_with(text(name, ": "))) return failure;
    return {failure.code(), text(name, ": ", failure.sentence())};
}

/// Runs an exported function: its failure becomes the code.
template <class Function>
ncclResult_t guarded(const char* name, Function function) noexcept {
    try {
        return function();
    } catch (...) {
        return remember(named(name, as_failure(std::current_exception())));
    }
}

}  // namespace tutti::nccl_library
