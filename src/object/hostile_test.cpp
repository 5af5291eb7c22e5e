// Bytes from anybody: an error or an object, in bounded memory.
#include "object/codec.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <random>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TUTTI_COUNTS_MEMORY
#endif

namespace {
std::size_t in_use = 0, most_in_use = 0;
}

#ifdef TUTTI_COUNTS_MEMORY
// Counts allocations; the tests of this program have one thread.
namespace {
void* counted(void* memory) {
    if (memory == nullptr) throw std::bad_alloc();
    in_use += ::malloc_usable_size(memory);
    most_in_use = std::max(most_in_use, in_use);
    return memory;
}
void release(void* memory) noexcept {
    if (memory != nullptr) in_use -= ::malloc_usable_size(memory);
    std::free(memory);
}
}  // namespace
void* operator new(std::size_t bytes) {
    return counted(std::malloc(bytes));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    const auto unit = static_cast<std::size_t>(alignment);
    return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept {
    release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    release(memory);
}
#endif

namespace tutti::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
    Bytes result;
    for (const int value : values) result.push_back(static_cast<std::byte>(value));
    return result;
}
Bytes operator+(Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// Memory that decoding may use: a fixed part (open lists, messages) and 64 bytes for each byte of input.
constexpr std::size_t fixed_bytes = std::size_t{256} << 10;

// Returns the error's text, or "" for an object, which must then survive another trip.
std::string outcome(const Bytes& bytes) {
    std::string text;
    const std::size_t before = in_use;
    most_in_use = in_use;
    try {
        const Object object = decode(bytes);
        const std::size_t used = most_in_use - before;
        EXPECT_LE(used, 64 * bytes.size() + fixed_bytes);
        EXPECT_EQ(encode(decode(encode(object))), encode(object));
    } catch (const ObjectError& error) {
        EXPECT_LE(most_in_use - before, 64 * bytes.size() + fixed_bytes) << error.what();
        text = error.what();
    }
    return text;
}
void expect_error(const Bytes& bytes, const std::string& part) {
    const std::string text = outcome(bytes);
    EXPECT_NE(text.find(part), std::string::npos) << "expected: " << part << "\ngot:      " << text;
}

TEST(HostileBytes, that_are_cut_off_or_too_long_are_errors) {
    covers("S9-002");
    const Object object{{"a", {1, 2.5, "text"}}, {"t", zeros(float32, {3, 4})}, {"z", std::complex<double>(1, 2)}};
    const Bytes whole = encode(object);
    EXPECT_EQ(outcome(whole), "");
    for (std::size_t length = 0; length < whole.size(); ++length) {
        const bool is_short = length > 0 && length < 10;  // shorter than the lists that have begun announce
        expect_error(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)),
                     is_short ? "are announced in" : "end in the middle");
    }
    expect_error(whole + bytes_of({0xc0}), "1 bytes after the end");
}

TEST(HostileBytes, that_announce_more_than_is_there_take_no_memory) {
    for (const int kind : {0xdd, 0xdf})
        expect_error(bytes_of({kind, 0xff, 0xff, 0xff, 0xff, 0xc0}), "are announced in 6");
    for (const int kind : {0xdb, 0xc6, 0xc9}) expect_error(bytes_of({kind, 0xff, 0xff, 0xff, 0x00, 1, 2}), "");
    // Lists in one another, each of which announces as much as the input is long.
    Bytes nested;
    for (int i = 0; i < 200; ++i) nested = nested + bytes_of({0xdd, 0, 0, 0x60, 0});
    nested.resize(1 << 15, std::byte{0xc0});
    expect_error(nested, "are announced in 32768");
    // The dearest bytes there are: empty strings, lists of lists.
    Bytes dear = bytes_of({0xdd, 0, 1, 0, 0});
    EXPECT_EQ(outcome(dear + Bytes(1 << 16, std::byte{0xa0})), "");
    EXPECT_EQ(outcome(dear + Bytes(1 << 16, std::byte{0x90})), "");
    EXPECT_EQ(outcome(dear + Bytes(1 << 16, std::byte{0x80})), "");
    Bytes tuples = dear;
    for (int i = 0; i < 1 << 16; ++i) {
        dear = std::move(dear) + bytes_of({0x91, 0xa0});
        tuples = std::move(tuples) + bytes_of({0x91, 0xc7, 0, 5});
    }
    EXPECT_EQ(outcome(dear), "");
    EXPECT_EQ(outcome(tuples), "");
}

TEST(HostileBytes, that_are_too_deep_are_an_error_and_not_a_crash) {
    for (const int kind : {0x91, 0x81}) {
        const Bytes bomb(1 << 20, static_cast<std::byte>(kind));
        expect_error(bomb, "more than 256 levels deep");
    }
    Bytes tuples;
    for (int i = 0; i < 1 << 10; ++i) tuples = tuples + bytes_of({0x92, 0xc7, 0, 5});
    expect_error(tuples, "more than 256 levels deep");
}

