#include "rendezvous/steps.hpp"

#include <algorithm>

namespace tutti::rendezvous {

StepAgreement agree_on_steps(std::span<const StepReport> reports) {
    TUTTI_ASSERT(!reports.empty());
    StepAgreement all;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
        const StepReport& its = reports[rank];
        all.failures = std::max(all.failures, its.failures);
        if (its.completed < 0) {
            all.adopts = true;
            continue;
        }
        if (all.source < 0) {
            all.source = static_cast<int>(rank);
            all.max_size = its.max_size;
            all.completed = its.completed;
        }
        all.completed = std::min(all.completed, its.completed);
        all.most = std::max(all.most, its.completed);
    }
    return all;
}

StoreTalk<bool> agree_whether_over(std::string key, bool met) {
    const std::string done = "done", here = met ? done : "more";
    const StoreAnswer stands = co_await ask::compare_set(std::move(key), "", here);
    co_return stands.value() == done;
}

}  // namespace tutti::rendezvous
