// Whether all ranks of a group ask for the same, when they make something together.
#pragma once

#include "group/group.hpp"
#include "operation/fingerprint.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::api {

/// Of the numbers and their count, after those behind `seed`.
std::uint64_t digest(std::span<const int> values, std::uint64_t seed);

/// The words of all ranks of the group; all call it alike. Compares `count`, too.
std::vector<std::uint64_t> gather_words(const std::shared_ptr<detail::Group>& group, std::span<std::uint64_t> words,
                                        const char* operation, group::Making making, std::uint64_t count);

/// The group or mesh that a rank is about to make.
struct Claim {
    const char* operation;
    group::Making making;
    std::uint64_t digest;                   ///< equal on ranks that mean the same
    std::function<std::string()> in_words;  ///< "group 1 of ranks [0, 1]"; called when ranks differ
    const char* expected;                   ///< "the same groups in the same order"
    std::uint64_t count = 0;                ///< ranks that differ in it end the world; the check costs nothing
};
/// One short exchange of all ranks of the group. Throws CollectiveMismatch on all of them when they differ. Returns
/// rank 0's `payload`.
std::array<std::uint64_t, 2> agree(const std::shared_ptr<detail::Group>& group, const Claim& claim,
                                   std::array<std::uint64_t, 2> payload = {});

}  // namespace tutti::api
