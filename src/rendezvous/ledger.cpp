#include "rendezvous/ledger.hpp"

#include <algorithm>
#include <iterator>

namespace tutti::rendezvous {

void Ledger::open(Id id, int source) {
    Piece& piece = pieces_[id] = {.source = source};
    if (source >= 0) piece.askers.insert(source);
}

bool Ledger::owes(Id id, int neighbour) const {
    const auto piece = pieces_.find(id);
    return piece != pieces_.end() && piece->second.askers.contains(neighbour);
}

void Ledger::owe_too(Id id, int neighbour) {
    const auto piece = pieces_.find(id);
    if (piece != pieces_.end()) piece->second.askers.insert(neighbour);
}

void Ledger::ask(Id id, int neighbour, Instant now) {
    const auto piece = pieces_.find(id);
    if (piece == pieces_.end() || !piece->second.sent_to.insert(neighbour).second) return;
    piece->second.asked.insert(neighbour);
    unacknowledged_[neighbour].insert(id);
    since_.emplace(neighbour, now);
}

void Ledger::ask_all(int neighbour, Instant now) {
    for (const auto& [id, piece] : pieces_) {
        if (piece.source != neighbour) ask(id, neighbour, now);
    }
}

void Ledger::done(Id id) {
    if (const auto piece = pieces_.find(id); piece != pieces_.end()) piece->second.done = true;
}

void Ledger::acknowledged(Id id, int neighbour, Instant now) {
    const auto unacknowledged = unacknowledged_.find(neighbour);
    if (unacknowledged == unacknowledged_.end()) return;
    unacknowledged->second.erase(id);
    since_[neighbour] = now;
    if (!unacknowledged->second.empty()) return;
    unacknowledged_.erase(unacknowledged);
    since_.erase(neighbour);
}

void Ledger::answered(Id id, int neighbour, Instant now) {
    acknowledged(id, neighbour, now);
    if (const auto piece = pieces_.find(id); piece != pieces_.end()) piece->second.asked.erase(neighbour);
}

void Ledger::forgive(Instant looked, Clock::duration most, Instant now) {
    for (auto& [neighbour, since] : since_) {
        const Clock::duration pause = now - std::max(since, looked);
        if (pause > most) since += pause - most;
    }
}

void Ledger::drop(int neighbour) {
    unacknowledged_.erase(neighbour);
    since_.erase(neighbour);
    for (auto& [id, piece] : pieces_) piece.asked.erase(neighbour);
}

std::vector<Ledger::Answer> Ledger::take_answers(const std::function<int(int rank)>& direction) {
    std::vector<Answer> answers;
    for (auto it = pieces_.begin(); it != pieces_.end();) {
        auto& [id, piece] = *it;
        std::erase_if(piece.askers, [&, id = id, &piece = piece](int asker) {
            const auto lies_there = [&](int rank) { return direction(rank) == direction(asker); };
            const bool can = piece.done && std::ranges::all_of(piece.asked, lies_there);
            if (can) answers.push_back({asker, id});
            return can;
        });
        it = piece.done && piece.asked.empty() ? pieces_.erase(it) : std::next(it);
    }
    return answers;
}

bool Ledger::settled() const {
    return std::ranges::none_of(
        pieces_, [](const auto& entry) { return entry.second.source == own && !entry.second.asked.empty(); });
}

}  // namespace tutti::rendezvous
