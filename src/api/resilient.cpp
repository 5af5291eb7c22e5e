// The loop that outlives its ranks. A boundary lies before each step and behind the last: all ranks pass it together,
// or some of them fail there. So the steps that two ranks have completed differ by one at most, and the copy that a
// rank took when it last passed a boundary is the older of the two states. Whatever fails leads to recover() and then
// to meet(), in which the ranks of the new group agree on a state; a failure in there leads there again.
#include <tutti/resilient.hpp>

#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"
#include "record/call_site.hpp"
#include "rendezvous/job_environment.hpp"
#include "rendezvous/rendezvous.hpp"

#include <tutti/newcomers.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti {
namespace {

constexpr std::chrono::seconds usual_wait{60};
constexpr milliseconds between_questions{200};

void check_resilient(const ResilientOptions& o) {
    const auto both = [](bool one, bool other, const char* names) {
        if (one != other) api::refuse("resilient: one of {} is given: expected both or none", names);
    };
    both(!!o.save, !!o.load, "save and load");
    both(!!o.keep, !!o.undo, "keep and undo");
    for (std::size_t i = 0; i < o.state.size() && !o.keep; ++i) {
        if (const Device device = o.state[i].device(); device.type != Device::Type::cpu)
            api::refuse("resilient: state[{}] is on {}: expected host memory, or keep and undo that copy it", i,
                        to_string(device));
    }
    if (o.first < 0) api::refuse("resilient: first is {}: expected zero or more", o.first);
    if (o.steps < o.first) api::refuse("resilient: steps is {}: expected first, {}, or more", o.steps, o.first);
    if (o.min_size < 1) api::refuse("resilient: min_size is {}: expected one or more", o.min_size);
    if (o.max_size != 0 && o.max_size < o.min_size)
        api::refuse("resilient: max_size is {}: expected zero, or min_size, {}, or more", o.max_size, o.min_size);
    if (o.max_failures < 0) api::refuse("resilient: max_failures is {}: expected zero or more", o.max_failures);
    if (o.wait && *o.wait < milliseconds::zero())
        api::refuse("resilient: wait {} ms: expected zero or more", o.wait->count());
    if (o.patience && *o.patience < milliseconds::zero())
        api::refuse("resilient: patience {} ms: expected zero or more", o.patience->count());
    api::check_timeout("resilient", o.timeout);
}

class ResilientLoop final : public Resilience {
 public:
    using Step = std::function<void(Resilience&)>;

    ResilientLoop(const ResilientOptions& o, const Step& step) : o_(o), do_step_(step), completed_(o.first) {
        is_default_ = !o.group;
        group_ = ProcessGroup(api::group_of(o.group, "resilient"));
        has_state_ = !group_.is_newcomer();
        max_size_ = o.max_size > 0 ? o.max_size : group_.size();
        place_ = o.place;
        if (!place_ && rendezvous::read_job_environment().replaces)
            place_ = rendezvous::store_of_launcher(group_.timeout());
        wait_ = o.wait.value_or(place_ ? milliseconds(usual_wait) : milliseconds::zero());
        if (!o.keep) {
            for (const TensorView& tensor : o.state) copies_.push_back(empty(tensor.dtype(), tensor.shape()));
        }
    }

    ProcessGroup run() {
        for (bool works = true;;) {
            try {
                if (!works) recover();
                meet();
                while (pass_boundary()) {
                    keep();
                    complete_step();
                }
                return group_;
            } catch (...) {
                if (!may_recover(std::current_exception())) {
                    leave();
                    throw;
                }
                works = false;
            }
        }
    }

 private:
    bool has_failed() const { return group_.impl()->world().failure() != nullptr; }

    /// Whether the error is the group's, and another group can do better.
    bool may_recover(const std::exception_ptr& error) {
        bool is_of_group = has_failed();
        if (is_over_ || (in_step_ && o_.ends && o_.ends(error))) return false;
        try {
            std::rethrow_exception(error);
        } catch (const DistError& e) {
            constexpr std::array hopeless{ErrorCode::invalid_argument, ErrorCode::collective_mismatch,
                                          ErrorCode::interrupted,      ErrorCode::not_initialized,
                                          ErrorCode::security,         ErrorCode::store,
                                          ErrorCode::internal};
            if (std::ranges::find(hopeless, e.code()) != hopeless.end()) return false;
            const bool is_left_out = e.code() == ErrorCode::peer_lost && e.context().peer == e.context().rank;
            if (is_left_out && e.context().rank >= 0) return false;
            is_of_group |= e.code() == ErrorCode::peer_lost || dynamic_cast<const Timeout*>(&e) != nullptr;
        } catch (...) {  // the program's own words for it
        }
        in_step_ = false;
        return is_of_group && ++failures_ <= o_.max_failures;
    }

