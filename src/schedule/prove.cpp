#include "schedule/prove.hpp"

#include "schedule/order.hpp"
#include "schedule/races.hpp"
#include "schedule/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti::schedule {
namespace {

class Proof {
 public:
    Proof(const std::vector<Schedule>& schedules, const Contract& contract)
        : schedules_(schedules), contract_(contract), size_(static_cast<int>(schedules.size())) {}

    std::vector<std::string> run() {
        prepare();
        check_kinds();
        for (Rank rank = 0; rank < size_; ++rank) {
            for (const Disorder& found : disorders_of(rank, schedules_, contract_)) fault(rank, found.step, found.what);
        }
        for (const Race& race : races_in(schedules_)) fault(race.rank, race.step, race.what);
        while (faults_.size() < 5 && advance()) {
        }
        for (Rank rank = 0; rank < size_; ++rank) {
            const auto& state = states_[static_cast<std::size_t>(rank)];
            const auto stuck = std::ranges::find(state.done, false);
            if (stuck == state.done.end()) continue;
            const auto index = static_cast<std::size_t>(stuck - state.done.begin());
            fault(rank, index, "never completes (deadlock, or a message without a partner)");
        }
        if (faults_.empty()) check_results();
        return faults_;
    }

 private:
    struct State {
        Values buffers[3];
        std::vector<bool> done;
        std::vector<bool> started;
        std::map<std::uint32_t, Values> publications;
        bool met = false;  // has said where its buffers lie
        std::uint32_t released = 0;
        std::size_t next_shared = 0;  // index in shared_order
        std::vector<std::size_t> shared_order;
        std::map<Rank, std::pair<std::vector<std::size_t>, std::size_t>> sends, receives;  // program order, next
    };

    void fault(Rank rank, std::size_t step, const std::string& what) {
        const auto& steps = schedules_[static_cast<std::size_t>(rank)].steps;
        const auto kind = step < steps.size() ? to_string(steps[step].kind) : std::string_view("end");
        faults_.push_back(fmt::format("rank {} step {} ({}): {}", rank, step, kind, what));
    }

    void prepare() {
        states_.resize(static_cast<std::size_t>(size_));
        for (Rank rank = 0; rank < size_; ++rank) {
            State& state = states_[static_cast<std::size_t>(rank)];
            const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
            std::tie(state.buffers[0], state.buffers[1]) = starting_with(rank, size_, contract_);
            state.buffers[2].resize(s.scratch_count);
            state.done.assign(s.steps.size(), false);
            for (std::size_t i = 0; i < s.steps.size(); ++i) {
                const Step& step = s.steps[i];
                if (step.kind == StepKind::send) state.sends[step.peer].first.push_back(i);
                if (step.kind == StepKind::receive || step.kind == StepKind::receive_combine) {
                    state.receives[step.peer].first.push_back(i);
                }
                if (is_shared(step.kind)) state.shared_order.push_back(i);
            }
        }
    }

    bool ready(const State& state, const Schedule& s, std::size_t i) const {
        const Step& step = s.steps[i];
        for (std::uint32_t a = 0; a < step.after_count; ++a) {
            if (!state.done[s.after[step.first_after + a]]) return false;
        }
        return true;
    }

    Values load(Rank rank, std::size_t step, const Chunk& chunk) {
        const Values& buffer = states_[static_cast<std::size_t>(rank)].buffers[static_cast<std::size_t>(chunk.buffer)];
        if (chunk.offset + chunk.count > buffer.size()) {
            fault(rank, step, "reads outside of a buffer");
            return Values(chunk.count);
        }
        const auto first = buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset);
        Values values(first, first + static_cast<std::ptrdiff_t>(chunk.count));
        if (std::ranges::any_of(values, [](const Value& v) { return !v; }))
            fault(rank, step, "reads before it is written");
        return values;
    }

    bool released_by_others(Rank rank, std::uint32_t round) const {
        for (Rank peer = 0; peer < size_; ++peer) {
            if (peer == rank || host(peer) != host(rank)) continue;
            if (states_[static_cast<std::size_t>(peer)].released < round) return false;
        }
        return true;
    }

    int host(Rank rank) const { return contract_.host_of[static_cast<std::size_t>(rank)]; }

