#include "operation/completed_operations.hpp"

#include "core/assert.hpp"
#include "core/per_thread.hpp"

#include <algorithm>
#include <utility>

namespace tutti::detail {

// Memory that changes hands: each level of continuations has its own.
CompletedOperations::List CompletedOperations::take(List& spare) {
    TUTTI_ASSERT(spare.empty());
    return std::exchange(operations_, std::exchange(spare, {}));
}

void CompletedOperations::deliver(BiasedMutex& lock) {
    struct Spare {  // the memory of this thread's last list, for its next one
        List list;
    };
    const auto nobody = std::thread::id(), self = std::this_thread::get_id();
    if (deliverer_ != nobody && deliverer_ != self) return lock.unlock();
    List& spare = PerThread<Spare>::get().list;
    List list = take(spare);
    TUTTI_ASSERT(!list.empty() && operations_.empty());
    const auto give_back = [&] {
        list.clear();
        spare = std::move(list);
    };
    if (deliverer_ == nobody && std::ranges::all_of(list, [](auto& one) { return one->close_unless_awaited(); })) {
        lock.unlock();
        return give_back();
    }
    const std::shared_ptr<Member> last = list.front()->group;  // keeps the lock
    const auto outer = std::exchange(deliverer_, self);
    TUTTI_ASSERT(outer == nobody || outer == self);
    for (;;) {
        lock.unlock();
        for (const auto& operation : list) operation->run_continuations();
        give_back();
        lock.lock();
        if (operations_.empty()) break;
        TUTTI_ASSERT(deliverer_ == self);
        list = take(spare);
    }
    deliverer_ = outer;
    lock.unlock();
}

}  // namespace tutti::detail