    /// The others hear of it, unless all end for the same reason.
    void leave() noexcept {
        try {
            if (!is_over_ && !has_failed())
                group_.abort(fmt::format("rank {} ends its steps by an error", group_.rank()));
            group_.destroy();
        } catch (const std::exception& error) {
            TUTTI_DEBUG("a rank that ends its steps leaves its group: {}", error.what());
        }
    }

    // ---- The group

    void take(ProcessGroup next) {
        TUTTI_ASSERT(next);
        group_ = std::move(next);
        is_new_ = true;
        if (is_default_) set_default_group(group_);
    }

    /// The survivors, and newcomers for the lost.
    void recover() {
        const Instant begin = Clock::now();
        const ProcessGroup old = group_;
        try {
            if (const auto failure = old.impl()->world().failure()) std::rethrow_exception(failure);
        } catch (const std::exception& error) {
            TUTTI_WARN("rank {} goes back to a completed step, {} or the one before: {}", old.rank(), completed_,
                       error.what());
        }
        // Another rank may know of the failure already.
        (void)old.impl()->world().end(fmt::format("rank {} goes back to a completed step", old.rank()));
        GrowOptions options = growth();
        options.wait = wait_;
        take(old.grow(options));
        ++recoveries_;
        TUTTI_INFO("rank {} of {}, \"{}\": a new group after {} ms", group_.rank(), group_.size(), group_.name(),
                   std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count());
    }

    GrowOptions growth() const {
        return {.place = place_ ? place_ : group_.impl()->world().setup().store,
                .name = o_.name,
                .at_least = 0,
                .timeout = o_.timeout,
                .patience = o_.patience};
    }

    /// Takes newcomers in between two steps. False: the group is as it was.
    bool admit() {
        const ProcessGroup old = group_;
        GrowOptions options = growth();
        options.count = max_size_ - old.size();
        options.wait = milliseconds::zero();
        try {
            ProcessGroup next = old.grow(options);
            if (next == old) return false;
            take(std::move(next));
        } catch (const DistBackendError& error) {
            if (has_failed()) throw;
            TUTTI_WARN("no newcomer was taken in: {}", error.what());
            return false;
        }
        ProcessGroup(old).destroy();
        meet();
        return true;
    }

    // ---- The state

    /// The ranks of a new group agree on the steps that are completed, and all get the state behind them.
    void meet() {
        constexpr std::size_t fields = 3;
        const std::array<std::int64_t, fields> own{has_state_ ? completed_ : -1, failures_, max_size_};
        const auto size = static_cast<std::size_t>(group_.size());
        std::vector<std::int64_t> all(fields * size);
        loop_ = group_.impl()->next_growth();
        all_gather_into_tensor(all, own, {.group = group_});
        std::int64_t agreed = -1, most = -1;
        int source = -1;
        bool adopts = false;
        for (std::size_t r = 0; r < size; ++r) {
            const std::int64_t its = all[fields * r];
            failures_ = std::max(failures_, static_cast<int>(all[fields * r + 1]));
            if (its < 0) {
                adopts = true;
                continue;
            }
            if (source < 0) max_size_ = static_cast<int>(all[fields * r + 2]);
            if (source < 0) source = static_cast<int>(r);
            agreed = source == static_cast<int>(r) ? its : std::min(agreed, its);
            most = std::max(most, its);
        }
        if (source < 0) end("no rank is left that has the state: {} newcomers", size);
        if (group_.size() < o_.min_size) end("{} ranks are left: expected min_size, {}, or more", size, o_.min_size);
        if (kept_ < 0 && has_state_ && agreed != most && recoveries_ == 0)
            api::refuse("resilient: first is {} on one rank and {} on another: expected the same", agreed, most);
        if (has_state_) go_back_to(agreed);
        if (adopts) adopt(source);
        completed_ = agreed;
        TUTTI_ASSERT(has_state_ && !is_dirty_);
    }

