#include "gloo/outcome.hpp"

namespace tutti::backends::gloo {

void Outcome::over(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    if (--open_ > 0) return;
    bell_.set(true);
    changed_.notify_all();
}

void Outcome::check() const {
    if (error_) std::rethrow_exception(error_);
}

void Outcome::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, leaving_max, [&] { return open_ == 0; });
}

OutcomeCall::~OutcomeCall() {
    if (outcome_->is_over()) return;
    break_off_();
    outcome_->wait();
}

bool OutcomeCall::done() {
    if (!outcome_->is_over()) return false;
    outcome_->check();
    return true;
}

}  // namespace tutti::backends::gloo
