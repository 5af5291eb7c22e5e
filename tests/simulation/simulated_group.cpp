#include "simulation/simulated_group.hpp"

#include "simulation/chance.hpp"
#include "simulation/store_world.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::simulation {

using rendezvous::StoreTalk;
using rendezvous::Verdict;
using rendezvous::VerdictKind;

struct SimulatedGroup::Account {
    explicit Account(int rank) : health(rank) {}

    detail::Health health;
    std::exception_ptr failure;  // the first that it was told
    std::size_t exchanges = 0, said = 0;
    std::map<std::size_t, Words> heard;  // in the exchanges that are not over
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

// A word that is on its way when its rank ends may get lost.
void SimulatedGroup::say(int rank, std::size_t exchange, const Word& word) {
    const auto hear = [this, rank, exchange, word](int other) {
        Words& words = account(other).heard[exchange];
        words.resize(processes_.size());
        words[static_cast<std::size_t>(rank)] = word;
    };
    account(rank).said = exchange + 1;
    hear(rank);
    for (int other = 0; other < size(); ++other) {
        if (other == rank) continue;
        const bool gets_lost = below(around_.chance, 2) == 0;  // if this rank ends meanwhile
        around_.at(soon(rank, other), [this, hear, rank, other, gets_lost] {
            if (!gets_lost || !this->rank(rank).died) hear(other);
        });
    }
}

bool SimulatedGroup::has_heard(int rank, std::size_t exchange, int source) const {
    const auto words = account(rank).heard.find(exchange);
    if (words == account(rank).heard.end()) return false;
    if (source >= 0) return !words->second[static_cast<std::size_t>(source)].empty();
    return std::ranges::none_of(words->second, [](const Word& word) { return word.empty(); });
}

// One that has not said its word refuses connections, as the data's transport sees it.
bool SimulatedGroup::is_awaited_in_vain(int rank, std::size_t exchange) const {
    for (int other = 0; other < size(); ++other) {
        if (other != rank && account(other).said <= exchange && is_deaf(rank, other)) return true;
    }
    return false;
}

StoreTalk<SimulatedGroup::Words> SimulatedGroup::exchange(int rank, Word word, int source, Deadline deadline,
                                                          std::function<void()> look) {
    const std::size_t number = account(rank).exchanges++;
    std::chrono::milliseconds moment(1);
    for (bool has_said = false; !has_said || !has_heard(rank, number, source);) {
        if (!has_said && has_joined(rank)) {
            has_said = true;
            say(rank, number, word);
            continue;
        }
        if (const auto why = failure(rank)) std::rethrow_exception(why);
        if (deadline.expired()) {
            end(rank, "an operation timed out");
            throw Timeout("an operation timed out", {});
        }
        const rendezvous::StoreRequest pause = pause_of(moment);
        co_await pause;
        if (is_awaited_in_vain(rank, number)) throw PeerLost("a rank cannot be reached any more", {});
        if (look) look();
        moment = std::min(2 * moment, std::chrono::milliseconds(50));
    }
    co_return std::move(account(rank).heard.extract(number).mapped());
}

}  // namespace tutti::simulation
