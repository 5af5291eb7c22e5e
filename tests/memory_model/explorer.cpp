#include "explorer.hpp"

#include "machine.hpp"
#include "state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tutti::memory_model {
namespace {

bool acquires(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_consume ||
           order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

class Explorer {
 public:
    Outcome outcome;
    bool exploring = false;

    void all(const std::function<Scenario()>& make, const std::optional<Site>& weakened) {
        outcome = {};
        path_.clear();
        met_.clear();
        ids_.clear();
        places_.clear();
        weakened_ = weakened;
        if (!weakened) fences_.clear();
        fencers_ = 0;
        do {
            ++outcome.executions;
            once(make());
            if (std::exchange(again_, false))
                path_.clear(), met_.clear();
            else if (!next_path())
                break;
        } while (outcome.fault.empty());
        outcome.states = met_.size();
        for (const Place& place : places_) {
            for (std::size_t kind = 0; kind < kind_names.size(); ++kind) {
                for (int t = 0; t < static_cast<int>(threads_max); ++t) {
                    if ((place.asked_for[kind] >> t & 1) != 0)
                        outcome.sites.insert({t, fmt::format("{} {}", place.name, kind_names[kind])});
                }
            }
        }
    }

    bool is_shared(const volatile void* at) const noexcept { return exploring && find(at) != nullptr; }
    bool is_by_kernel(const volatile void* at) const noexcept { return is_shared(at) && find(at)->by_kernel; }

    std::uint64_t load(const volatile void* at, std::size_t bytes, std::memory_order order) {
        const std::size_t id = place(at, bytes);
        note(places_[id].readers, places_[id].writers);
        if ((places_[id].writers & ~bit()) != 0) let_others_go_on();
        order = asked_for(id, Kind::load, order);
        Thread& me = thread();
        Place& from = places_[id];
        const std::size_t latest = from.messages.size() - 1;
        const std::size_t taken = latest - choose(latest - me.now.seen[id] + 1);
        take(me, id, taken, order);
        me.last_load = id;
        me.looked_at.try_emplace(id, taken);
        me.history = mix(me.history, from.messages[taken].value);
        return from.messages[taken].value;
    }

    void store(const volatile void* at, std::size_t bytes, std::uint64_t value, std::memory_order order) {
        const std::size_t id = place(at, bytes);
        note(places_[id].writers, places_[id].readers);
        order = asked_for(id, Kind::store, order);
        Thread& me = thread();
        Place& to = places_[id];
        if (me.now.seen[id] + std::size_t{1} != to.messages.size()) {
            fault(fmt::format("two threads store to \"{}\" and neither store comes before the other", to.name));
        }
        add(me, id, value, order, nullptr);
    }

    std::uint64_t modify(const volatile void* at, std::size_t bytes, std::memory_order order,
                         const std::function<bool(std::uint64_t& value)>& change) {
        let_others_go_on();
        const std::size_t id = place(at, bytes);
        note(places_[id].writers, places_[id].readers);
        note(places_[id].readers, places_[id].writers);
        order = asked_for(id, Kind::change, order);
        Thread& me = thread();
        const std::size_t latest = places_[id].messages.size() - 1;
        take(me, id, latest, order);
        const Message before = places_[id].messages[latest];
        std::uint64_t value = before.value;
        if (change(value)) add(me, id, value, order, &before.view);
        me.history = mix(me.history, before.value);
        return before.value;
    }

    void fence(std::memory_order order, const void* from) {
        if (order == std::memory_order_seq_cst) {
            note(fencers_, fencers_);
            if ((fencers_ & ~bit()) != 0) let_others_go_on();
        }
        const auto number = fences_[current_].try_emplace(from, fences_[current_].size() + 1).first->second;
        Site site{current_, fmt::format("fence {}", number)};
        const bool left_out = weakened_ == site;
        outcome.sites.insert(std::move(site));
        if (left_out) return;
        Thread& me = thread();
        if (acquires(order)) me.now.join(me.acquired);
        if (order == std::memory_order_seq_cst) fence_of(me);
        if (releases(order)) release(me);
    }

    void fence_for_all() {
        fencers_ = ~0U;
        let_others_go_on();
        Site site{current_, "membarrier"};
        const bool left_out = weakened_ == site;
        outcome.sites.insert(std::move(site));
        if (left_out) return;
        const auto full = [this](Thread& one) {
            one.now.join(one.acquired);
            fence_of(one);
            release(one);
        };
        full(thread());
        for (std::size_t t = 0; t < count_; ++t) full(threads_[t]);
        full(thread());
    }

    void access(const volatile void* at, std::size_t bytes, bool writes) {
        const auto first = reinterpret_cast<std::uintptr_t>(at);
        Thread& me = thread();
        for (std::uintptr_t eight = first / 8; eight <= (first + bytes - 1) / 8; ++eight) {
            Touched& touched = touched_[eight];
            const auto me_index = static_cast<std::size_t>(current_);
            bool ordered = touched.writer < 0 || touched.writer == current_ ||
                           me.now.clock[static_cast<std::size_t>(touched.writer)] >= touched.written;
            if (writes) {
                for (std::size_t t = 0; t < count_; ++t)
                    ordered = ordered && (t == me_index || me.now.clock[t] >= touched.read[t]);
                touched = {.writer = current_, .written = me.now.clock[me_index]};
            } else {
                touched.read[me_index] = me.now.clock[me_index];
            }
            if (!ordered) {
                const SharedMemory* memory = find(at);
                const auto offset = static_cast<std::size_t>(reinterpret_cast<const std::byte*>(first) - memory->begin);
                fault(fmt::format("thread {} {} \"{}\" while another may still use it", current_,
                                  writes ? "writes" : "reads", memory->name(offset)));
            }
        }
    }

    bool futex_wait(const volatile void* at, std::uint32_t expected) {
        let_others_go_on();
        const std::size_t id = place(at, sizeof expected);
        note(places_[id].readers, places_[id].writers);
        Thread& me = thread();
        me.now.join(kernel_);  // the kernel's lock
        const std::size_t latest = places_[id].messages.size() - 1;
        const std::size_t taken = latest - choose(latest - me.now.seen[id] + 1);
        take(me, id, taken, std::memory_order_relaxed);
        release(me);
        kernel_.join(me.now);
        const bool sleeps = static_cast<std::uint32_t>(places_[id].messages[taken].value) == expected;
        me.history = mix(me.history, sleeps ? 1 : 2);
        if (!sleeps) return false;
        me.state = Thread::State::sleeps;
        me.futex = id;
        go_on();
        return true;
    }
    void futex_wake(const volatile void* at) {
        let_others_go_on();
        const std::size_t id = place(at, sizeof(std::uint32_t));
        Thread& me = thread();
        me.now.join(kernel_);
        release(me);
        kernel_.join(me.now);
        for (std::size_t t = 0; t < count_; ++t) {
            if (threads_[t].state == Thread::State::sleeps && threads_[t].futex == id)
                threads_[t].state = Thread::State::ready;
        }
    }

    void wait_for_last_load() {
        Thread& me = thread();
        const std::size_t id = me.last_load, read = me.now.seen[id];
        me.looked_at = {{id, read}};
        me.state = Thread::State::waits;
        go_on();
        me.now.seen[id] = std::max(me.now.seen[id], static_cast<std::uint8_t>(read + 1));  // the same is no news
    }
    void is_known_by(std::uint64_t bits) {
        thread().history = mix(static_cast<Hash>(current_), bits);
        thread().looked_in_vain = false;
    }
    void begin_look() {
        Thread& me = thread();
        if (!std::exchange(me.looked_in_vain, false)) me.before_look = me.history;
        me.looked_at.clear();
    }
    void wait_for_news() {
        Thread& me = thread();
        me.history = me.before_look;
        me.looked_in_vain = true;
        me.state = Thread::State::waits;
        go_on();
    }

    void fault(std::string text) {
        outcome.fault = std::move(text);
        leave();
    }

 private:
    struct Choice {
        std::size_t options, chosen;
    };

    Thread& thread() { return threads_[static_cast<std::size_t>(current_)]; }

    const SharedMemory* find(const volatile void* at) const noexcept {
        const auto* byte = reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(at));
        for (const SharedMemory& memory : scenario_.memory) {
            if (byte >= memory.begin && byte < memory.begin + memory.bytes) return &memory;
        }
        return nullptr;
    }

    // A place has the same number in all executions; its first message is what the memory holds before the threads
    // begin.
    std::size_t place(const volatile void* at, std::size_t bytes) {
        const SharedMemory* memory = find(at);
        const auto* byte = reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(at));
        const std::pair key(memory - scenario_.memory.data(), byte - memory->begin);
        const auto [it, is_new] = ids_.try_emplace(key, ids_.size());
        if (is_new) {
            if (ids_.size() > places_max) fault("more places than the model has room for");
            Place& made = places_.emplace_back();
            made.name = memory->name(static_cast<std::size_t>(key.second));
            for (std::size_t kind = 0; kind < kind_names.size(); ++kind)
                made.weak[kind] = weakened_ && weakened_->what == fmt::format("{} {}", made.name, kind_names[kind]);
        }
        Place& it_is = places_[it->second];
        if (it_is.messages.empty()) {
            Message first;
            for (std::size_t i = 0; i < bytes; ++i)  // not by memcpy, which is the checked code's
                first.value |= static_cast<std::uint64_t>(static_cast<const volatile std::byte*>(byte)[i]) << 8 * i;
            it_is.hash = mix(it->second + 1, first.value);
            it_is.messages.push_back(first);
        }
        return it->second;
    }