    // `count` elements of a publication, from `offset` on.
    Values fetch(Rank rank, std::size_t step, const Values& published, std::uint64_t offset, std::uint64_t count) {
        if (offset + count > published.size()) {
            fault(rank, step, "reads beyond what was published");
            return Values(count);
        }
        const auto first = published.begin() + static_cast<std::ptrdiff_t>(offset);
        return Values(first, first + static_cast<std::ptrdiff_t>(count));
    }

    // The values that an operand names: of this rank, of a peer's publication, or, in place, of a peer. Empty: not
    // published yet.
    std::optional<Values> values_of(Rank rank, std::size_t i, const Operand& operand) {
        if (operand.peer < 0) return load(rank, i, operand.chunk);
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        if (s.in_place) return load(operand.peer, i, at_owner(schedules_, operand.peer, operand.chunk));
        const Values* const published = publication(rank, i, operand.peer);
        if (published == nullptr) return std::nullopt;
        return fetch(rank, i, *published, operand.slot_offset, operand.chunk.count);
    }

    // Null: there is none yet.
    const Values* publication(Rank rank, std::size_t i, Rank peer) {
        const std::uint32_t round = schedules_[static_cast<std::size_t>(rank)].steps[i].round;
        if (host(peer) != host(rank)) fault(rank, i, "reads from another host");
        if (round < states_[static_cast<std::size_t>(rank)].released)
            fault(rank, i, "reads a round that it has released");
        const auto& publications = states_[static_cast<std::size_t>(peer)].publications;
        const auto found = publications.find(round);
        return found == publications.end() ? nullptr : &found->second;
    }

    void save(Rank rank, std::size_t step, const Chunk& chunk, const Values& values) {
        Values& buffer = states_[static_cast<std::size_t>(rank)].buffers[static_cast<std::size_t>(chunk.buffer)];
        if (chunk.offset + chunk.count > buffer.size() || values.size() != chunk.count) {
            return fault(rank, step, "writes outside of a buffer, or another count");
        }
        std::ranges::copy(values, buffer.begin() + static_cast<std::ptrdiff_t>(chunk.offset));
    }

    Values combined(Rank rank, std::size_t step, const std::vector<Values>& inputs, bool finish) {
        Values result = inputs.front();
        for (std::size_t i = 0; i < result.size(); ++i) {
            if (!result[i]) continue;
            int combinations = result[i]->combinations;
            for (std::size_t k = 1; k < inputs.size(); ++k) {
                if (inputs[k].size() <= i || !inputs[k][i]) continue;
                const Symbol& other = *inputs[k][i];
                if (other.index != result[i]->index) {
                    fault(rank, step, "combines different elements");
                    return result;
                }
                if (other.finished || result[i]->finished) {
                    fault(rank, step, "combines a finished value");
                    return result;
                }
                result[i]->parts.insert(result[i]->parts.end(), other.parts.begin(), other.parts.end());
                combinations += other.combinations;
            }
            result[i]->combinations = combinations + 1;
            result[i]->finished = finish;
        }
        return result;
    }

    // Runs every step that can run now; false if none could.
    bool advance() {
        bool moved = false;
        for (Rank rank = size_; rank-- > 0;) {
            State& state = states_[static_cast<std::size_t>(rank)];
            const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
            for (std::size_t i = s.steps.size(); i-- > 0;) {  // backwards: the adversary's order
                if (!state.done[i] && ready(state, s, i)) moved |= attempt(rank, i);
                if (faults_.size() >= 5) return false;
            }
        }
        return moved;
    }

    bool attempt(Rank rank, std::size_t i) {
        State& state = states_[static_cast<std::size_t>(rank)];
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        const Step& step = s.steps[i];
        if (is_shared(step.kind)) {
            if (state.shared_order[state.next_shared] != i || !attempt_shared(rank, i)) return false;
            ++state.next_shared;
            state.done[i] = true;
            return true;
        }
        if (step.kind == StepKind::copy || step.kind == StepKind::combine) {
            std::vector<Values> inputs;
            for (std::uint32_t o = 0; o < step.operand_count; ++o) {
                inputs.push_back(load(rank, i, s.operands[step.first_operand + o].chunk));
            }
            save(rank, i, step.target,
                 step.kind == StepKind::copy ? inputs[0] : combined(rank, i, inputs, step.finish));
            state.done[i] = true;
            return true;
        }
        return step.kind == StepKind::send ? attempt_message(rank, i) : false;  // the sender moves the pair
    }

