#include "core/fork_guard.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

namespace tutti::fork_guard {
namespace {

UniqueFd open_null() {
    return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool is_open(int fd) {
    return ::fcntl(fd, F_GETFD) >= 0;
}

/// What `child` returns in a forked child.
template <class Child>
bool in_a_child(Child child) {
    const pid_t process = ::fork();
    if (process == 0) ::_exit(child() ? 0 : 1);
    int status = -1;
    ::waitpid(process, &status, 0);
    return status == 0;
}

TEST(GuardedFd, is_closed_in_a_child) {
    const GuardedFd guarded(open_null());
    EXPECT_TRUE(in_a_child([&] { return !is_open(guarded.get()); }));
    EXPECT_TRUE(is_open(guarded.get()));
}

TEST(GuardedFd, leaves_its_number_alone_in_a_child_where_another_file_has_it) {
    std::optional<GuardedFd> destroyed(open_null()), assigned(open_null());
    EXPECT_TRUE(in_a_child([&] {
        const int first = destroyed->get(), second = assigned->get();
        const UniqueFd file = open_null();
        if (::dup2(file.get(), first) != first || ::dup2(file.get(), second) != second) return false;
        destroyed.reset();
        *assigned = GuardedFd(open_null());
        return is_open(first) && is_open(second) && is_open(assigned->get());
    }));
    const int number = destroyed->get();
    destroyed.reset();
    EXPECT_FALSE(is_open(number));
}

}  // namespace
}  // namespace tutti::fork_guard
