// The records in a store while ranks meet there (LIFELINES.md): a rank's card, its note on the board (for which attempt
// it waits; the ranks of other meetings read it, too), and the outcome. Each is encoded as a list: the writer's version
// of tutti, and the object.
//
// Threads: any; values, and functions of their arguments.
#pragma once

#include "object/codec.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::rendezvous {

/// The process that runs a rank.
struct MeetingProcess {
    std::string space;          ///< processes with equal `space` can check whether the other lives
    int number = 0;             ///< its id in `space`
    std::uint64_t started = 0;  ///< start time, to tell it from a later process with this id; 0: not known
    std::string in_words{};     ///< "process 4711 on node07"
};
TUTTI_OBJECT(MeetingProcess, space, number, started, in_words);

/// A rank's card: its payload, and what rank 0 checks.
struct MeetingCard {
    std::uint64_t nonce = 0;  ///< random, to tell cards apart
    int size = 0;
    std::string digest{}, words{};
    MeetingProcess process{};
    std::string payload{};
};
TUTTI_OBJECT(MeetingCard, nonce, size, digest, words, process, payload);

/// A rank's note on the board while it waits. The nonce distinguishes one wait from the next.
struct MeetingNote {
    std::uint64_t nonce = 0;
    std::string id{}, words{};
    std::vector<int> members{};
};
TUTTI_OBJECT(MeetingNote, nonce, id, words, members);

/// How an attempt has ended; all its ranks read it.
struct MeetingOutcome {
    enum Kind { none, met, late, failed, ended, disagrees };
    int kind = none;
    int rank = -1;            ///< the rank that it is about
    int size = 0;             ///< how many ranks the writer expected; 0: it is not sure
    std::string text{};       ///< the error message for all ranks; empty if they have met
    std::uint64_t nonce = 0;  ///< random, to tell outcomes apart
    std::vector<std::string> cards{};
};
TUTTI_OBJECT(MeetingOutcome, kind, rank, size, text, nonce, cards);

/// Whether this was written instead of a card: the rank cannot come, and writes the reason as the outcome at once.
inline bool is_no_card(std::string_view bytes) {
    return bytes.starts_with('-');
}

std::uint64_t random_id();
/// The encoded list of this library's version and the value.
std::string encode_record(Object value);
/// Whether two versions of tutti can work in one job: they differ at most in the last number (VERSIONING.md).
bool can_work_together(std::string_view version, std::string_view other) noexcept;
/// The error message about `rank`, which wrote `bytes`, if it runs another MINOR version of tutti: then the rest of the
/// bytes cannot be interpreted.
std::optional<std::string> other_version(std::string_view bytes, int rank);
/// Throws the error that `what` could not be read.
[[noreturn]] void raise_unreadable(const std::string& operation, const std::string& what, const ObjectError& error);

template <class Record>
Record decode_record(std::string_view bytes, const std::string& operation, const std::string& what) {
    try {
        const Object all = object::decode_string(bytes);
        const Object::List& parts = all.as_list();
        return parts.size() == 2 ? parts[1].get<Record>() : all.get<Record>();  // the error names the mistake
    } catch (const ObjectError& error) {
        raise_unreadable(operation, what, error);
    }
}

}  // namespace tutti::rendezvous
