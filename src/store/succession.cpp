#include "store/succession.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::store {

bool Succession::asks(Instant now) const {
    if (role_ == Role::following) return now >= heard_ + times_.silence;  // and then no lease is left
    // A primary that has announced a new term has given up the old one, and the standby may not know the new one yet.
    return role_ == Role::paired && acked_ >= term_seq_ && (broken_ || now >= lease_end_ + times_.patience) &&
           now >= lease_end_;
}

void Succession::came(ClientId client, std::uint64_t seq) {
    voters_.insert(client);
    if (tracks_) pending_.push_back({seq, client, true});
}

void Succession::left(ClientId client, std::uint64_t seq) {
    if (voters_.erase(client) == 0) return;
    if (tracks_) pending_.push_back({seq, client, false});
}

// A client that the primary has lost may have voted for the standby, and one whose coming the standby has not
// acknowledged does not know yet that it has a vote.
void Succession::vote(ClientId client, Term term, Instant now) {
    if (!asks(now) || term != term_ || !voters_.contains(client)) return;
    if (role_ == Role::paired && !agreed_.contains(client)) return;
    asked_ = true;
    votes_.insert(client);
    settle(now);
}

// With equal halves the standby goes on: the primary's host is the one that was lost, most likely.
void Succession::settle(Instant now) {
    TUTTI_ASSERT(asks(now));
    std::erase_if(votes_, [this](ClientId client) { return !voters_.contains(client); });
    if (role_ == Role::following ? !votes_.empty() && 2 * votes_.size() >= voters_.size()
                                 : 2 * votes_.size() > agreed_.size() || agreed_.empty())
        go_alone();
}

void Succession::go_alone() {
    TUTTI_ASSERT(role_ == Role::paired || role_ == Role::following);
    role_ = Role::alone;
    ++term_;
    tracks_ = broken_ = asked_ = false;
    votes_.clear();
    agreed_.clear();
    pending_.clear();
}

void Succession::other_goes_on() {
    TUTTI_ASSERT(role_ != Role::alone || tracks_);
    role_ = Role::retired;
}

// An end in order comes after all that the other one has sent, also after its word that it goes on. After another end
// the primary knows within its lease that the standby has not begun to ask for votes.
void Succession::other_ended(bool gone, bool in_order, Instant now) {
    switch (role_) {
        case Role::alone: tracks_ = false; break;  // the standby did not have everything yet
        case Role::paired:
            if (gone && (in_order || now < lease_end_)) return go_alone();
            broken_ = true;
            if (asks(now)) settle(now);
            break;
        case Role::learning: role_ = Role::retired; break;
        case Role::following:
            if (gone && in_order) return go_alone();
            break;
        case Role::retired: break;
    }
}

void Succession::begin_pair(std::uint64_t seq) {
    TUTTI_ASSERT(role_ == Role::alone && !tracks_);
    tracks_ = true;
    agreed_ = voters_;
    pending_.clear();
    begun_ = seq;
    acked_ = term_seq_ = 0;
}

bool Succession::acked(std::uint64_t seq, Instant pulse, bool asked, Instant now) {
    if (!tracks_) return false;
    acked_ = std::max(acked_, seq);
    const auto later = std::ranges::find_if(pending_, [this](const Change& change) { return change.seq > acked_; });
    for (auto at = pending_.begin(); at != later; ++at)
        at->came ? void(agreed_.insert(at->client)) : void(agreed_.erase(at->client));
    pending_.erase(pending_.begin(), later);
    if (role_ == Role::alone) {
        if (acked_ < begun_ || now >= pulse + times_.lease) return false;
        role_ = Role::paired;
        lease_end_ = pulse + times_.lease;
        return true;
    }
    if (role_ != Role::paired) return false;
    asked = asked || asks(now) || asked_;
    lease_end_ = std::max(lease_end_, pulse + times_.lease);
    return asked && acked_ >= term_seq_;
}

Term Succession::new_term(std::uint64_t seq) {
    TUTTI_ASSERT(role_ == Role::paired && seq > acked_);
    term_seq_ = seq;
    asked_ = false;
    votes_.clear();
    return ++term_;
}

void Succession::heard(Instant now) {
    if (asks(now)) asked_ = true;
    heard_ = now;
    votes_.clear();
}

void Succession::follow(Term term, Instant now) {
    TUTTI_ASSERT((role_ == Role::learning || role_ == Role::following) && term > term_);
    role_ = Role::following;
    term_ = term;
    asked_ = false;
    heard(now);
}

bool Ballot::grant(std::string_view server, Term term) {
    if (term < last_) return false;
    if (term == last_) return server == given_to_;
    last_ = term;
    given_to_ = server;
    return true;
}

void Ballot::know(Term term) {
    if (last_ + 1 >= term) return;
    last_ = term - 1;
    given_to_.clear();
}

}  // namespace tutti::store
