#include "atb/agreement.hpp"

#include "api/coalescing_internal.hpp"
#include "core/log.hpp"
#include "core/split_mix.hpp"
#include "group/group.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::atb {

/// A rank's statement about its call.
struct Statement {
    bool refused = false;
    int code = 0;
    std::string sentence;
    int dtype = 0;
    std::vector<std::int64_t> sends, expects;
};
TUTTI_OBJECT(Statement, refused, code, sentence, dtype, sends, expects);

namespace {

constexpr std::size_t pairs_shown = 4;

std::uint64_t hash_of(std::uint64_t from, std::uint64_t to, std::int64_t count, int dtype) {
    if (count == 0) return 0;  // an empty block is of any type
    return split_mix(split_mix(split_mix(from << 32 | to) ^ static_cast<std::uint64_t>(count)) ^
                     static_cast<std::uint64_t>(dtype));
}

// Calls that a coalescing scope collects begin later, and a group without host memory cannot be asked like this.
bool can_ask(const ProcessGroup& group) {
    return group.size() > 1 && !api::is_collected(*group.impl()) &&
           group.impl()->backends().names().contains(Device::Type::cpu);
}

/// Whether no rank was refused, and all pairs fit.
bool all_is_well(const ProcessGroup& group, const Statement& mine) {
    const auto me = static_cast<std::uint64_t>(group.rank());
    std::array<std::uint64_t, 2> words{0, mine.refused ? 1U : 0U};  // the sum of hashes, how many were refused
    for (std::size_t peer = 0; peer < mine.sends.size(); ++peer) {
        words[0] += hash_of(me, peer, mine.sends[peer], mine.dtype);
        words[0] -= hash_of(peer, me, mine.expects[peer], mine.dtype);
    }
    all_reduce(words, {.group = group});
    return words[0] == 0 && words[1] == 0;
}

void throw_pairs(const ProcessGroup& group, const std::vector<Statement>& all) {
    std::vector<std::string> pairs;
    const auto block = [](const Statement& statement, std::int64_t count) {
        return fmt::format("{} × {}", to_string(static_cast<DType>(statement.dtype)), count);
    };
    for (std::size_t from = 0; from < all.size(); ++from) {
        for (std::size_t to = 0; to < all.size(); ++to) {
            const std::int64_t sent = all[from].sends[to], expected = all[to].expects[from];
            if (sent == expected && (sent == 0 || all[from].dtype == all[to].dtype)) continue;
            pairs.push_back(fmt::format("rank {} sends {} to rank {}, which expects {}", from, block(all[from], sent),
                                        to, block(all[to], expected)));
        }
    }
    if (pairs.empty()) return;
    const std::string more =
        pairs.size() > pairs_shown ? fmt::format("; and {} more pairs", pairs.size() - pairs_shown) : "";
    pairs.resize(std::min(pairs.size(), pairs_shown));
    throw CollectiveMismatch(fmt::format("AllToAllVV2 in group \"{}\" ({} ranks): {}{}", group.name(), group.size(),
                                         fmt::join(pairs, "; "), more),
                             {.operation = "AllToAllVV2", .group = group.name(), .rank = group.rank()});
}

std::vector<Statement> statements(const ProcessGroup& group, const Statement& mine) {
    return all_gather_object(mine, {.group = group});
}

}  // namespace

void agree(const ProcessGroup& group, DType dtype, const AllToAllVOptions& blocks) {
    if (!can_ask(group)) return;
    const Statement mine{
        .dtype = static_cast<int>(dtype), .sends = blocks.send_counts, .expects = blocks.receive_counts};
    if (all_is_well(group, mine)) return;
    const std::vector<Statement> all = statements(group, mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (!all[rank].refused) continue;
        throw Error(
            static_cast<ErrorType>(all[rank].code), fmt::format("rank {} was refused: {}", rank, all[rank].sentence),
            {.operation = "AllToAllVV2", .group = group.name(), .rank = group.rank(), .peer = static_cast<int>(rank)});
    }
    throw_pairs(group, all);
}

void tell_refused(const ProcessGroup& group, const Error& error) noexcept {
    try {
        if (!can_ask(group)) return;
        const Statement mine{.refused = true, .code = error.code(), .sentence = error.what()};
        (void)all_is_well(group, mine);
        (void)statements(group, mine);
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("a rank cannot tell the others that it was refused: {}", silent.what());
    }
}

}  // namespace tutti::atb
