#include "rendezvous/reparenter.hpp"

namespace tutti::rendezvous {

std::optional<int> Reparenter::next(std::span<const int> candidates, Instant now) {
    for (const int rank : candidates) {
        if (!tried_.insert(rank).second) continue;
        trying_ = true;
        return rank;
    }
    failed_for_all(now);
    return std::nullopt;
}

void Reparenter::failed_for_all(Instant now) {
    trying_ = false;
    tried_.clear();
    due_ = now + pause;
}

void Reparenter::done() {
    trying_ = false;
    tried_.clear();
    due_.reset();
}

}  // namespace tutti::rendezvous
