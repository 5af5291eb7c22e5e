// Table: rank 0 makes it of the cards of all ranks, under one key of the world's store for which all others wait. Where
// the ranks do not come together a failure stands there instead: the first that is written counts, and ends the joining
// of all. The rank that fails writes it; for one that ends without a word its will does (StoreBackend::set_will).
//
// Threads: any; functions of their arguments.
#pragma once

#include "rendezvous/card.hpp"

#include <tutti/store.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

struct Failure {
    enum Kind {
        none,
        disagreement,  ///< `text` names the ranks that contradict each other: the InvalidArgument of all
        failed,        ///< `rank` could not join: `text` is its exception's
        ended          ///< the process of `rank` ended before it had joined: `text` says which it was
    };
    int kind = none;
    int rank = -1;
    std::string text;
};

struct Table {
    std::vector<int> missing;  ///< no rank may go on when there are any
    std::vector<Card> cards;
    std::string decision;
    std::uint64_t world = 0;
    std::string secret;
    Failure failure;
    int size = 0;  ///< of the world that did not come together; 0: not known
};

/// In the world's store.
inline constexpr const char* table_key = "table";
std::string card_key(int rank);

std::string encode(const Table& table);
std::string encode(const Failure& failure, int world_size = 0);
std::string encode(const Card& card);
/// Whether these versions of tutti can be in one job: up to their last number they are equal (VERSIONING.md).
bool can_work_together(std::string_view version, std::string_view other) noexcept;
/// The failure if `bytes`, which `rank` has written, come from a version of tutti that cannot be in a job with this
/// one: another MINOR. Their rest may be anything then.
std::optional<Failure> other_version(std::string_view bytes, int rank);
/// Throws DistStoreError for bytes that rank `rank` cannot have written.
Card decode_card(std::string_view bytes, int rank);
/// As rank `rank` of `size` ranks reads it. Throws the failure's error, if there is one, else the timeout that names
/// the missing; InvalidArgument when it has another number of ranks, DistStoreError when it is no table.
Table read_table(std::string_view bytes, int rank, int size);

/// The same where several worlds meet in one store. Nothing: the attempt with this table was over before the rank came,
/// is of other ranks, or has failed and the rank knows; it may join the next.
std::optional<Table> read_own_table(std::string_view bytes, int rank, int size);

/// The failure for ranks with different sizes.
Failure other_size(int rank, int says, int rank_0_says);

/// Tells the other ranks of the attempt that meets there that `rank` cannot join. `entered`: it has written its card
/// there. False: it has not, and the attempt was over without it; its failure belongs to the next.
bool say_failed(const Store& meeting, int rank, int world_size, const std::exception& error, bool entered = true);
/// Instead of a card: the rank learnt before it came that it cannot join. Its failure comes at once, as the table.
bool is_no_card(std::string_view bytes);
std::uint64_t random_id();

}  // namespace tutti::rendezvous
