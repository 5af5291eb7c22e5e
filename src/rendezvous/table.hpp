// Table: rank 0 makes it from the cards of all ranks when a world forms, and all ranks get it.
//
// Threads: any; functions of their arguments.
#pragma once

#include "rendezvous/card.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

struct Table {
    std::vector<Card> cards;
    std::string decision;     ///< rank 0's, see MembershipOptions::decide
    std::uint64_t world = 0;  ///< unique to this world
    std::string secret;       ///< proves connections between ranks if the job has no secret
};

std::string encode(const Table& table);
std::string encode(const Card& card);
/// Throws DistStoreError if the bytes are no card; the error names `rank`, whose card it should be.
Card decode_card(std::string_view bytes, int rank);
/// Throws DistStoreError when it is no table of `size` ranks.
Table decode_table(std::string_view bytes, int size);

}  // namespace tutti::rendezvous
