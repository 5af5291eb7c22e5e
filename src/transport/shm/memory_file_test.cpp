// A file in memory, and the error where the system gives none.
#include "transport/shm/memory_file.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace tutti::transport {
namespace {

/// The error that a child of this process, with its own limits, gets instead of such a file; the status tells of a
/// signal.
struct Refusal {
    int status = -1;
    std::string text;
};
Refusal refused_to_child(const std::function<void()>& prepare) {
    int pipe[2];
    if (::pipe(pipe) != 0) return {};
    const pid_t child = ::fork();
    if (child == 0) {
        prepare();
        std::string text = "made";
        try {
            make_memory_file("test", std::uint64_t{1} << 50);
        } catch (const DistBackendError& error) {
            text = error.what();
        }
        ::_exit(::write(pipe[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(pipe[1]);
    Refusal refusal;
    char buffer[500];
    for (ssize_t count = 0; (count = ::read(pipe[0], buffer, sizeof buffer)) > 0;)
        refusal.text.append(buffer, static_cast<std::size_t>(count));
    ::close(pipe[0]);
    ::waitpid(child, &refusal.status, 0);
    return refusal;
}
void limit(__rlimit_resource what, rlim_t most) {
    const rlimit limit{most, most};
    ::setrlimit(what, &limit);
}

TEST(MemoryFile, is_as_long_as_asked_for_and_takes_no_memory_before_it_is_used) {
    const UniqueFd fd = make_memory_file("test", std::uint64_t{1} << 50);
    struct stat status {};
    ASSERT_EQ(::fstat(fd.get(), &status), 0);
    EXPECT_EQ(status.st_size, off_t{1} << 50);
    EXPECT_EQ(status.st_blocks, 0);
}

TEST(MemoryFile, beyond_the_limit_for_files_is_an_error_that_says_so_and_no_signal) {
    const Refusal refusal = refused_to_child([] { limit(RLIMIT_FSIZE, 1'024'000'000); });
    EXPECT_EQ(refusal.status, 0) << "signal " << WTERMSIG(refusal.status);
    EXPECT_EQ(refusal.text,
              "cannot make shared memory: the limit for the size of files (ulimit -f) is 1024000000 bytes: expected "
              "unlimited");
}

TEST(MemoryFile, without_a_descriptor_to_be_had_is_an_error_that_says_so) {
    const Refusal refusal = refused_to_child([] { limit(RLIMIT_NOFILE, 3); });
    EXPECT_EQ(refusal.status, 0);
    EXPECT_EQ(refusal.text, "cannot make shared memory: memfd_create: Too many open files");
}

}  // namespace
}  // namespace tutti::transport
