// Symbol visibility: the shared library exports only declarations with TUTTI_API.
#pragma once

// tutti.h alone also serves C and older C++.
#if defined(__cplusplus) && __cplusplus < 202002L && !defined(TUTTI_TUTTI_H)
#error "tutti's C++ headers need C++20: compile with -std=c++20 or newer"
#endif

#if defined(TUTTI_STATIC)
#define TUTTI_API
#else
#define TUTTI_API __attribute__((visibility("default")))
#endif
