// Whether all ranks of a group mean the same, when they make something together.
#pragma once

#include "group/fingerprint.hpp"
#include "group/group.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::api {

/// Of the numbers, and how many they are, behind what made `seed`.
std::uint64_t digest(std::span<const int> values, std::uint64_t seed);

/// What every rank has, from all ranks of the group; all call it alike. `count` is compared, too.
std::vector<std::uint64_t> gather_words(const std::shared_ptr<detail::Group>& group, std::span<std::uint64_t> words,
                                        const char* operation, group::Making making, std::uint64_t count);

/// What a rank is about to make.
struct Claim {
    const char* operation;
    group::Making making;
    std::uint64_t digest;                   ///< equal on ranks that mean the same
    std::function<std::string()> in_words;  ///< "group 1 of ranks [0, 1]"; called when ranks differ
    const char* expected;                   ///< "the same groups in the same order"
    std::uint64_t count = 0;                ///< ranks that differ in it end the world, which costs nothing to find out
};
/// One short exchange of all ranks of the group. Throws CollectiveMismatch on all of them when they differ. Returns
/// rank 0's `payload`.
std::array<std::uint64_t, 2> agree(const std::shared_ptr<detail::Group>& group, const Claim& claim,
                                   std::array<std::uint64_t, 2> payload = {});

}  // namespace tutti::api
