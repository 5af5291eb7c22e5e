#include "transport/matching.hpp"

#include "core/assert.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport {
namespace {

auto takes_from(int source) {
    return [source](const Transfer* t) { return t->peer == any_source || t->peer == source; };
}

// Whether a message that no receive has matched, nor a claim, is one for this receive, probe or claim.
bool suits(const Unexpected& message, const Transfer& receive) {
    return message.bound == nullptr && !message.claimed &&
           (receive.peer == any_source || message.source == receive.peer) &&
           ((message.frame.channel ^ receive.channel) & receive.channel_bits) == 0;
}

}  // namespace

// By one more or fewer that waits.
void Matching::count_of_any(const Transfer& waiting, int by) {
    TUTTI_ASSERT(by == 1 || by == -1);
    if (waiting.peer != any_source) return;
    std::size_t& count = waiting.standing ? standing_ : posted_for_any_;
    TUTTI_ASSERT(by > 0 || count > 0);
    count += static_cast<std::size_t>(by);
}

void Matching::post(Transfer& receive) {
    TUTTI_ASSERT(receive.peer >= any_source);
    TUTTI_ASSERT(!receive.done && receive.number == 0);
    if (receive.match == Transfer::Match::take)
        posted_.add(receive.channel, &receive);
    else
        probes_.push_back(&receive);
    count_of_any(receive, 1);
}

Transfer* Matching::take_posted(int source, std::uint64_t channel) {
    TUTTI_ASSERT(source >= 0);
    const auto found = posted_.find(channel);
    if (found == posted_.end()) return nullptr;
    const auto match = std::ranges::find_if(found->second, takes_from(source));
    if (match == found->second.end()) return nullptr;
    Transfer* const transfer = *match;
    TUTTI_ASSERT(transfer->channel == channel);
    posted_.remove(found, match);
    count_of_any(*transfer, -1);
    return transfer;
}

bool Matching::is_posted(int source, std::uint64_t channel) const {
    TUTTI_ASSERT(source >= 0);
    const auto* const receives = posted_.on(channel);
    return receives != nullptr && std::ranges::any_of(*receives, takes_from(source));
}

const Transfer* Matching::posted_for(int source, std::uint64_t channel) const {
    TUTTI_ASSERT(source >= 0);
    const auto* const receives = posted_.on(channel);
    if (receives == nullptr) return nullptr;
    const auto receive = std::ranges::find(*receives, source, &Transfer::peer);
    return receive == receives->end() ? nullptr : *receive;
}

bool Matching::withdraw(const Transfer& receive) {
    TUTTI_ASSERT(receive.peer >= any_source);
    const auto is_it = [&](const Transfer* other) { return other == &receive; };
    std::size_t count = 0;
    if (receive.match != Transfer::Match::take)
        count = std::erase_if(probes_, is_it);
    else if (const auto found = posted_.find(receive.channel); found != posted_.end())
        count = posted_.remove_if(found, is_it);
    TUTTI_ASSERT(count <= 1);
    if (count > 0) count_of_any(receive, -1);
    return count > 0;
}

Transfer* Matching::take_probe(const Unexpected& message) {
    const auto found = std::ranges::find_if(probes_, [&](const Transfer* probe) { return suits(message, *probe); });
    if (found == probes_.end()) return nullptr;
    Transfer* const probe = *found;
    probes_.erase(found);
    TUTTI_ASSERT(probe->match != Transfer::Match::take);
    count_of_any(*probe, -1);
    return probe;
}

Unexpected& Matching::keep(int source, const Frame& frame) {
    TUTTI_ASSERT(source >= 0);
    Unexpected message;
    message.source = source;
    message.number = ++last_number_;
    message.frame = frame;
    return unexpected_.add(frame.channel, std::move(message));
}

Unexpected& Matching::keep_with_bytes(int source, const Frame& frame) {
    TUTTI_ASSERT(frame.kind == Frame::Kind::eager);
    Unexpected& message = keep(source, frame);
    message.bytes = memory_.take(frame.length);
    TUTTI_ASSERT(message.bytes.get() != nullptr);
    return message;
}

Unexpected* Matching::find(const Transfer& receive) {
    TUTTI_ASSERT(receive.peer >= any_source);
    if (unexpected_.empty()) return nullptr;
    if (receive.number != 0) return claimed(receive.channel, receive.number);
    const Unexpected* first = nullptr;
    if (~receive.channel_bits != 0) {
        unexpected_.for_each([&](const Unexpected& one) {
            if (suits(one, receive) && (first == nullptr || one.number < first->number)) first = &one;
        });
        return const_cast<Unexpected*>(first);
    }
    const auto found = unexpected_.find(receive.channel);
    if (found == unexpected_.end()) return nullptr;
    TUTTI_ASSERT(!found->second.empty());
    const auto message = std::ranges::find_if(found->second, [&](const Unexpected& u) { return suits(u, receive); });
    return message == found->second.end() ? nullptr : &*message;
}

Unexpected* Matching::claimed(std::uint64_t channel, std::uint64_t number) {
    TUTTI_ASSERT(number > 0);
    const auto found = unexpected_.find(channel);
    if (found == unexpected_.end()) return nullptr;
    const auto message = std::ranges::find(found->second, number, &Unexpected::number);
    if (message == found->second.end()) return nullptr;
    TUTTI_ASSERT(message->claimed);
    return &*message;
}

void Matching::forget(const Unexpected& message) {
    TUTTI_ASSERT(message.source >= 0);
    const auto found = unexpected_.find(message.frame.channel);
    if (found == unexpected_.end()) return;
    const auto at = std::ranges::find_if(found->second, [&](const Unexpected& other) { return &other == &message; });
    if (at == found->second.end()) return;
    memory_.give_back(std::move(at->bytes));
    unexpected_.remove(found, at);
}

void Matching::forget_if(std::uint64_t channel, const std::function<bool(const Unexpected&)>& condition) {
    if (const auto found = unexpected_.find(channel); found != unexpected_.end())
        unexpected_.remove_if(found, condition);
}

void Matching::forget_if(const std::function<bool(const Unexpected&)>& condition) {
    unexpected_.remove_if(condition);
}

const std::list<Unexpected>& Matching::on(std::uint64_t channel) const {
    static const auto& none = *new std::list<Unexpected>;  // groups may outlive static objects
    const std::list<Unexpected>* const messages = unexpected_.empty() ? nullptr : unexpected_.on(channel);
    return messages == nullptr ? none : *messages;
}

void Matching::drop_all() {
    TUTTI_ASSERT(posted_for_any_ + standing_ == 0 || !posted_.empty() || !probes_.empty());
    posted_.clear();
    probes_.clear();
    unexpected_.clear();
    posted_for_any_ = standing_ = 0;
}

}  // namespace tutti::transport
