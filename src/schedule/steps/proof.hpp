// Proof: the state of all ranks while their schedules run on symbols, and the operations by which each kind of step
// describes its effect. prove() runs the steps on it. After a fault the run goes on, so that it shows all consequences
// of a mistake.
#pragma once

#include "core/assert.hpp"
#include "schedule/budget.hpp"
#include "schedule/contract.hpp"
#include "schedule/schedule.hpp"
#include "schedule/steps/kind.hpp"
#include "schedule/symbols.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::schedule {

/// The type of elements. Both empty: the call's type, which has no name here.
struct Type {
    std::optional<DType> dtype{};
    std::optional<CodeForm> codes{};
    friend bool operator==(const Type&, const Type&) = default;
};
std::string to_string(Type type);

class Proof {
 public:
    struct State {
        std::vector<Values> buffers;  // by Schedule's rows
        std::vector<bool> done;
        std::map<std::uint32_t, Values> publications;
        bool met = false;  // has published where its buffers lie
        std::uint32_t released = 0;
        std::size_t next_shared = 0;  // index in shared_order
        std::vector<std::size_t> shared_order;
        std::map<Rank, std::pair<std::vector<std::size_t>, std::size_t>> sends, receives;  // program order, next
    };

    /// `budget` must outlive it.
    Proof(const std::vector<Schedule>& schedules, const Contract& contract, Budget& budget);

    const Contract& contract() const { return contract_; }
    const std::vector<Schedule>& schedules() const { return schedules_; }
    int size() const { return static_cast<int>(schedules_.size()); }
    int host(Rank rank) const {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < contract_.host_of.size());
        return contract_.host_of[static_cast<std::size_t>(rank)];
    }
    State& state(Rank rank) {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < states_.size());
        return states_[static_cast<std::size_t>(rank)];
    }
    const State& state(Rank rank) const {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < states_.size());
        return states_[static_cast<std::size_t>(rank)];
    }
    const Schedule& schedule(Rank rank) const {
        TUTTI_ASSERT(static_cast<std::size_t>(rank) < schedules_.size());
        return schedules_[static_cast<std::size_t>(rank)];
    }
    At at(Rank rank, std::size_t step) const {
        TUTTI_ASSERT(step < schedule(rank).steps.size());
        return {rank, step, schedule(rank), schedule(rank).steps[step]};
    }

    void fault(Rank rank, std::size_t step, const std::string& what);
    void spend(std::uint64_t bytes) { budget_.spend(bytes); }
    void fault(const At& at, const std::string& what) { fault(at.rank, at.index, what); }
    const std::vector<std::string>& faults() const { return faults_; }

    /// Whether all steps are done for which this one waits.
    bool ready(Rank rank, std::size_t step) const;
    /// Runs the step if it can run now.
    bool attempt(Rank rank, std::size_t step);

    /// Resets all ranks to their start. `withheld` never enters the collective (-1: none); messages to it count as
    /// taken.
    void restart(Rank withheld = -1);
    Rank withheld() const { return withheld_; }

    /// The type of the elements of a chunk of this rank. A contract without a type: the empty Type stands for the
    /// call's.
    Type type_of(const At& at, const Chunk& chunk) const;

    // For the rules. `at` is the step that a fault is attributed to.

    /// The values of a chunk of `owner`'s buffers.
    Values load(const At& at, Rank owner, const Chunk& chunk);
    Values load(const At& at, const Chunk& chunk) { return load(at, at.rank, chunk); }
    void save(const At& at, Rank owner, const Chunk& chunk, const Values& values);
    void save(const At& at, const Chunk& chunk, const Values& values) { save(at, at.rank, chunk, values); }
    /// Notes a fault if the step uses codes (Symbol::coded_by) as numbers.
    void refuse_codes(const At& at, const Values& values);
    Values combined(const At& at, const std::vector<Values>& inputs);
    /// The publication of `peer` in the step's round. Null: not published yet.
    const Values* publication(const At& at, Rank peer);
    /// `count` elements of a publication, from `offset` on.
    Values fetch(const At& at, const Values& published, std::uint64_t offset, std::uint64_t count);
    /// The values that an operand names: of this rank, of a peer's publication, or, in place, of a peer's buffers.
    /// nullopt: not published yet.
    std::optional<Values> values_of(const At& at, const Operand& operand);
    /// Whether the step may access another rank's buffers, or wait for its signals; notes a fault if not.
    bool reaches(const At& at, Rank peer);
    bool released_by_others(Rank rank, std::uint32_t round) const;

 private:
    Values& values_of_buffer(Rank owner, Buffer buffer);
    void spend_on(std::span<const Value> values);

    const std::vector<Schedule>& schedules_;
    const Contract& contract_;
    Budget& budget_;
    Rank withheld_ = -1;
    std::vector<State> states_;
    Values none_;  ///< stands for a buffer that a rank does not have
    std::vector<std::string> faults_;
};

}  // namespace tutti::schedule
