// The loop that outlives its ranks (rendezvous/steps.hpp). Whatever fails leads to recover() and then to meet(), in
// which the ranks of the new group agree on a state; a failure in there leads there again.
#include <tutti/resilient.hpp>

#include "api/arguments.hpp"
#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"
#include "record/call_site.hpp"
#include "rendezvous/job_environment.hpp"
#include "rendezvous/rendezvous.hpp"
#include "rendezvous/steps.hpp"

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

    ResilientLoop(const ResilientOptions& o, const Step& step) : o_(o), do_step_(step), steps_(o.first, true) {
        is_default_ = !o.group;
        group_ = ProcessGroup(api::group_of(o.group, "resilient"));
        if (group_.is_newcomer()) steps_ = rendezvous::Steps(o.first, false);
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
            // The survivors have said so. Other errors about this rank, as of its own abort while a group is made, have
            // ended a group only.
            const ErrorContext& about = e.context();
            if (e.code() == ErrorCode::peer_lost && about.operation == "shrink" && about.peer == about.rank)
                return false;
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
            TUTTI_WARN("rank {} goes back to a completed step, {} or the one before: {}", old.rank(),
                       steps_.completed(), error.what());
        }
        // Another rank may know of the failure already.
        (void)old.impl()->world().end(fmt::format("rank {} goes back to a completed step", old.rank()));
        GrowOptions options = growth();
        options.wait = wait_;
        ProcessGroup next;
        // Others that had not failed yet may have found no newcomer in this call; they come to the next one.
        do next = old.grow(options);
        while (next == old);
        take(std::move(next));
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
        const std::array<std::int64_t, 3> own{steps_.report(), failures_, max_size_};
        std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(group_.size()));
        loop_ = group_.impl()->next_growth();
        all_gather_into_tensor(all, own, {.group = group_});
        std::vector<rendezvous::StepReport> reports;
        for (std::size_t at = 0; at < all.size(); at += own.size())
            reports.push_back({.completed = all[at], .failures = all[at + 1], .max_size = all[at + 2]});
        const rendezvous::StepAgreement agreed = rendezvous::agree_on_steps(reports);
        failures_ = static_cast<int>(agreed.failures);
        if (agreed.source < 0) end("no rank is left that has the state: {} newcomers", group_.size());
        max_size_ = static_cast<int>(agreed.max_size);
        if (group_.size() < o_.min_size)
            end("{} ranks are left: expected min_size, {}, or more", group_.size(), o_.min_size);
        if (!steps_.has_copy() && steps_.has_state() && agreed.completed != agreed.most && recoveries_ == 0)
            api::refuse("resilient: first is {} on one rank and {} on another: expected the same", agreed.completed,
                        agreed.most);
        if (steps_.go_back_to(agreed.completed)) go_back();
        if (agreed.adopts) adopt(agreed.source);
        steps_.adopt(agreed.completed);
    }

    template <class... Args>
    [[noreturn]] void end(fmt::format_string<const Args&...> format, const Args&... args) {
        is_over_ = true;
        throw PeerLost("resilient: " + fmt::format(format, args...),
                       {.operation = "resilient", .group = group_.name(), .rank = group_.rank()});
    }

    void go_back() {
        if (o_.undo) o_.undo();
        for (std::size_t i = 0; i < copies_.size(); ++i) copy(o_.state[i], copies_[i]);
        if (o_.load) o_.load(saved_);
        stops_ = false;  // the wish to stop comes again with the step
    }

    void adopt(int source) {
        const bool has_state = steps_.has_state();
        std::string bytes = o_.save && has_state ? o_.save() : std::string();
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
        if (!has_state && o_.load) o_.load(bytes);
    }

    void keep() {
        if (!steps_.keep()) return;  // the step is done again
        if (o_.keep) o_.keep();
        for (std::size_t i = 0; i < copies_.size(); ++i) copy(copies_[i].view(), o_.state[i]);
        if (o_.save) saved_ = o_.save();
    }

    // ---- The steps

    void complete_step() {
        step_ = steps_.completed();
        stops_ = false;
        steps_.begin();
        in_step_ = true;
        do_step_(*this);
        in_step_ = is_new_ = false;
        steps_.complete();
        failures_ = 0;
    }

    /// Returns when all ranks have completed as many steps. False: there are no more.
    bool pass_boundary() {
        std::array<std::int64_t, 2> said{newcomers_to_take() > 0, stops_};
        std::exception_ptr trouble;
        try {
            all_reduce(said, {.op = ReduceOp::max, .group = group_});
        } catch (const DistBackendError&) {
            trouble = std::current_exception();
        }
        if (trouble || said[1] != 0 || steps_.completed() == o_.steps) {
            if (agree_whether_over(!trouble)) return false;
            if (trouble) std::rethrow_exception(trouble);
            throw PeerLost("resilient: a rank failed at the last boundary",
                           {.operation = "resilient", .group = group_.name(), .rank = group_.rank()});
        }
        return said[0] == 0 || !admit() || pass_boundary();  // the newcomers are about to pass their first one
    }

    bool agree_whether_over(bool met) const {
        const detail::Group& group = *group_.impl();
        const Store store = group.world().setup().store;
        std::string key =
            fmt::format("group/{}/resilient/{}/{}/{}", group.world().name(), group.index(), loop_, steps_.completed());
        return rendezvous::carry_out({&store, 1}, rendezvous::agree_whether_over(std::move(key), met),
                                     [&] { return store.timeout(); });
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
    rendezvous::Steps steps_;
    std::vector<Tensor> copies_;
    std::string saved_;
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