    unsigned bit() const { return 1U << current_; }

    // What no other thread does needs no choice. Where one turns out to do it after all, all is explored again.
    void note(unsigned& these, const unsigned& those) {
        if ((these & bit()) != 0) return;
        these |= bit();
        if ((those & ~bit()) != 0) again_ = true;
    }

    std::memory_order asked_for(std::size_t id, Kind kind, std::memory_order order) {
        if (order == std::memory_order_relaxed) return order;
        Place& of = places_[id];
        const auto index = static_cast<std::size_t>(kind);
        of.asked_for[index] |= 1U << current_;
        return of.weak[index] && weakened_->thread == current_ ? std::memory_order_relaxed : order;
    }

    void take(Thread& me, std::size_t id, std::size_t message, std::memory_order order) {
        const View& view = places_[id].messages[message].view;
        me.now.seen[id] = static_cast<std::uint8_t>(message);
        me.acquired.join(view);
        if (acquires(order)) me.now.join(view);
    }

    void add(Thread& me, std::size_t id, std::uint64_t value, std::memory_order order, const View* of_replaced) {
        Place& to = places_[id];
        if (to.messages.size() > messages_max) return fault("more messages than the model has room for");
        me.now.seen[id] = static_cast<std::uint8_t>(to.messages.size());
        Message message{.value = value, .view = releases(order) ? me.now : me.released, .writer = current_};
        message.view.seen[id] = me.now.seen[id];
        if (of_replaced != nullptr) message.view.join(*of_replaced);  // it continues the release sequence
        to.hash = message.view.add_to(mix(mix(to.hash, value), static_cast<std::uint64_t>(current_)));
        to.messages.push_back(message);
        if (releases(order)) ++me.now.clock[static_cast<std::size_t>(current_)];
    }

