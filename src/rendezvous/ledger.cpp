#include "rendezvous/ledger.hpp"

#include <algorithm>

namespace tutti::rendezvous {

void Ledger::ask(Id id, int neighbour, Instant now) {
    const auto piece = pieces_.find(id);
    if (piece == pieces_.end() || !piece->second.told_to.insert(neighbour).second) return;
    piece->second.asked.insert(neighbour);
    unheard_[neighbour].insert(id);
    since_.emplace(neighbour, now);
}

void Ledger::ask_all(int neighbour, Instant now) {
    for (const auto& [id, piece] : pieces_) {
        if (piece.teller != neighbour) ask(id, neighbour, now);
    }
}

void Ledger::told(Id id) {
    if (const auto piece = pieces_.find(id); piece != pieces_.end()) piece->second.told = true;
}

void Ledger::has(Id id, int neighbour, Instant now) {
    const auto unheard = unheard_.find(neighbour);
    if (unheard == unheard_.end()) return;
    unheard->second.erase(id);
    since_[neighbour] = now;
    if (!unheard->second.empty()) return;
    unheard_.erase(unheard);
    since_.erase(neighbour);
}

void Ledger::answered(Id id, int neighbour, Instant now) {
    has(id, neighbour, now);
    if (const auto piece = pieces_.find(id); piece != pieces_.end()) piece->second.asked.erase(neighbour);
}

void Ledger::drop(int neighbour) {
    unheard_.erase(neighbour);
    since_.erase(neighbour);
    for (auto& [id, piece] : pieces_) piece.asked.erase(neighbour);
}

std::vector<Ledger::Answer> Ledger::take_answers() {
    std::vector<Answer> answers;
    for (auto it = pieces_.begin(); it != pieces_.end();) {
        const Piece& piece = it->second;
        if (!piece.told || !piece.asked.empty()) {
            ++it;
            continue;
        }
        if (piece.teller != own) answers.push_back({piece.teller, it->first});
        it = pieces_.erase(it);
    }
    return answers;
}

bool Ledger::settled() const {
    return std::ranges::none_of(
        pieces_, [](const auto& entry) { return entry.second.teller == own && !entry.second.asked.empty(); });
}

}  // namespace tutti::rendezvous
