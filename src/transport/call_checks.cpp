#include "transport/call_checks.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::transport {

// Perhaps our collective is finished, or has no receive for it. The fingerprint still tells what its sender is doing.
bool CallChecks::allows_unmet(int from, const Frame& frame) {
    TUTTI_ASSERT(from >= 0);
    TUTTI_ASSERT(matching_.posted_for(from, frame.channel) == nullptr);
    if ((frame.channel & collective_channel) == 0) return true;
    const std::uint64_t mine = calls_.fingerprint_of(frame.channel);
    if (mine == 0) return true;
    const bool surplus = mine == frame.fingerprint && calls_.has_finished(frame.channel);
    if (mine == frame.fingerprint && !surplus) return true;
    findings_.add_mismatch(from, frame, mine, surplus ? frame.length : 0, 0);
    TUTTI_ASSERT(!findings_.empty());
    return false;
}

CallChecks::Answer CallChecks::answer_probe(int from, const Frame& frame) {
    TUTTI_ASSERT(from >= 0);
    if (calls_.has_left(frame.channel)) return Answer::refused;
    const std::uint64_t mine = calls_.fingerprint_of(frame.channel);
    if (mine != 0 && mine != frame.fingerprint) {
        findings_.add_mismatch(from, frame, mine, 0, 0);
        return Answer::mismatch;
    }
    return mine == 0 || !calls_.has_sent_all(from, frame.channel) ? Answer::none : Answer::finished;
}

// A receive that nothing has met by now waits for a message that will not come.
void CallChecks::on_finished(int from, const Frame& frame) {
    TUTTI_ASSERT(from >= 0);
    const Transfer* const vain = matching_.posted_for(from, frame.channel);
    if (vain == nullptr || vain->fingerprint != frame.fingerprint) return;
    TUTTI_ASSERT(vain->peer == from);
    findings_.add_mismatch(from, frame, frame.fingerprint, 0, vain->bytes);
}

void CallChecks::check_unexpected(std::uint64_t channel, std::uint64_t fingerprint) {
    TUTTI_ASSERT((channel & collective_channel) != 0);
    TUTTI_ASSERT(fingerprint != 0);
    const auto& messages = matching_.on(channel);
    const auto other = std::ranges::find_if(
        messages, [&](const Unexpected& message) { return message.frame.fingerprint != fingerprint; });
    if (other != messages.end()) findings_.add_mismatch(other->source, other->frame, fingerprint, 0, 0);
}

void CallChecks::check_surplus(std::uint64_t channel, std::uint64_t fingerprint) {
    TUTTI_ASSERT((channel & collective_channel) != 0);
    TUTTI_ASSERT(fingerprint != 0);
    const auto& messages = matching_.on(channel);
    if (messages.empty()) return;
    const Unexpected& message = messages.front();
    findings_.add_mismatch(message.source, message.frame, fingerprint, message.frame.length, 0);
}

}  // namespace tutti::transport