    void release(Thread& me) {
        me.released = me.now;
        ++me.now.clock[static_cast<std::size_t>(&me - threads_.data())];
    }
    // Fences order places; they order ordinary accesses only by what is read.
    void fence_of(Thread& me) {
        me.now.join_places(fences_so_far_);
        fences_so_far_.join_places(me.now);
    }

    std::size_t choose(std::size_t options) {
        if (options == 1) return 0;
        if (position_ == path_.size()) path_.push_back({options, 0});
        if (path_[position_].options != options) fault("the scenario is not the same each time");
        return path_[position_++].chosen;
    }

    bool next_path() {
        while (!path_.empty() && path_.back().chosen + 1 == path_.back().options) path_.pop_back();
        if (path_.empty()) return false;
        ++path_.back().chosen;
        return true;
    }

    bool can_go_on(const Thread& one) const {
        if (one.state == Thread::State::ready) return true;
        if (one.state != Thread::State::waits) return false;
        return std::ranges::any_of(
            one.looked_at, [&](const auto& look) { return places_[look.first].messages.size() > look.second + 1; });
    }

    Hash state() const {
        Hash hash = kernel_.add_to(fences_so_far_.add_to(1));
        Hash places = 0;  // in whatever order they were met
        for (const Place& place : places_) places += place.hash * 0xbf58476d1ce4e5b9ULL;
        hash = mix(hash, places);
        for (std::size_t t = 0; t < count_; ++t) {
            const Thread& one = threads_[t];
            hash = mix(mix(hash, one.history), static_cast<std::uint64_t>(one.state));
            hash = one.released.add_to(one.acquired.add_to(one.now.add_to(hash)));
            if (one.state != Thread::State::waits) continue;
            for (const auto& [id, message] : one.looked_at) hash = mix(mix(hash, id), message);
        }
        return hash;
    }

