#include "transport/matching.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

auto takes_from(int source) {
    return [source](const Transfer* t) { return t->peer == any_source || t->peer == source; };
}

}  // namespace

void Matching::post(Transfer& receive) {
    posted_[receive.channel].push_back(&receive);
    if (receive.peer == any_source) ++posted_for_any_;
}

Transfer* Matching::take_posted(int source, std::uint64_t channel) {
    const auto found = posted_.find(channel);
    if (found == posted_.end()) return nullptr;
    auto& receives = found->second;
    const auto match = std::ranges::find_if(receives, takes_from(source));
    if (match == receives.end()) return nullptr;
    Transfer* transfer = *match;
    receives.erase(match);
    if (receives.empty()) posted_.erase(found);
    if (transfer->peer == any_source) --posted_for_any_;
    return transfer;
}

bool Matching::is_posted(int source, std::uint64_t channel) const {
    const auto found = posted_.find(channel);
    return found != posted_.end() && std::ranges::any_of(found->second, takes_from(source));
}

const Transfer* Matching::posted_for(int source, std::uint64_t channel) const {
    const auto found = posted_.find(channel);
    if (found == posted_.end()) return nullptr;
    const auto receive = std::ranges::find(found->second, source, &Transfer::peer);
    return receive == found->second.end() ? nullptr : *receive;
}

bool Matching::withdraw(const Transfer& receive) {
    const auto found = posted_.find(receive.channel);
    if (found == posted_.end()) return false;
    const auto count = std::erase(found->second, &receive);
    if (found->second.empty()) posted_.erase(found);
    if (count > 0 && receive.peer == any_source) --posted_for_any_;
    return count > 0;
}

Unexpected& Matching::keep(int source, const Frame& frame) {
    Unexpected& message = unexpected_[frame.channel].emplace_back();
    message.source = source;
    message.frame = frame;
    return message;
}

Unexpected* Matching::find(const Transfer& receive) {
    const auto found = unexpected_.empty() ? unexpected_.end() : unexpected_.find(receive.channel);
    if (found == unexpected_.end()) return nullptr;
    const auto message = std::ranges::find_if(found->second, [&](const Unexpected& u) {
        return u.bound == nullptr && (receive.peer == any_source || u.source == receive.peer);
    });
    return message == found->second.end() ? nullptr : &*message;
}

void Matching::forget(const Unexpected& message) {
    forget_if(message.frame.channel, [&](const Unexpected& other) { return &other == &message; });
}

void Matching::forget_if(std::uint64_t channel, const std::function<bool(const Unexpected&)>& condition) {
    const auto found = unexpected_.find(channel);
    if (found == unexpected_.end()) return;
    found->second.remove_if(condition);
    if (found->second.empty()) unexpected_.erase(found);
}

void Matching::forget_if(const std::function<bool(const Unexpected&)>& condition) {
    for (auto& [channel, messages] : unexpected_) messages.remove_if(condition);
    std::erase_if(unexpected_, [](const auto& entry) { return entry.second.empty(); });
}

const std::list<Unexpected>& Matching::on(std::uint64_t channel) const {
    static const std::list<Unexpected> none;
    const auto found = unexpected_.empty() ? unexpected_.end() : unexpected_.find(channel);
    return found == unexpected_.end() ? none : found->second;
}

void Matching::drop_all() {
    posted_.clear();
    unexpected_.clear();
    posted_for_any_ = 0;
}

}  // namespace tutti::transport
