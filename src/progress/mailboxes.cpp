#include "progress/mailboxes.hpp"

#include "core/assert.hpp"
#include "failure/failure_inquiry.hpp"
#include "failure/verdicts.hpp"
#include "operation/channel.hpp"
#include "operation/group_table.hpp"
#include "operation/member.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti::detail {

template <class F>
void Mailboxes::for_each(F f) {
    if (own_ != nullptr) f(*own_);
    for (const auto& other : others_) {
        if (const auto mailbox = other.lock()) f(*mailbox);
    }
}

void Mailboxes::add(const std::shared_ptr<transport::Mailbox>& mailbox) {
    TUTTI_ASSERT(mailbox != nullptr);
    std::erase_if(others_, [](const auto& other) { return other.expired(); });
    others_.push_back(mailbox);
}

bool Mailboxes::progress() {
    bool moved = false;
    for_each([&](transport::Mailbox& mailbox) { moved |= mailbox.progress(); });
    return moved;
}

void Mailboxes::record_unmatched() {
    std::map<std::uint32_t, std::vector<record::UnmatchedMessage>> messages;
    for (const std::uint32_t index : std::exchange(unmatched_, {})) messages[index];  // they may have gone
    for_each([&](const transport::Mailbox& mailbox) {
        mailbox.for_each_unmatched([&](int from, std::uint64_t channel, std::uint64_t fingerprint) {
            TUTTI_ASSERT(from >= 0);
            const int tag = Channel::is_message(channel) ? Channel::tag(channel) : -1;
            const auto group = tag < 0 ? nullptr : groups_.find(Channel::group(channel));
            if (!group) return;
            auto& of_group = messages[Channel::group(channel)];
            if (of_group.size() < record::unmatched_max)
                of_group.push_back({.from = group->ranks().rank_of(from), .tag = tag, .fingerprint = fingerprint});
        });
    });
    for (auto& [index, of_group] : messages) {
        if (!of_group.empty()) unmatched_.push_back(index);
        if (const auto group = groups_.find(index)) group->recorder().note_unmatched(std::move(of_group));
    }
}

void Mailboxes::refuse_unmet() {
    for_each([](transport::Mailbox& mailbox) { mailbox.refuse_unmet(); });
}

std::vector<int> Mailboxes::finish() {
    std::vector<int> late;
    for_each([&](transport::Mailbox& mailbox) {
        for (const int peer : mailbox.finish()) {
            if (std::ranges::find(late, peer) == late.end()) late.push_back(peer);
        }
    });
    return late;
}

void Mailboxes::drop_all() {
    for_each([](transport::Mailbox& mailbox) { mailbox.drop_all(); });
}

void Mailboxes::pollables(std::vector<transport::Pollable>& into, Which which) {
    TUTTI_ASSERT(own_ != nullptr);
    if (which == Which::own) return own_->pollables(into);
    into.clear();
    for_each([&](transport::Mailbox& mailbox) {
        mailbox.pollables(of_one_);
        into.insert(into.end(), of_one_.begin(), of_one_.end());
    });
}

void Mailboxes::heed() {
    for_each([this](transport::Mailbox& mailbox) { heed(mailbox); });
}

void Mailboxes::heed(transport::Mailbox& mailbox) {
    using Kind = transport::Finding::Kind;
    if (!mailbox.has_findings()) return;
    for (const transport::Finding& finding : mailbox.take_findings()) {
        switch (finding.kind) {
            case Kind::mismatch: mismatch(finding); break;
            case Kind::damaged: verdicts_.tell_of_damage(finding.peer, finding.what); break;
            case Kind::left_group: groups_.note_left(Channel::group(finding.channel), finding.peer); break;
        }
    }
}

void Mailboxes::mismatch(const transport::Finding& finding) {
    TUTTI_ASSERT(finding.peer >= 0);
    const auto group = groups_.find(Channel::group(finding.channel));
    if (!group) return;
    const int from = group->ranks().rank_of(finding.peer);
    const std::uint64_t sequence = Channel::sequence(finding.channel);
    if (finding.theirs == finding.mine)
        return group->inquiry().mismatch_of_blocks(from, sequence, finding.mine, finding.their_bytes, finding.my_bytes);
    group->inquiry().mismatch(from, sequence, finding.theirs, finding.mine);
}

}  // namespace tutti::detail