    bool attempt_message(Rank rank, std::size_t i) {
        State& state = states_[static_cast<std::size_t>(rank)];
        const Step& step = schedules_[static_cast<std::size_t>(rank)].steps[i];
        auto& [sends, next_send] = state.sends[step.peer];
        if (sends[next_send] != i) return false;
        if (step.peer == withheld_) {  // a rank that has not entered yet may still find messages waiting
            ++next_send;
            return state.done[i] = true;
        }
        State& other = states_[static_cast<std::size_t>(step.peer)];
        const Schedule& theirs = schedules_[static_cast<std::size_t>(step.peer)];
        auto& [receives, next_receive] = other.receives[rank];
        if (next_receive >= receives.size()) return false;
        const std::size_t j = receives[next_receive];
        if (!ready(other, theirs, j)) return false;
        const Step& receive = theirs.steps[j];
        const Chunk source = schedules_[static_cast<std::size_t>(rank)].operands[step.first_operand].chunk;
        if (source.count != receive.target.count) {
            fault(rank, i,
                  fmt::format("sends {} elements to rank {}, which expects {}", source.count, step.peer,
                              receive.target.count));
        } else if (source.count > 0) {
            const Values values = load(rank, i, source);
            if (receive.kind == StepKind::receive) {
                save(step.peer, j, receive.target, values);
            } else {
                const Values own = load(step.peer, j, theirs.operands[receive.first_operand].chunk);
                save(step.peer, j, receive.target,
                     combined(step.peer, j, receive.arrival_first ? std::vector{values, own} : std::vector{own, values},
                              receive.finish));
            }
        }
        ++next_send;
        ++next_receive;
        state.done[i] = other.done[j] = true;
        return true;
    }

    bool attempt_shared(Rank rank, std::size_t i) {
        State& state = states_[static_cast<std::size_t>(rank)];
        const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
        const Step& step = s.steps[i];
        switch (step.kind) {
            case StepKind::meet:
                state.met = true;
                for (Rank peer = 0; peer < size_; ++peer) {
                    if (host(peer) == host(rank) && !states_[static_cast<std::size_t>(peer)].met) return false;
                }
                return true;
            case StepKind::publish: {
                if (step.round >= contract_.slots && !released_by_others(rank, step.round - contract_.slots + 1))
                    return false;
                if (step.round >= contract_.slots && state.released < step.round - contract_.slots + 1)
                    fault(rank, i, "publishes into a slot that it may still have to read");
                if (step.round >= s.publications) fault(rank, i, "publishes a round beyond the schedule's");
                if (s.in_place) fault(rank, i, "publishes, in place");
                Values values;
                for (std::uint32_t o = 0; o < step.operand_count; ++o) {
                    const Values part = load(rank, i, s.operands[step.first_operand + o].chunk);
                    values.insert(values.end(), part.begin(), part.end());
                }
                if (values.size() > contract_.slot_elements && !s.in_slots)
                    fault(rank, i, "publishes more than a slot holds");
                if (s.in_slots && (step.round > 0 || state.publications.contains(0)))
                    fault(rank, i, "publishes more than once, in slots");
                // The former contents of this slot are gone now.
                std::erase_if(state.publications, [&](const auto& entry) {
                    return entry.first % contract_.slots == step.round % contract_.slots;
                });
                state.publications[step.round] = std::move(values);
                return true;
            }
            case StepKind::read: {
                if (step.operand_count > 0) {
                    save(rank, i, step.target, *values_of(rank, i, s.operands[step.first_operand]));
                    return true;
                }
                const Values* const published = publication(rank, i, step.peer);
                if (published == nullptr) return false;
                if (step.target.count > 0)
                    save(rank, i, step.target, fetch(rank, i, *published, step.slot_offset, step.target.count));
                return true;
            }
            case StepKind::read_combine: {
                std::vector<Values> inputs;
                for (std::uint32_t o = 0; o < step.operand_count; ++o) {
                    auto values = values_of(rank, i, s.operands[step.first_operand + o]);
                    if (!values) return false;
                    inputs.push_back(std::move(*values));
                }
                const Values result = combined(rank, i, inputs, step.finish);
                if (step.target.count == 0) return true;
                save(step.peer < 0 ? rank : step.peer, i, step.target, result);
                for (Rank peer = 0; step.everywhere && peer < size_; ++peer) {
                    if (peer != rank) save(peer, i, step.target, result);
                }
                return true;
            }
            case StepKind::write:
                save(step.peer, i, step.target, load(rank, i, s.operands[step.first_operand].chunk));
                return true;
            case StepKind::release:
                if (step.round < state.released) fault(rank, i, "releases backwards");
                state.released = step.round;
                return true;
            case StepKind::settle: return released_by_others(rank, step.round);
            default: return false;
        }
    }

