// Files for torchfrtrace: their bytes here; other tests read them with Python and with torchfrtrace itself.
#include "record/flight.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace tutti::record {
namespace {

using namespace std::string_literals;
using nlohmann::json;

std::string pickled(const json& value) {
    const std::string bytes = pickle(value);
    EXPECT_TRUE(bytes.starts_with("\x80\x02"s));
    EXPECT_TRUE(bytes.ends_with("."s));
    return bytes.substr(2, bytes.size() - 3);
}

TEST(Pickle, writes_each_kind_of_value_with_its_opcode) {
    EXPECT_EQ(pickled(nullptr), "N");
    EXPECT_EQ(pickled(true), "\x88");
    EXPECT_EQ(pickled(false), "\x89");
    EXPECT_EQ(pickled("é"), "X\x02\0\0\0é"s);
    EXPECT_EQ(pickled(1.5), "G\x3f\xf8\0\0\0\0\0\0"s);
    EXPECT_EQ(pickled(json::array({1, nullptr})), "](J\x01\0\0\0Ne"s);
    EXPECT_EQ(pickled(json{{"a", true}}), "}(X\x01\0\0\0a\x88u"s);
}

TEST(Pickle, writes_integers_of_any_size_with_their_sign) {
    EXPECT_EQ(pickled(-1), "J\xff\xff\xff\xff"s);
    EXPECT_EQ(pickled(INT32_MIN), "J\0\0\0\x80"s);
    EXPECT_EQ(pickled(std::int64_t{INT32_MAX} + 1), "\x8a\x08\0\0\0\x80\0\0\0\0"s);
    EXPECT_EQ(pickled(-(std::int64_t{1} << 40)), "\x8a\x08\0\0\0\0\0\xff\xff\xff"s);
    EXPECT_EQ(pickled(UINT64_MAX), "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"s);
}

Dump dump_of(int rank, std::vector<Entry> entries) {
    return {.group = "world", .world = 1, .home = 0x2a, .rank = rank, .size = 2, .entries = std::move(entries)};
}

TEST(FlightFiles, are_one_for_each_rank_of_each_world_with_all_its_groups) {
    Dump sub = dump_of(0, {});
    sub.group = "pair";
    sub.members = Members({1, 0});  // rank 0 of the group is rank 1 of the world
    const auto files = flight_files(std::vector{dump_of(0, {}), dump_of(1, {}), sub});
    ASSERT_EQ(files.size(), 2U);
    EXPECT_EQ(files[0].name, "flight_2a_rank_0");
    EXPECT_EQ(files[1].name, "flight_2a_rank_1");
    EXPECT_EQ(files[0].bytes.find("pair"), std::string::npos);
    EXPECT_NE(files[1].bytes.find("pair"), std::string::npos);
    EXPECT_NE(files[1].bytes.find("[0, 1]"), std::string::npos);
}

TEST(FlightFiles, hold_a_dump_of_another_world_apart) {
    Dump later = dump_of(0, {});
    later.home = 0x2b;
    const auto files = flight_files(std::vector{dump_of(0, {}), later});
    ASSERT_EQ(files.size(), 2U);
    EXPECT_EQ(files[1].name, "flight_2b_rank_0");
}

}  // namespace
}  // namespace tutti::record
