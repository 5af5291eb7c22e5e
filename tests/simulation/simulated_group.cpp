#include "simulation/simulated_group.hpp"

#include "simulation/chance.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::simulation {

using rendezvous::Verdict;
using rendezvous::VerdictKind;

struct SimulatedGroup::Account {
    explicit Account(int rank) : health(rank) {}

    detail::Health health;
    std::exception_ptr failure;  // the first that it was told
    int heard = 0;               // words
    bool has_said = false;
};

SimulatedGroup::SimulatedGroup(Surroundings surroundings, std::string name, std::vector<rendezvous::Card> cards,
                               std::vector<std::size_t> processes)
    : LifelineNetwork(surroundings.chance, surroundings.now, surroundings.silence_limit),
      around_(std::move(surroundings)),
      name_(std::move(name)),
      processes_(std::move(processes)) {
    add_ranks(std::move(cards), 1);
    for (int rank = 0; rank < size(); ++rank) accounts_.push_back(std::make_unique<Account>(rank));
}

SimulatedGroup::~SimulatedGroup() = default;

void SimulatedGroup::leave(int number) {
    Rank& rank = this->rank(number);
    if (rank.closed) return;
    if (rank.joined) return LifelineNetwork::leave(rank);
    close_all(rank);
}

void SimulatedGroup::resume(int number) {
    Rank& rank = this->rank(number);
    rank.stopped = false;
    if (rank.runs()) LifelineNetwork::resume(rank);
}

void SimulatedGroup::die(int number) {
    Rank& rank = this->rank(number);
    if (rank.closed)
        rank.died = rank.process_ended = true;
    else
        LifelineNetwork::die(rank);
}

void SimulatedGroup::inform(Rank& rank, const rendezvous::Inform& news) {
    account(rank.number()).health.hear(news.verdict);
    if (news.id) rank.lines->informed(*news.id);
}

void SimulatedGroup::cannot_join(Rank& rank) {
    auto& failure = account(rank.number()).failure;
    if (!failure)
        failure = std::make_exception_ptr(
            PeerLost(fmt::format("rank {} cannot reach the others", rank.number()), {.rank = rank.number()}));
}

std::exception_ptr SimulatedGroup::failure(int rank) {
    Account& own = account(rank);
    const auto cause = own.health.cause();
    if (own.failure || !cause) return own.failure;
    const ErrorContext context{.group = name_, .rank = rank, .peer = cause->rank};
    if (cause->kind == VerdictKind::aborted)
        own.failure = std::make_exception_ptr(
            Aborted(fmt::format("{}: aborted by rank {}: {}", name_, cause->rank, cause->text), context));
    else
        own.failure = std::make_exception_ptr(PeerLost(fmt::format("{}: {}", name_, cause->text), context));
    return own.failure;
}

void SimulatedGroup::end(int number, const std::string& reason) {
    Rank& rank = this->rank(number);
    if (failure(number) || !rank.lines || rank.leaving || rank.closed) return;
    account(number).failure = std::make_exception_ptr(
        Aborted(name_ + " was aborted: " + reason, {.group = name_, .rank = number, .peer = number}));
    rank.lines->flood({VerdictKind::aborted, number, reason}, Clock::now());
    after_event(rank);
}

std::vector<int> SimulatedGroup::gone(int rank) const {
    return account(rank).health.gone_for_good(*this->rank(rank).roster.cards);
}

bool SimulatedGroup::is_deaf(int by, int rank) const {
    const Rank &own = this->rank(by), &other = this->rank(rank);
    return other.closed && !is_parted(own, other);
}

void SimulatedGroup::say(int rank) {
    ++account(rank).heard;
    account(rank).has_said = true;
    for (int other = 0; other < size(); ++other) {
        if (other == rank) continue;
        const bool gets_lost = below(around_.chance, 2) == 0;  // if this rank ends meanwhile
        around_.at(soon(rank, other), [this, rank, other, gets_lost] {
            if (!gets_lost || !this->rank(rank).died) ++account(other).heard;
        });
    }
}

bool SimulatedGroup::is_awaited_in_vain(int rank) const {
    for (int other = 0; other < size(); ++other) {
        if (other != rank && !account(other).has_said && is_deaf(rank, other)) return true;
    }
    return false;
}

int SimulatedGroup::heard(int rank) const {
    return account(rank).heard;
}

}  // namespace tutti::simulation
