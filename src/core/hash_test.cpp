#include "core/hash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

// Values that FNV's authors publish (RFC 9923, test vectors of FNV-1a with 64 bits).
TEST(Fnv1a, gives_the_published_values) {
    EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325ULL);
    EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cULL);
    EXPECT_EQ(fnv1a("b"), 0xaf63df4c8601f1a5ULL);
    EXPECT_EQ(fnv1a("foo"), 0xdcb27518fed9d577ULL);
    EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8ULL);
}

TEST(Fnv1a, takes_bytes_above_127_as_they_are) {
    EXPECT_EQ(fnv1a("\xff"), fnv1a_word(fnv1a_basis, 255));
    EXPECT_NE(fnv1a("\xff"), fnv1a_word(fnv1a_basis, static_cast<std::uint64_t>(-1)));
    EXPECT_EQ(fnv1a(std::string(1, '\0')), fnv1a_basis * 0x100000001b3ULL);
}

TEST(Fnv1a, goes_on_where_it_ended) {
    EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar"));
}

}  // namespace
}  // namespace tutti
