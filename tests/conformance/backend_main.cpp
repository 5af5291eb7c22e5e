// tutti-backend-conformance NAME [--quick] [GoogleTest options]: the tests of what every backend must do, on groups of
// one backend. Ranks are threads, then processes. Exit status: 0, all passed; 1, not; 2, there is no such backend.
#include "support/covers.hpp"

#include <tutti/backend.hpp>
#include <tutti/error.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

void tutti::test::covers_row(std::string_view) {}

int main(int argc, char** argv) {
    // What is native's alone: comparing calls before data moves, shared memory, who is blamed in which words.
    ::testing::GTEST_FLAG(filter) =
        "-*disagree*:*Agreement*:*WithoutWaiting*:*Failures.*:*both_sides*:*both_sizes*:Waiting*:Death*:*/tcp";
    // The tests ask for it when they are set up.
    for (int i = argc - 1; i > 0; --i) {
        if (argv[i][0] != '-') ::setenv("TUTTI_CONFORMANCE_BACKEND", argv[i], 1);
    }
    ::testing::InitGoogleTest(&argc, argv);
    const bool quick = argc == 3 && std::string(argv[2]) == "--quick";
    if (quick) ::testing::GTEST_FLAG(filter) += ":*of_any_size*:*hundreds_of_segments*:*combine_with_every*/shm";
    if (argc != 2 && !quick) {
        std::fprintf(stderr, "usage: tutti-backend-conformance NAME [--quick] [--gtest_filter=...]\n");
        return 2;
    }
    try {
        if (!tutti::is_backend_available(argv[1])) {
            std::fprintf(stderr,
                         "tutti-backend-conformance: there is no backend \"%s\": expected libtutti-backend-%s.so in a "
                         "folder of TUTTI_BACKEND_PATH, or beside libtutti.so, that can be loaded (with "
                         "TUTTI_LOG_LEVEL=debug the log says what is in the way)\n",
                         argv[1], argv[1]);
            return 2;
        }
    } catch (const tutti::DistError& error) {
        std::fprintf(stderr, "tutti-backend-conformance: %s\n", error.what());
        return 2;
    }
    return RUN_ALL_TESTS();
}
