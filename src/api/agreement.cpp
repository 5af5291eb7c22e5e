#include "api/agreement.hpp"

#include "api/call.hpp"
#include "api/host_bytes.hpp"
#include "core/assert.hpp"
#include "core/hash.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>

namespace tutti::api {

std::uint64_t digest(std::span<const int> values, std::uint64_t seed) {
    for (const int value : values) seed = fnv1a_word(seed, static_cast<unsigned>(value));
    return fnv1a_word(seed, values.size());
}

std::vector<std::uint64_t> gather_words(const std::shared_ptr<Group>& group, std::span<std::uint64_t> words,
                                        const char* operation, group::Making making, std::uint64_t count) {
    TUTTI_ASSERT(group != nullptr && !words.empty());
    std::vector<std::uint64_t> all(words.size() * static_cast<std::size_t>(group->size()));
    const auto view_of = [](std::span<std::uint64_t> s) {
        return TensorView(s.data(), Extents::of(static_cast<std::int64_t>(s.size())), uint64);
    };
    const HostBytes own;
    const PreparedOperation prepared =
        prepare(describe::all_gather_into_tensor, view_of(all), view_of(words), {.group = ProcessGroup(group)});
    prepared->name = operation;
    prepared->call.fingerprint =
        group::Fingerprint::pack(group::group_creation, uint64, ReduceOp::Kind::sum, static_cast<int>(making), count);
    group->run(prepared);
    TUTTI_ASSERT(all.size() == words.size() * static_cast<std::size_t>(group->size()));
    return all;
}

std::array<std::uint64_t, 2> agree(const std::shared_ptr<Group>& group, const Claim& claim,
                                   std::array<std::uint64_t, 2> payload) {
    TUTTI_ASSERT(claim.in_words != nullptr && claim.expected != nullptr);
    std::array<std::uint64_t, 3> mine{claim.digest, payload[0], payload[1]};
    const std::vector<std::uint64_t> all = gather_words(group, mine, claim.operation, claim.making, claim.count);
    bool equal = true;
    for (std::size_t i = mine.size(); i < all.size(); i += mine.size()) equal &= all[i] == all[0];
    if (equal) return {all[1], all[2]};
    const std::vector<std::string> texts = all_gather_object(claim.in_words(), {.group = ProcessGroup(group)});
    TUTTI_ASSERT(texts.size() * mine.size() == all.size());
    for (std::size_t r = 1; r < texts.size(); ++r) {
        if (all[r * mine.size()] == all[0]) continue;
        throw CollectiveMismatch(fmt::format("{}: rank {} makes {}, but rank {} makes {}: expected {} on all ranks",
                                             claim.operation, group->ranks().global(0), texts[0],
                                             group->ranks().global(static_cast<int>(r)), texts[r], claim.expected),
                                 {.operation = claim.operation,
                                  .group = group->name(),
                                  .rank = group->ranks().global(group->rank()),
                                  .peer = group->ranks().global(static_cast<int>(r))});
    }
    return {all[1], all[2]};
}

}  // namespace tutti::api
