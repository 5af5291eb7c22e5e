#pragma once

namespace tutti {

/// Writes the broken assertion to stderr and ends the process by abort(), which leaves a core file and a stack.
[[noreturn]] void fail_assertion(const char* condition, const char* file, int line, const char* function) noexcept;

}  // namespace tutti

/// Asserts a precondition, a postcondition or an invariant of tutti's own code. Builds with TUTTI_ASSERTIONS (debug,
/// sanitizers, coverage, fuzzing) check the condition and end the process if it is false; a release build compiles the
/// condition without evaluating it, so it must have no side effects. Never assert what a caller or a peer may get
/// wrong: every build reports such mistakes as errors.
#ifdef TUTTI_ASSERTIONS
#define TUTTI_ASSERT(...)                                  \
    (static_cast<bool>(__VA_ARGS__) ? static_cast<void>(0) \
                                    : ::tutti::fail_assertion(#__VA_ARGS__, __FILE__, __LINE__, __func__))
#else
#define TUTTI_ASSERT(...) static_cast<void>(sizeof(static_cast<bool>(__VA_ARGS__)))
#endif