    // Nobody can go on, and not all are done: what each waits for.
    std::string stuck() const {
        std::string text = "nobody can go on:";
        for (std::size_t t = 0; t < count_; ++t) {
            const Thread& one = threads_[t];
            if (one.state == Thread::State::sleeps) text += fmt::format(" thread {} sleeps;", t);
            if (one.state != Thread::State::waits) continue;
            text += fmt::format(" thread {} waits for", t);
            for (const auto& [id, message] : one.looked_at) text += fmt::format(" \"{}\"", places_[id].name);
            text += ';';
        }
        return text;
    }

    // The calling thread is about to do what others may meet: one step further than when it was here before.
    void let_others_go_on() {
        thread().history = mix(thread().history, 0);
        go_on();
    }

    // Chooses who goes on, and returns when it is the calling thread's turn.
    void go_on() {
        std::array<int, threads_max> able{};
        std::size_t count = 0;
        if (current_ >= 0 && can_go_on(thread())) able[count++] = current_;
        for (int t = 0; t < static_cast<int>(count_); ++t) {
            if (t != current_ && can_go_on(threads_[static_cast<std::size_t>(t)])) able[count++] = t;
        }
        if (count == 0) {
            const auto ended = [](const Thread& one) { return one.state == Thread::State::done; };
            if (!std::all_of(threads_.begin(), threads_.begin() + static_cast<std::ptrdiff_t>(count_), ended))
                outcome.fault = stuck();
            else
                ended_ = true;
            return leave();
        }
        if (position_ >= replayed_ && !met_.insert(state()).second) return leave();
        const int next = able[choose(count)];
        threads_[static_cast<std::size_t>(next)].state = Thread::State::ready;
        const int before = std::exchange(current_, next);
        if (before == next) return;
        ucontext_t* const resumed = &threads_[static_cast<std::size_t>(next)].context;
        if (before < 0)
            ::setcontext(resumed);
        else
            ::swapcontext(&threads_[static_cast<std::size_t>(before)].context, resumed);
    }

    // Ends the execution; threads stay where they are.
    [[noreturn]] void leave() {
        exploring = false;
        ::setcontext(&main_);
        std::terminate();
    }

    static void run_thread();

