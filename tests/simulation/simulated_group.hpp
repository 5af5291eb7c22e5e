// SimulatedGroup: a group of a GrowthWorld: its ranks' lifelines, what each has heard of the others (detail::Health),
// and a barrier. It stands for a World with its membership and its engine.
//
// Threads: one.
#pragma once

#include "failure/health.hpp"
#include "simulation/lifeline_network.hpp"

#include <algorithm>
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
    /// A word to all others, once. What is on the way when a rank ends may get lost.
    void say(int rank);
    /// From how many ranks this one has theirs, and its own.
    int heard(int rank) const;
    /// Whether one that has not said its word refuses connections, as the data's transport sees it.
    bool is_awaited_in_vain(int rank) const;

 private:
    struct Account;

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

}  // namespace tutti::simulation
