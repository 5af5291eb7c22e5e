// Members: the processes that use a store's file, and whether they are alive.
//
// Threads: none of its own; the owner serialises calls.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tutti::store {

class Members {
 public:
    /// A unique name of this process: the boot, the pid name space, the process's id and start, and a random number.
    static std::string own_identity();

    void join(std::string_view identity);
    void leave(std::string_view identity);
    std::size_t present() const noexcept { return present_.size(); }
    /// The number of processes that ever joined, including those that left.
    std::size_t ever() const noexcept { return ever_; }
    /// Describes a member that is dead and did not leave; a member on another host is never known to be dead.
    std::optional<std::string> dead_member() const;
    /// The same check for one process.
    static std::optional<std::string> is_dead(const std::string& identity);

 private:
    std::set<std::string, std::less<>> present_;
    std::size_t ever_ = 0;
};

}  // namespace tutti::store
