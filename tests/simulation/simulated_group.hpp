// SimulatedGroup: a group of a GrowthWorld: its ranks' lifelines, what each has heard of the others (detail::Health),
// and exchanges. It stands for a World with its membership and its engine.
//
// Threads: one.
#pragma once

#include "core/deadline.hpp"
#include "failure/health.hpp"
#include "rendezvous/store_talk.hpp"
#include "simulation/lifeline_network.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti::simulation {

class SimulatedGroup final : public LifelineNetwork {
 public:
    struct Surroundings {
        std::mt19937_64& chance;
        const Instant& now;
        std::chrono::milliseconds silence_limit{0};
        std::function<void(Instant, std::function<void()>)> at;
        std::function<void(const std::string&)> wrong;
    };
    /// `processes`: their numbers, by rank.
    SimulatedGroup(Surroundings surroundings, std::string name, std::vector<rendezvous::Card> cards,
                   std::vector<std::size_t> processes);
    ~SimulatedGroup() override;

    const std::string& name() const noexcept { return name_; }
    int size() const noexcept { return static_cast<int>(processes_.size()); }
    std::size_t process(int rank) const { return processes_[static_cast<std::size_t>(rank)]; }

    void come(int rank) { LifelineNetwork::come(this->rank(rank)); }
    /// As a group is destroyed.
    void leave(int rank);
    void stop(int rank) { LifelineNetwork::stop(this->rank(rank)); }
    void resume(int rank);
    void die(int rank);
    /// One of its lifelines breaks.
    void cut(int rank) { LifelineNetwork::cut(this->rank(rank)); }
    bool was_cut(int rank) const { return this->rank(rank).cut; }
    void delay(int rank, std::chrono::milliseconds lag) { this->rank(rank).lag = lag; }
    using LifelineNetwork::part;

    /// As World::failure() and World::end().
    std::exception_ptr failure(int rank);
    void end(int rank, const std::string& reason);
    /// As Verdicts::gone_for_good().
    std::vector<int> gone(int rank) const;
    /// As Verdicts::is_deaf(), asked by `by`.
    bool is_deaf(int by, int rank) const;

    bool has_joined(int rank) const { return this->rank(rank).joined; }
    /// Whether all have joined that are left.
    bool has_met() const {
        return std::ranges::all_of(ranks(), [](const auto& rank) { return rank->joined || rank->closed; });
    }

    using Word = std::vector<std::int64_t>;
    using Words = std::vector<Word>;  ///< by rank
    /// As a collective, the n-th that this rank calls: once it has its first lifeline it says its word to all others,
    /// and waits for theirs (`source`: of this rank alone; -1: of all). It fails where its lifelines say that a word
    /// does not come; others may have all of them. `look` is called now and then while it waits.
    rendezvous::StoreTalk<Words> exchange(int rank, Word word, int source, Deadline deadline,
                                          std::function<void()> look = {});

 private:
    struct Account;

    void say(int rank, std::size_t exchange, const Word& word);
    bool has_heard(int rank, std::size_t exchange, int source) const;
    bool is_awaited_in_vain(int rank, std::size_t exchange) const;

    Account& account(int rank) const { return *accounts_[static_cast<std::size_t>(rank)]; }
    void at(Instant when, std::function<void()> act) override { around_.at(when, std::move(act)); }
    void inform(Rank& rank, const rendezvous::Inform& news) override;
    void cannot_join(Rank& rank) override;
    void has_left(Rank&) override {}
    void wrong(const std::string& what) override { around_.wrong(name_ + ": " + what); }

    const Surroundings around_;
    const std::string name_;
    const std::vector<std::size_t> processes_;
    std::vector<std::unique_ptr<Account>> accounts_;
};

/// A rank's place.
struct Seat {
    SimulatedGroup* group = nullptr;
    int rank = -1;
};

}  // namespace tutti::simulation
