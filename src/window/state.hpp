// WindowState: the state that all handles of a window share.
//
// Threads: any.
#pragma once

#include "window/memory.hpp"
#include "window/remote.hpp"
#include "window/service.hpp"

#include <tutti/window.hpp>

#include <atomic>
#include <memory>

namespace tutti::detail {

class WindowState {
 public:
    /// Construct this after all ranks have made the memory.
    WindowState(std::shared_ptr<Group> group, std::shared_ptr<const window::Memory> memory, std::uint32_t number);
    ~WindowState();
    WindowState(const WindowState&) = delete;
    WindowState& operator=(const WindowState&) = delete;

    Group& group() const noexcept { return *group_; }
    const std::shared_ptr<Group>& shared_group() const noexcept { return group_; }
    const window::Memory& memory() const noexcept { return *memory_; }
    window::Remote& remote() const noexcept { return *remote_; }
    bool was_let_go_by(int rank) const {
        return memory_->is_mapped(rank) ? memory_->was_let_go_by(rank) : remote_->was_let_go_by(rank);
    }
    bool is_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
    /// For close(), which stops serving other hosts, and returns true if this call has closed the window.
    enum class End { by_all, by_this_rank_alone };
    bool close(End end) noexcept;

 private:
    const std::shared_ptr<Group> group_;
    const std::shared_ptr<const window::Memory> memory_;
    const std::shared_ptr<window::Remote> remote_;
    std::shared_ptr<window::Service> service_;  // null: all ranks map the memory
    std::atomic<bool> closed_{false};
};

}  // namespace tutti::detail
