// Records and dumps as tests want them.
#pragma once

#include "record/dump.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test {

using record::Dump, record::Entry, record::Kind, record::State;

inline std::string describe_number(std::uint64_t fingerprint) {
    return fmt::format("operation {}", fingerprint);
}

inline Entry entry_of(std::uint64_t sequence, State state, std::int64_t begin = 1000, std::int64_t end = 2000,
                      std::uint64_t fingerprint = 7) {
    Entry e;
    e.number = sequence;
    e.sequence = sequence;
    e.fingerprint = fingerprint;
    e.what = describe_number(fingerprint);
    e.state = state;
    e.enqueued_ns = e.started_ns = begin;
    e.ended_ns = e.open() ? 0 : end;
    e.site = "train+0x12";
    return e;
}

inline Entry message_of(Kind kind, int peer, State state, std::int64_t begin = 1000, std::int64_t end = 2000) {
    Entry e = entry_of(1, state, begin, end);
    e.sequence = 0;
    e.kind = kind;
    e.peer = peer;
    return e;
}

inline Dump dump_of(int rank, int size, std::vector<Entry> entries) {
    return {.group = "dp \u00e9",
            .world = 0xabcdef0123456789,
            .rank = rank,
            .size = size,
            .host = "node",
            .machine = "m",
            .process = 4711,
            .reason = "a\nb",
            .taken_ns = 5'000'000'000,
            .entries = std::move(entries)};
}

}  // namespace tutti::test