TEST(HostileBytes, in_extensions_are_checked_and_the_error_names_the_place) {
    const auto in_map = [](const Bytes& bytes) { return bytes_of({0x92, 1, 0x81, 0xa1, 'k'}) + bytes; };
    expect_error(in_map(bytes_of({0xc7, 1, 99, 0})),
                 "[1].k: not a valid object at byte 5 of 9: unknown extension type 99");
    expect_error(in_map(bytes_of({0xc1})), "[1].k: not a valid object");
    expect_error(in_map(bytes_of({0xc7, 2, 1, 0, 0})), "[1].k: not a valid object");
    expect_error(bytes_of({0xc7, 3, 1, 77, 0, 0}), "unknown dtype 77");
    expect_error(bytes_of({0xc7, 3, 1, 11, 200, 0}), "head is cut off");
    const auto tensor = [](int dtype, const std::vector<std::int64_t>& sizes, int data) {
        Bytes body = bytes_of({dtype, static_cast<int>(sizes.size()), 0});
        for (const std::int64_t size : sizes) {
            for (int i = 0; i < 8; ++i) body.push_back(static_cast<std::byte>(size >> (8 * i)));
        }
        for (int i = 0; i < data; ++i) body.push_back(std::byte{2});
        return bytes_of({0xc7, static_cast<int>(body.size()), 1}) + body;
    };
    EXPECT_EQ(outcome(tensor(1, {2, 3}, 6)), "");
    expect_error(tensor(1, {2, 3}, 5), "with 5 bytes of elements: expected 6");
    expect_error(tensor(1, {-1}, 1), "impossible shape [-1]");
    expect_error(tensor(11, {std::int64_t{1} << 61, 2}, 8), "impossible shape");
    expect_error(tensor(11, {std::int64_t{1} << 40, std::int64_t{1} << 40, 0}, 0), "impossible shape");
    expect_error(tensor(0, {3}, 3), "bool above 1");
    expect_error(bytes_of({0xc7, 3, 2, 0, 0, 0}), "a complex number of 3 bytes");
    expect_error(bytes_of({0xd4, 3, 'R'}), "a record outside of a list");
    expect_error(bytes_of({0x92, 1, 0xd4, 3, 'R'}), "a record outside of a list");
    expect_error(bytes_of({0x91, 0xd4, 3, 'R'}), "a record without fields");
    expect_error(bytes_of({0x92, 0xd4, 3, 'R', 1}), "expected one map");
    expect_error(bytes_of({0x93, 0xd4, 3, 'R', 0x80, 0x80}), "expected one map");
    expect_error(bytes_of({0x92, 0xd4, 3, 'R', 0x81, 1, 1}), "a field whose name is no string");
    expect_error(bytes_of({0xc7, 0, 5}), "a tuple's mark outside of a list");
    expect_error(bytes_of({0x92, 1, 0xc7, 0, 5}), "a tuple's mark outside of a list");
    expect_error(bytes_of({0x92, 0xd4, 5, 0, 1}), "a tuple's mark with 1 bytes: expected none");
    expect_error(bytes_of({0x92, 0xc7, 0, 5}), "[0]: not a valid object at byte 4 of 4: the bytes end in the middle");
    expect_error(bytes_of({0x92, 0xc7, 0, 5, 0xc1}), "[0]: not a valid object");
    expect_error(bytes_of({0x92, 0xd4, 4, 's', 1}), "something that is no piece");
    expect_error(bytes_of({0x92, 0xd4, 4, 's', 0x90}), "a list or map among pieces");
    expect_error(bytes_of({0x92, 0xd4, 4, '?', 0xc4, 0}), "pieces of an unknown kind");
    const Bytes pieces = bytes_of({0x92, 0xc7, 12, 4, 't', 1, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0});
    EXPECT_EQ(outcome(pieces + bytes_of({0xc4, 4, 1, 2, 3, 4})), "");
    expect_error(pieces + bytes_of({0xc4, 3, 1, 2, 3}), "fewer pieces");
    expect_error(pieces + bytes_of({0xc4, 5, 1, 2, 3, 4, 5}), "more pieces");
    Bytes greedy = pieces;
    greedy[14] = std::byte{1};  // 2^48 bytes and more
    expect_error(greedy + bytes_of({0xc4, 0}), "bytes in 18 bytes");
}

TEST(HostileBytes, mutated_and_random_give_an_object_or_an_error_in_bounded_memory) {
    covers("S9-002");
    const Object object{{"name", "part-3"},
                        {"values", {1, -5, 2.5, nullptr, true, std::uint64_t{1} << 63}},
                        {"tensor", zeros(int16, {2, 3})},
                        {"flags", zeros(boolean, {9})},
                        {"z", std::complex<double>(1, 2)},
                        {"record", Object::record("Shard", {{"path", "p"}, {"rows", 3}})},
                        {"bytes", std::vector<std::uint8_t>(20, 1)},
                        {"map", Object::map({{1, 2}, {Object::list({1}), "x"}})}};
    const Bytes seeds[] = {encode(object),
                           object::encode_with({{"s", std::string(200, 's')}, {"t", zeros(int8, {100})}}, 64)};
    std::mt19937_64 random(4711);
    int good = 0, bad = 0;
#ifdef TUTTI_COUNTS_MEMORY
    constexpr int tries = 100'000;
#else
    constexpr int tries = 10'000;
#endif
    for (int i = 0; i < tries; ++i) {
        Bytes bytes = seeds[i % 2];
        if (i % 10 == 9) {
            bytes.resize(random() % 200);
            for (auto& byte : bytes) byte = static_cast<std::byte>(random());
        }
        for (std::uint64_t change = 0; change <= random() % 4 && !bytes.empty(); ++change) {
            const auto at = static_cast<std::ptrdiff_t>(random() % bytes.size());
            switch (random() % 4) {
                case 0: bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(random()); break;
                case 1: bytes[static_cast<std::size_t>(at)] ^= static_cast<std::byte>(1 << random() % 8); break;
                case 2: bytes.insert(bytes.begin() + at, static_cast<std::byte>(random())); break;
                default: bytes.erase(bytes.begin() + at); break;
            }
        }
        (outcome(bytes).empty() ? good : bad) += 1;
    }
    EXPECT_GT(good, tries / 50);
    EXPECT_GT(bad, tries / 10);
}

}  // namespace
}  // namespace tutti::test
