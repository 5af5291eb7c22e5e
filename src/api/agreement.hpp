// Checks that all ranks of a group make the same call when they create something together, such as a group or a mesh.
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

/// A digest of the numbers and their count, chained to `seed`.
std::uint64_t digest(std::span<const int> values, std::uint64_t seed);

/// All-gathers `words` (equally many 64-bit numbers on each rank); returns those of all ranks, in rank order. The world
/// fails if ranks differ in `count`.
std::vector<std::uint64_t> gather_words(const std::shared_ptr<detail::Group>& group, std::span<std::uint64_t> words,
                                        const char* operation, group::Making making, std::uint64_t count);

/// The group or mesh that a rank is about to make.
struct Claim {
    const char* operation;
    group::Making making;
    std::uint64_t digest;                   ///< equal on ranks that make the same group or mesh
    std::function<std::string()> in_words;  ///< "group 1 of ranks [0, 1]"; called if ranks differ
    const char* expected;                   ///< "the same groups in the same order"
    std::uint64_t count = 0;                ///< if ranks differ in it, the world fails; the check costs no message
};
/// Compares the claims of all ranks of the group, in one short all_gather. If they differ, throws CollectiveMismatch on
/// every rank. Returns the `payload` of the group's rank 0.
std::array<std::uint64_t, 2> agree(const std::shared_ptr<detail::Group>& group, const Claim& claim,
                                   std::array<std::uint64_t, 2> payload = {});

}  // namespace tutti::api
