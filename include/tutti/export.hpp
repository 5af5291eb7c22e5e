// Symbol visibility: only what carries TUTTI_API leaves the shared library.
#pragma once

#if defined(TUTTI_STATIC)
#define TUTTI_API
#else
#define TUTTI_API __attribute__((visibility("default")))
#endif