    void once(Scenario scenario) {
        scenario_ = std::move(scenario);
        count_ = scenario_.threads.size();
        for (Place& place : places_) place.messages.clear(), place.hash = 0;
        touched_.clear();
        fences_so_far_ = kernel_ = {};
        position_ = 0;
        replayed_ = path_.size();
        current_ = -1;
        ended_ = false;
        for (std::size_t t = 0; t < count_; ++t) {
            Thread& one = threads_[t];
            one.now = one.acquired = one.released = {};
            one.now.clock[t] = 1;
            one.state = Thread::State::ready;
            one.history = t + 1;
            one.looked_in_vain = false;
            one.looked_at.clear();
            ::getcontext(&one.context);
            one.context.uc_stack.ss_sp = one.stack.get();
            one.context.uc_stack.ss_size = stack_bytes;
            one.context.uc_link = nullptr;
            ::makecontext(&one.context, run_thread, 0);
        }
        exploring = true;
        volatile bool returned = false;
        ::getcontext(&main_);
        if (!returned) {
            returned = true;
            go_on();
        }
        if (ended_ && outcome.fault.empty() && scenario_.at_end) scenario_.at_end();
        for (const auto& [eight, touched] : touched_) {
            if (touched.writer >= 0) *reinterpret_cast<std::uint64_t*>(eight * 8) = 0;
        }
    }

    std::optional<Site> weakened_;
    std::vector<Choice> path_;
    bool again_ = false;
    unsigned fencers_ = 0;  // threads, as bits, in all executions so far
    std::size_t position_ = 0, replayed_ = 0;
    std::unordered_set<Hash> met_;
    std::map<std::pair<std::ptrdiff_t, std::ptrdiff_t>, std::size_t> ids_;
    std::vector<Place> places_;
    std::map<int, std::map<const void*, std::size_t>> fences_;  // by thread and instruction: their numbers
    // Of one execution.
    Scenario scenario_;
    std::array<Thread, threads_max> threads_;
    std::size_t count_ = 0;
    int current_ = -1;
    bool ended_ = false;
    View fences_so_far_, kernel_;
    std::unordered_map<std::uintptr_t, Touched> touched_;
    ucontext_t main_{};
};

Explorer* made = nullptr;  // none as long as no scenario has run: the hooks also see how it is made

Explorer& explorer() {
    static Explorer& instance = *(made = new Explorer);
    return instance;
}

void Explorer::run_thread() {
    Explorer& all = explorer();
    try {
        all.scenario_.threads[static_cast<std::size_t>(all.current_)]();
    } catch (const std::exception& error) {
        all.outcome.fault = error.what();
    }
    if (!all.outcome.fault.empty()) all.leave();
    all.thread().state = Thread::State::done;
    all.go_on();
}

}  // namespace

Outcome explore(const std::function<Scenario()>& make, const std::optional<Site>& weakened) {
    explorer().all(make, weakened);
    return explorer().outcome;
}

void check(bool holds, const char* expected) {
    if (holds) return;
    if (explorer().exploring)
        explorer().fault(expected);
    else
        explorer().outcome.fault = expected;  // at the end
}
void begin_look() {
    explorer().begin_look();
}
void is_known_by(std::uint64_t bits) {
    explorer().is_known_by(bits);
}
void wait_for_news() {
    explorer().wait_for_news();
}

bool is_shared(const volatile void* at) noexcept {
    return made != nullptr && made->is_shared(at);
}
bool is_by_kernel(const volatile void* at) noexcept {
    return made != nullptr && made->is_by_kernel(at);
}
bool exploring() noexcept {
    return made != nullptr && made->exploring;
}
std::uint64_t load(const volatile void* at, std::size_t bytes, std::memory_order order) {
    return explorer().load(at, bytes, order);
}
void store(volatile void* at, std::size_t bytes, std::uint64_t value, std::memory_order order) {
    explorer().store(at, bytes, value, order);
}
std::uint64_t modify(volatile void* at, std::size_t bytes, std::memory_order order,
                     const std::function<bool(std::uint64_t& value)>& change) {
    return explorer().modify(at, bytes, order, change);
}
void fence(std::memory_order order, const void* from) {
    explorer().fence(order, from);
}
void access(const volatile void* at, std::size_t bytes, bool writes) {
    explorer().access(at, bytes, writes);
}
bool futex_wait(const volatile void* at, std::uint32_t expected) {
    return explorer().futex_wait(at, expected);
}
void futex_wake(const volatile void* at) {
    explorer().futex_wake(at);
}
void fence_for_all() {
    explorer().fence_for_all();
}
void wait_for_last_load() {
    explorer().wait_for_last_load();
}

}  // namespace tutti::memory_model
