#include "group/library_collective.hpp"

#include "core/assert.hpp"
#include "reduce/reduce.hpp"

namespace tutti::detail {
namespace {

constexpr std::chrono::milliseconds time_for_the_cause{1000};

}  // namespace

std::unique_ptr<engine::Running> LibraryAgreement::begin(std::uint64_t channel, std::uint64_t fingerprint) {
    const engine::Operands operands{.channel = channel, .fingerprint = fingerprint};
    TUTTI_ASSERT(barrier_ != nullptr && fingerprint != 0);
    if (!over_) return std::make_unique<engine::Execution>(barrier_, operands, context_);
    over_->restart(barrier_, operands);
    return std::move(over_);
}

void LibraryAgreement::end(std::unique_ptr<engine::Running> barrier) {
    TUTTI_ASSERT(barrier != nullptr && barrier->done() && !over_);
    over_.reset(static_cast<engine::Execution*>(barrier.release()));
}

bool LibraryCollective::progress() {
    if (done_) return false;
    if (error_) return done_ = Clock::now() - failed_ >= time_for_the_cause;
    TUTTI_ASSERT(!done_);
    try {
        done_ = call_->done();
        if (done_) divide();
    } catch (...) {
        error_ = std::current_exception();
        failed_ = Clock::now();
    }
    return done_;
}

void LibraryCollective::divide() const {
    TUTTI_ASSERT(request_ != nullptr && division_.divisor > 0);
    if (division_.elements == 0 || division_.divisor == 1) return;
    TUTTI_ASSERT(request_->output != nullptr);
    const void* const sum = request_->output;
    kernels::combine(ReduceOp::Kind::avg, request_->dtype, request_->output, {&sum, 1}, division_.elements,
                     division_.divisor);
}

void LibraryCollective::pollables(std::vector<transport::Pollable>& into) const {
    if (!done_ && !error_) call_->pollables(into);
}

}  // namespace tutti::detail