    template <class... Args>
    [[noreturn]] void end(fmt::format_string<const Args&...> format, const Args&... args) {
        is_over_ = true;
        throw PeerLost("resilient: " + fmt::format(format, args...),
                       {.operation = "resilient", .group = group_.name(), .rank = group_.rank()});
    }

    void go_back_to(std::int64_t completed) {
        if (!is_dirty_ && completed_ == completed) return;
        TUTTI_ASSERT(kept_ == completed);
        if (o_.undo) o_.undo();
        for (std::size_t i = 0; i < copies_.size(); ++i) copy(o_.state[i], copies_[i]);
        if (o_.load) o_.load(saved_);
        is_dirty_ = stops_ = false;  // the wish to stop comes again with the step
    }

    void adopt(int source) {
        std::string bytes = o_.save ? (has_state_ ? o_.save() : std::string()) : std::string();
        std::int64_t length = static_cast<std::int64_t>(bytes.size());
        std::vector<Work> works;
        for (const TensorView& tensor : o_.state)
            works.push_back(async::broadcast(tensor, {.group = group_, .group_src = source}));
        for (Work& work : works) work.wait();
        tutti::broadcast(length, {.group = group_, .group_src = source});
        bytes.resize(static_cast<std::size_t>(length));
        if (length > 0)
            tutti::broadcast(std::span(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()),
                             {.group = group_, .group_src = source});
        if (!has_state_ && o_.load) o_.load(bytes);
        has_state_ = true;
    }

    void keep() {
        if (kept_ == completed_) return;  // the step is done again
        if (o_.keep) o_.keep();
        for (std::size_t i = 0; i < copies_.size(); ++i) copy(copies_[i].view(), o_.state[i]);
        if (o_.save) saved_ = o_.save();
        kept_ = completed_;
    }

    // ---- The steps

    void complete_step() {
        step_ = completed_;
        stops_ = false;
        is_dirty_ = in_step_ = true;
        do_step_(*this);
        is_dirty_ = in_step_ = is_new_ = false;
        ++completed_;
        failures_ = 0;
    }

    /// Returns when all ranks have completed as many steps. False: there are no more.
    bool pass_boundary() {
        std::array<std::int64_t, 2> said{newcomers_to_take() > 0, stops_};
        try {
            all_reduce(said, {.op = ReduceOp::max, .group = group_});
        } catch (const DistBackendError&) {
            // A rank that has passed the last boundary does not come again.
            if (how_it_ends("more") == "done") return false;
            throw;
        }
        if (said[1] != 0 || completed_ == o_.steps) {
            if (how_it_ends("done") == "done") return false;
            throw PeerLost("resilient: a rank failed at the last boundary",
                           {.operation = "resilient", .group = group_.name(), .rank = group_.rank()});
        }
        return said[0] == 0 || !admit() || pass_boundary();  // the newcomers are about to pass their first one
    }

    /// The first that writes decides for all.
    std::string how_it_ends(const std::string& here) const {
        Store store = group_.impl()->world().setup().store;
        const detail::Group& group = *group_.impl();
        return store.compare_set(
            fmt::format("group/{}/resilient/{}/{}/{}", group.world().name(), group.index(), loop_, completed_), "",
            here);
    }

    int newcomers_to_take() {
        if (!place_ || group_.rank() != 0 || group_.size() >= max_size_ || Clock::now() < next_question_) return 0;
        next_question_ = Clock::now() + between_questions;
        return newcomers_waiting({.place = place_, .name = o_.name});
    }

    const ResilientOptions& o_;
    const Step& do_step_;
    Store place_;
    milliseconds wait_{0};
    bool is_default_ = false;
    int max_size_ = 0, failures_ = 0;
    int loop_ = 0;  ///< of this group: its number
    Instant next_question_{};
    std::int64_t completed_ = 0, kept_ = -1;  ///< steps; kept_: those before the copies were made
    std::vector<Tensor> copies_;
    std::string saved_;
    /// This rank's state is that behind completed_ steps; is_dirty_: or that of a step after them.
    bool has_state_ = true, is_dirty_ = false;
    bool in_step_ = false, is_over_ = false;
};

}  // namespace

ProcessGroup resilient(const ResilientOptions& options, const std::function<void(Resilience&)>& step) {
    const record::CallSite site;
    check_resilient(options);
    if (!step) api::refuse("resilient: step is empty: expected a function of tutti::Resilience&");
    return ResilientLoop(options, step).run();
}

}  // namespace tutti
