// tutti-backend-conformance NAME [--quick] [GoogleTest options]: the tests of what every backend must do, on groups of
// one backend. Ranks are threads, then processes. Exit status: 0, all passed; 1, not; 2, there is no such backend.
#include "support/covers.hpp"

#include <tutti/backend.hpp>
#include <tutti/error.hpp>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

void tutti::test::covers_row(std::string_view) {}

namespace {

// Of a library that is loaded: whether it carries bytes alone (tutti/transport.hpp), so that tutti compares calls.
bool is_transport(const std::string& library) {
    struct Search {
        const std::string& name;
        std::string file{};
    } search{library};
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            Search& wanted = *static_cast<Search*>(data);
            if (std::string_view(info->dlpi_name).ends_with("/" + wanted.name)) wanted.file = info->dlpi_name;
            return 0;
        },
        &search);
    void* const loaded = search.file.empty() ? nullptr : ::dlopen(search.file.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return loaded != nullptr && ::dlsym(loaded, "tutti_transport_abi") != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    // The suite leaves out tests of what native alone has: shared memory, and the words of errors that blame a rank.
    // tutti compares calls before data moves where it carries them out itself, and not where a backend does.
    const std::string comparing = "-*disagree*:*Agreement*:*both_sides*:*both_sizes*:";
    ::testing::GTEST_FLAG(filter) = comparing + "*WithoutWaiting*:*Failures.*:Waiting*:Death*:*/tcp";
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
    std::string& filter = ::testing::GTEST_FLAG(filter);
    if (is_transport("libtutti-backend-" + std::string(argv[1]) + ".so") && filter.starts_with(comparing))
        filter.replace(0, comparing.size(), "-");
    return RUN_ALL_TESTS();
}
