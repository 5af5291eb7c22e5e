// CRC-32C by every way that this CPU has.
#include "core/crc32c.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

using Bytes = std::vector<std::byte>;

std::uint32_t run(const Crc32cWay& way, std::span<const std::byte> bytes) {
    return ~way.run(~std::uint32_t{0}, bytes.data(), bytes.size());
}

Bytes counted(int first, int step) {
    Bytes bytes;
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(first + i * step));
    return bytes;
}

// RFC 3720, appendix B.4, and the check value of the catalogues.
TEST(Crc32c, is_that_of_the_standard) {
    const std::string_view digits = "123456789";
    const std::pair<Bytes, std::uint32_t> known[] = {
        {Bytes(32, std::byte{0}), 0x8a9136aa},
        {Bytes(32, std::byte{0xff}), 0x62a8ab43},
        {counted(0, 1), 0x46dd794e},
        {counted(31, -1), 0x113fdb5c},
        {Bytes(reinterpret_cast<const std::byte*>(digits.begin()), reinterpret_cast<const std::byte*>(digits.end())),
         0xe3069283},
        {{}, 0},
    };
    for (const Crc32cWay& way : crc32c_ways()) {
        for (const auto& [bytes, value] : known) EXPECT_EQ(run(way, bytes), value) << way.name << ", " << bytes.size();
    }
    for (const auto& [bytes, value] : known) EXPECT_EQ(crc32c(bytes), value);
}

TEST(Crc32c, is_the_same_by_every_way_for_every_length_and_place) {
    std::mt19937 random(7);
    Bytes bytes(300'000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto ways = crc32c_ways();
    std::vector<std::size_t> lengths(1100);
    std::iota(lengths.begin(), lengths.end(), std::size_t{0});
    for (const std::size_t more : {3071, 3072, 3073, 24'575, 24'576, 24'583, 65'024, 262'200, 299'900})
        lengths.push_back(more);
    for (const std::size_t length : lengths) {
        const auto piece = std::span(bytes).subspan(random() % 64, length);
        const std::uint32_t value = run(ways.front(), piece);
        for (const Crc32cWay& way : ways.subspan(1)) ASSERT_EQ(run(way, piece), value) << way.name << ", " << length;
    }
}

TEST(Crc32c, of_pieces_is_that_of_the_whole) {
    Bytes bytes(5000);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i);
    const std::uint32_t whole = crc32c(bytes);
    for (const std::size_t cut : {0, 1, 7, 512, 1111, 4999, 5000})
        EXPECT_EQ(crc32c(std::span(bytes).subspan(cut), crc32c(std::span(bytes).first(cut))), whole) << cut;
}

TEST(Crc32c, tells_of_every_bit_that_changes) {
    Bytes bytes(1600, std::byte{0x5a});
    const std::uint32_t right = crc32c(bytes);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 3) {
        const auto mask = static_cast<std::byte>(1U << bit % 8);
        bytes[bit / 8] ^= mask;
        EXPECT_NE(crc32c(bytes), right) << bit;
        bytes[bit / 8] ^= mask;
    }
}

}  // namespace
}  // namespace tutti
