#include "group/library_collective.hpp"

namespace tutti::detail {
namespace {

constexpr std::chrono::milliseconds time_for_the_cause{1000};

}  // namespace

bool LibraryCollective::progress() {
    if (done_) return false;
    if (error_) return done_ = Clock::now() - failed_ >= time_for_the_cause;
    try {
        done_ = call_->done();
    } catch (...) {
        error_ = std::current_exception();
        failed_ = Clock::now();
    }
    return done_;
}

void LibraryCollective::pollables(std::vector<transport::Pollable>& into) const {
    if (!done_ && !error_) call_->pollables(into);
}

}  // namespace tutti::detail
