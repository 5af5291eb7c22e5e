// Training: one rank's steps in a group that loses and gains ranks, as ResilientLoop in api/resilient.cpp does them, as
// a coroutine over a simulated store, exchanges of a SimulatedGroup, and a state that shows each step that it has not
// had, or has had twice. It looks whether rendezvous::Steps, agree_on_steps() and agree_whether_over() keep their
// promises.
//
// Threads: one.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/steps.hpp"
#include "rendezvous/store_talk.hpp"
#include "simulation/simulated_group.hpp"

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <string>

namespace tutti::simulation {

class Training {
 public:
    /// Equal on all ranks of a world.
    struct Terms {
        std::int64_t steps = 0;
        std::optional<std::int64_t> stops_in{};  ///< a step in which one rank wishes to stop
        bool asks_in_vain = false;               ///< newcomers that rank 0 has seen are often gone soon
        bool exchanges = false;                  ///< in each step, as an all_reduce of gradients
        std::chrono::milliseconds step_time{0}, wait{0}, timeout{0};  ///< the first: at most
    };
    /// As GrowOptions.
    struct Wish {
        int count = 0;
        std::optional<int> at_least{};
        std::optional<std::chrono::milliseconds> wait{};
    };
    /// The references must outlive it.
    struct Surroundings {
        std::mt19937_64& chance;
        const Terms& terms;
        std::function<Seat()> seat;
        std::function<int()> next_growth;                       ///< as Group::next_growth()
        std::function<rendezvous::StoreTalk<bool>(Wish)> grow;  ///< as ProcessGroup::grow; false: no other group
        std::function<void(const std::string&)> wrong;          ///< a broken promise
    };
    enum class End { none, over, left_out, without_state, in_error };

    Training(Surroundings around, int max_size, bool is_newcomer);

    /// To the end of its steps, or to an error.
    rendezvous::StoreTalk<bool> run();
    End end() const noexcept { return end_; }
    std::int64_t completed() const noexcept { return steps_.completed(); }
    /// Which training: the number of the group that began.
    std::int64_t origin() const noexcept { return state_.origin; }
    int recoveries() const noexcept { return recoveries_; }
    int admissions() const noexcept { return admissions_; }
    int times_back() const noexcept { return times_back_; }

 private:
    enum Kind : std::int64_t { meeting, adoption, boundary, gradients };
    struct State {
        std::int64_t origin = 0, value = 0;
        bool operator==(const State&) const = default;
    };

    rendezvous::StoreTalk<bool> recover();
    rendezvous::StoreTalk<bool> admit();
    rendezvous::StoreTalk<bool> meet();
    rendezvous::StoreTalk<bool> adopt(int source);
    rendezvous::StoreTalk<bool> pass_boundary();
    rendezvous::StoreTalk<bool> newcomers_to_take();
    rendezvous::StoreTalk<bool> complete_step();
    rendezvous::StoreTalk<SimulatedGroup::Words> exchange(Kind kind, SimulatedGroup::Word word, int source);
    void go_back_to(const rendezvous::StepAgreement& agreed);
    void keep();
    bool may_recover(const std::exception_ptr& error);
    void leave();
    std::exception_ptr failure() const;
    void expect(bool holds, const std::string& what);
    void expect_state();
    static State after(State state, std::int64_t step);

    const Surroundings around_;
    int max_size_;
    rendezvous::Steps steps_;
    State state_, copy_;
    std::int64_t steps_of_copy_ = -1;
    int loop_ = 0, failures_ = 0, recoveries_ = 0, admissions_ = 0, times_back_ = 0;
    bool stops_ = false, is_over_ = false;
    Instant next_question_{};
    End end_ = End::none;
};

}  // namespace tutti::simulation
