#include "atb/domain.hpp"

#include "atb/meeting.hpp"
#include "core/fork_guard.hpp"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

namespace tutti::atb {
namespace {

/// Operations with equal keys share a domain. A forked child has none of its parent's.
using Key = std::tuple<unsigned, CommMode, std::string, int>;
/// The terms on which they have to agree.
using Terms = std::tuple<int, int, std::string>;

struct Slot {
    std::mutex making;  // held while its domain comes together: another operation of this rank waits for it
    std::weak_ptr<Domain> domain;
    Terms terms;
};

std::shared_ptr<Slot> slot_of(const Key& key) {
    static std::mutex mutex;
    static auto& slots = *new std::map<Key, std::shared_ptr<Slot>>();  // threads may outlive main()
    const std::lock_guard lock(mutex);
    std::erase_if(slots, [&](const auto& entry) {
        return entry.first != key && entry.second.use_count() == 1 && entry.second->domain.expired();
    });
    std::shared_ptr<Slot>& slot = slots[key];
    if (!slot) slot = std::make_shared<Slot>();
    return slot;
}

void check_terms(const Terms& has, const Terms& wants, const AllToAllVV2Param& p) {
    if (has == wants) return;
    const auto words = [](const Terms& terms) {
        const auto& [size, root, file] = terms;
        return fmt::format("rankSize {}, rankRoot {}, rankTableFile \"{}\"", size, root, file);
    };
    throw Error(ERROR_INVALID_PARAM,
                fmt::format("AllToAllVV2Param: another operation of rank {} has a domain \"{}\" with {}, and this one "
                            "says {}: expected another commDomain",
                            p.rank, p.commDomain, words(has), words(wants)));
}

// A thread that is a rank makes one operation after the other; other threads of a process may make some of its rank at
// the same time.
std::unique_lock<std::mutex> lock(Slot& slot, const AllToAllVV2Param& p) {
    if (p.commMode != COMM_MULTI_THREAD) return std::unique_lock(slot.making);
    std::unique_lock making(slot.making, std::try_to_lock);
    if (making) return making;
    const Error error(ERROR_INVALID_PARAM, fmt::format("AllToAllVV2Param: two threads say that they are rank {} of "
                                                       "domain \"{}\"",
                                                       p.rank, p.commDomain));
    tell_others(p, error);
    throw error;
}

}  // namespace

std::shared_ptr<Domain> Domain::of(const AllToAllVV2Param& p) {
    if (p.hcclComm) return std::make_shared<Domain>(p.hcclComm.group(), false);
    const Terms terms{p.rankSize, p.rankRoot, p.rankTableFile};
    const auto slot = slot_of({fork_guard::generation(), p.commMode, p.commDomain, std::max(p.rank, 0)});
    const auto making = lock(*slot, p);
    if (auto shared = slot->domain.lock(); shared && !shared->is_over()) {
        check_terms(slot->terms, terms, p);
        return shared;
    }
    try {
        auto domain = std::make_shared<Domain>(meet(p), true);
        slot->domain = domain;
        slot->terms = terms;
        return domain;
    } catch (const Error&) {
        throw;
    } catch (const InvalidArgument& error) {  // ranks contradict each other
        throw Error(ERROR_INVALID_PARAM, error.what(), error.context());
    }
}

ProcessGroup Domain::group() const {
    const std::lock_guard lock(mutex_);
    return group_;
}

void Domain::end() noexcept {
    if (!is_own_) return;
    ProcessGroup over;  // goes after the lock
    const std::lock_guard lock(mutex_);
    std::swap(over, group_);
}

}  // namespace tutti::atb