    // Either all ranks run in slots or none; there they send no messages and do not work in place.
    void check_kinds() {
        for (Rank rank = 0; rank < size_; ++rank) {
            const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
            if (s.in_slots != schedules_.front().in_slots)
                fault(rank, s.steps.size(), "is in slots, or is not, unlike rank 0");
            if (s.in_slots && std::ranges::any_of(s.steps, [](const Step& step) {
                    return step.kind == StepKind::send || step.kind == StepKind::receive ||
                           step.kind == StepKind::receive_combine || step.kind == StepKind::meet ||
                           step.kind == StepKind::write;
                }))
                fault(rank, s.steps.size(), "sends a message, or works in place, in slots");
        }
    }

    void check_results() {
        for (Rank rank = 0; rank < size_; ++rank) {
            const auto& s = schedules_[static_cast<std::size_t>(rank)];
            if (s.publications != schedules_.front().publications && host(rank) == host(0)) {
                fault(rank, s.steps.size(), "uses another number of rounds than rank 0 of its host");
            }
            const Values& output = states_[static_cast<std::size_t>(rank)].buffers[1];
            const std::string wrong = wrong_with(output, rank, size_, contract_);
            if (!wrong.empty()) fault(rank, s.steps.size(), wrong);
        }
        if (contract_.collective == Collective::barrier) check_barrier();
    }

    // A rank leaves a barrier only after every rank has entered: its last step must depend on every rank's first.
    void check_barrier() {
        // Replays with each rank withheld in turn: no other rank may finish.
        for (Rank withheld = 0; withheld < size_ && size_ > 1; ++withheld) {
            std::vector<State> saved = std::move(states_);
            states_.clear();
            prepare();
            auto& held = states_[static_cast<std::size_t>(withheld)];
            const auto& steps = schedules_[static_cast<std::size_t>(withheld)].steps;
            held.sends.clear();
            held.receives.clear();
            withheld_ = withheld;
            while (advance_without()) {
            }
            for (Rank rank = 0; rank < size_; ++rank) {
                const auto& state = states_[static_cast<std::size_t>(rank)];
                if (rank != withheld && std::ranges::find(state.done, false) == state.done.end()) {
                    fault(rank, steps.size(),
                          fmt::format("leaves the barrier although rank {} has not entered", withheld));
                    withheld_ = -1;
                    states_ = std::move(saved);
                    return;
                }
            }
            withheld_ = -1;
            states_ = std::move(saved);
        }
    }

    bool advance_without() {
        bool moved = false;
        for (Rank rank = 0; rank < size_; ++rank) {
            if (rank == withheld_) continue;
            State& state = states_[static_cast<std::size_t>(rank)];
            const Schedule& s = schedules_[static_cast<std::size_t>(rank)];
            for (std::size_t i = 0; i < s.steps.size(); ++i) {
                if (!state.done[i] && ready(state, s, i)) moved |= attempt(rank, i);
            }
        }
        return moved;
    }

    const std::vector<Schedule>& schedules_;
    const Contract& contract_;
    int size_;
    Rank withheld_ = -1;
    std::vector<State> states_;
    std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> prove(const std::vector<Schedule>& schedules, const Contract& contract) {
    return Proof(schedules, contract).run();
}

}  // namespace tutti::schedule
