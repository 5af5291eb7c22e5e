/* The version of these headers; tutti_version() and tutti::version() return that of the library that the program runs
 * with. CMake and the packages read theirs here. */
#ifndef TUTTI_VERSION_H
#define TUTTI_VERSION_H

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
#define TUTTI_VERSION_STRING "0.1.0"

/* As a number that grows with versions: #if TUTTI_VERSION >= TUTTI_MAKE_VERSION(0, 2, 0) */
#define TUTTI_MAKE_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define TUTTI_VERSION TUTTI_MAKE_VERSION(TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH)

#endif
