#pragma once

namespace tutti {

/// Writes the broken assertion to stderr and ends the process by abort(), which leaves a core file and a stack.
[[noreturn]] void fail_assertion(const char* condition, const char* file, int line, const char* function) noexcept;

}  // namespace tutti

/// States what holds at this point of a correct tutti: a precondition, a postcondition or an invariant. Builds with
/// TUTTI_ASSERTIONS (debug, sanitizers, coverage, fuzzing) check it and end the process where it is false; a release
/// build compiles the condition without running it, so the condition must have no effect of its own. A mistake of the
/// caller's or of a peer's is no assertion: it is an error with a sentence, in every build.
#ifdef TUTTI_ASSERTIONS
#define TUTTI_ASSERT(...)                                  \
    (static_cast<bool>(__VA_ARGS__) ? static_cast<void>(0) \
                                    : ::tutti::fail_assertion(#__VA_ARGS__, __FILE__, __LINE__, __func__))
#else
#define TUTTI_ASSERT(...) static_cast<void>(sizeof(static_cast<bool>(__VA_ARGS__)))
#endif
