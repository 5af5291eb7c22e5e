#include "group/surviving.hpp"

#include "core/interrupt.hpp"
#include "core/patience.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::detail {

Store store_of(const Group& group) {
    return PrefixStore(fmt::format("group/{}/{}", group.world().name(), group.index()), group.world().setup().store);
}

rendezvous::SurvivorsTerms survivors_terms(const Group& group, int attempt, std::chrono::milliseconds timeout,
                                           std::optional<std::chrono::milliseconds> patience) {
    std::vector<int> numbers;
    for (int rank = 0; rank < group.size(); ++rank) numbers.push_back(group.ranks().global(rank));
    return {.group = group.name(),
            .numbers = std::move(numbers),
            .rank = group.rank(),
            .keys = fmt::format("shrink/{}/", attempt),
            .store = group.world().setup().store.describe(),
            .timeout = timeout,
            .patience = patience,
            .gone =
                [&group] {
                    std::vector<int> ranks;
                    for (const int number : group.world().verdicts().gone_for_good()) {
                        const int rank = group.ranks().rank_of(number);
                        if (rank >= 0) ranks.push_back(rank);
                    }
                    return ranks;
                },
            .is_deaf = [&group](int rank) { return group.world().verdicts().is_deaf(group.ranks().global(rank)); },
            .check =
                [] {
                    patience::look();
                    if (!interrupt_requested()) return;
                    clear_interrupt();
                    throw Aborted("shrink: interrupted by a signal", {.operation = "shrink"}, ErrorCode::interrupted);
                }};
}

}  // namespace tutti::detail
