#include "ddp/usage.hpp"

#include "core/assert.hpp"

#include <tutti/distributed.hpp>

#include <algorithm>
#include <cstring>

namespace tutti::ddp {

Usage::Usage(std::size_t parameters, Shared shared) : here_(parameters) {
    if (shared == Shared::yes) everywhere_ = zeros(int32, Extents::of(static_cast<std::int64_t>(parameters)));
}

Usage::~Usage() {
    if (!work_ || !*work_ || work_->is_completed()) return;
    work_->get_future().add_done_callback([memory = *everywhere_](const auto&) {});
}

void Usage::leave_out(std::size_t parameter, const TensorView& place, Keep keep) {
    TUTTI_ASSERT(parameter < here_.size() && here_[parameter] == 0);
    TUTTI_ASSERT(place.device().type == Device::Type::cpu);
    LeftOut& left_out = left_out_.emplace_back(LeftOut{.parameter = parameter});
    if (keep == Keep::yes) left_out.kept = Tensor(place, nullptr).clone();
    if (place.byte_count() > 0) std::memset(place.data(), 0, place.byte_count());
}

void Usage::send(const ProcessGroup& group) {
    TUTTI_ASSERT(!work_);
    if (!everywhere_) return;
    std::ranges::copy(here_, everywhere_->data<std::int32_t>());
    work_ = async::all_reduce(everywhere_->view(), {.op = ReduceOp::max, .group = group});
}

bool Usage::receive() {
    if (!work_) return false;
    work_->wait();
    return true;
}

void Usage::clear() {
    std::ranges::fill(here_, 0);
    work_.reset();
}

}  // namespace tutti::ddp
