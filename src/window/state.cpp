#include "window/state.hpp"

#include <utility>

namespace tutti::detail {

WindowState::WindowState(std::shared_ptr<Group> group, std::shared_ptr<const window::Memory> memory,
                         std::uint32_t number)
    : group_(std::move(group)),
      memory_(std::move(memory)),
      remote_(std::make_shared<window::Remote>(*group_, number, *memory_)) {
    if (memory_->is_mapped_by_all()) return;
    service_ = std::make_shared<window::Service>(group_, memory_, remote_, number);
    service_->begin();
}

WindowState::~WindowState() {
    close(End::by_this_rank_alone);
}

bool WindowState::close(End end) noexcept {
    if (closed_.exchange(true)) return false;
    if (group_->world().inherited()) return true;
    if (end == End::by_this_rank_alone) memory_->let_go();
    if (service_) end == End::by_all ? service_->end() : service_->let_go();
    return true;
}

}  // namespace tutti::detail
