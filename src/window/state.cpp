#include "window/state.hpp"

#include <utility>

namespace tutti::detail {

WindowState::WindowState(std::shared_ptr<Group> group, std::shared_ptr<const window::Memory> memory,
                         std::uint32_t number)
    : group_(std::move(group)), memory_(std::move(memory)), remote_(*group_, number) {
    if (memory_->is_mapped_by_all()) return;
    service_ = std::make_shared<window::Service>(group_, memory_, number);
    service_->begin();
}

WindowState::~WindowState() {
    close();
}

bool WindowState::close() noexcept {
    if (closed_.exchange(true)) return false;
    if (service_ && !group_->world().inherited()) service_->end();
    return true;
}

}  // namespace tutti::detail
