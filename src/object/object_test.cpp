// Objects as values, conversions from and to C++ types, round trips through bytes.
#include "object/codec.hpp"
#include "support/covers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace shop {
struct Shard {
    std::string path;
    std::int64_t rows = 0;
    friend bool operator==(const Shard&, const Shard&) = default;
};
TUTTI_OBJECT(Shard, path, rows);

enum class Colour : std::uint8_t { red = 1, blue = 7 };

struct Everything {
    bool flag = false;
    Colour colour = Colour::red;
    float ratio = 0;
    std::complex<float> phase;
    std::vector<Shard> shards;
    std::map<std::string, std::vector<int>> table;
    std::optional<std::string> note;
    std::tuple<int, std::string> pair;
    std::variant<std::int64_t, std::string> either;
    std::array<double, 2> point{};
    friend bool operator==(const Everything&, const Everything&) = default;
};
TUTTI_OBJECT(Everything, flag, colour, ratio, phase, shards, table, note, pair, either, point);

struct Nothing {};
TUTTI_OBJECT(Nothing);

// Joins in with two functions.
class Celsius {
 public:
    explicit Celsius(double degrees = 0) : degrees_(degrees) {}
    double degrees() const { return degrees_; }

 private:
    double degrees_;
};
tutti::Object to_object(const Celsius& value) {
    return tutti::Object::record("Celsius", {{"degrees", value.degrees()}});
}
void from_object(const tutti::Object& object, Celsius& value) {
    value = Celsius(object.at("degrees").get<double>());
}
}  // namespace shop

namespace tutti::test {
namespace {

Object round_trip(const Object& object) {
    return decode(encode(object));
}
std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const ObjectError& error) {
        return error.what();
    }
    return "no error";
}

std::vector<Object> samples() {
    const std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
    Tensor matrix = empty(bfloat16, {2, 3});
    for (int i = 0; i < 6; ++i) matrix.data<BFloat16>()[i] = BFloat16(static_cast<float>(i) / 3);
    std::vector<Object> all{Object(),
                            true,
                            false,
                            0,
                            -1,
                            127,
                            128,
                            -32,
                            -33,
                            70000,
                            low,
                            high,
                            std::numeric_limits<std::uint64_t>::max(),
                            0.0,
                            -0.5,
                            1e300,
                            std::numeric_limits<double>::infinity(),
                            std::complex<double>(1, -2),
                            "",
                            "text with \0 inside",
                            std::string(31, 'x'),
                            std::string(70000, 'y'),
                            Object::bytes({}),
                            std::vector<std::uint8_t>(300, 9),
                            Object::list(),
                            Object::list({1}),
                            Object::map(),
                            Object::map({{1, 2}}),
                            Object::map({{Object(), Object::list({1, "x"})}, {2.5, false}, {"k", Object::map()}}),
                            matrix,
                            zeros(float32, {}),
                            zeros(int64, {0, 5}),
                            tensor<bool>({true, false, true}),
                            zeros(complex128, {3}),
                            shop::Shard{"part-3", 128},
                            Object::record("Empty", {})};
    for (int i = 0; i < dtype_count; ++i) all.emplace_back(zeros(static_cast<DType>(i), {2, 1, 3}));
    return all;
}

TEST(Object, comes_back_from_its_bytes_as_it_was) {
    covers("S9-001");
    for (const Object& object : samples()) EXPECT_EQ(round_trip(object), object) << object;
    const Object all = Object::list(samples());
    EXPECT_EQ(round_trip(all), all);
    EXPECT_TRUE(std::isnan(round_trip(std::nan("")).as_double()));
    Object deep = 1;
    for (std::size_t i = 0; i < max_object_depth; ++i) deep = Object::list({std::move(deep)});
    EXPECT_EQ(round_trip(deep), deep);
    deep = Object::list({std::move(deep)});
    EXPECT_NE(error_of([&] { (void)encode(deep); }).find("256 levels"), std::string::npos);
}

TEST(Object, in_pieces_of_any_size_comes_back_as_it_was) {
    Tensor numbers = empty(int32, {10, 7});
    for (int i = 0; i < 70; ++i) numbers.data<std::int32_t>()[i] = i * i;
    const Object object{{"text", std::string(1000, 't')},
                        {"bytes", std::vector<std::uint8_t>(999, 3)},
                        {"tensor", numbers},
                        {"flags", zeros(boolean, {500})},
                        {"list", {std::string(500, 'u'), numbers}}};
    for (const std::size_t piece : {64, 65, 100, 281, 1000, 5000}) {
        EXPECT_EQ(decode(object::encode_with(object, piece)), object) << piece;
        const std::vector<Object> list{object, 1, numbers};
        EXPECT_EQ(object::decode_shared(object::encode_list(list, piece)), Object::list(list)) << piece;
    }
}

TEST(ObjectWriter, and_reader_take_every_length_of_number_and_text) {
    std::vector<Object> values;
    for (int bits = 0; bits < 64; ++bits) {
        for (const int more : {-1, 0, 1}) {
            const std::uint64_t number = (std::uint64_t{1} << bits) + static_cast<std::uint64_t>(more);
            values.push_back(Object::natural(number));
            values.push_back(Object::integer(-static_cast<std::int64_t>(number >> 1)));
        }
    }
    values.push_back(Object::integer(INT64_MIN));
    for (const std::size_t length : {0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536}) {
        values.emplace_back(std::string(length, 's'));
        values.push_back(Object::bytes(Object::Bytes(length, std::byte{7})));
        values.push_back(Object::list(Object::List(length)));
        values.push_back(Object::record(std::string(std::min<std::size_t>(length, 65535), 'r'), {}));
        values.emplace_back(zeros(uint8, {static_cast<std::int64_t>(length)}));
    }
    for (const Object& value : values) EXPECT_EQ(round_trip(value), value) << value;
    EXPECT_EQ(decode(object::encode_with(Object::list(values), 100)), Object::list(values));
}

TEST(ObjectWriter, and_reader_have_tuples_that_an_object_has_as_records) {
    for (const std::size_t count : {0, 1, 14, 15, 65'535}) {
        ObjectWriter writer;
        writer.begin_list(2);
        writer.begin_tuple(count);
        for (std::size_t i = 0; i < count; ++i) writer.integer(1);
        writer.end_tuple();
        writer.boolean(true);
        writer.end_list();
        const EncodedObject encoded = writer.finish();
        ObjectReader reader(encoded);
        EXPECT_EQ(reader.next(), ObjectKind::list);
        EXPECT_FALSE(reader.is_tuple());
        EXPECT_EQ(reader.next(), ObjectKind::list);
        EXPECT_TRUE(reader.is_tuple());
        EXPECT_EQ(reader.count(), count);
        const Object items = Object::list(Object::List(count, 1));
        const Object expected = Object::list({Object::record("python.tuple", {{"items", items}}), true});
        EXPECT_EQ(object::decode_shared(encoded), expected);
        EXPECT_EQ(round_trip(expected), expected);
    }
    const auto nested = [](std::size_t tuples) {
        ObjectWriter writer;
        for (std::size_t i = 0; i < tuples; ++i) writer.begin_tuple(1);
        writer.nil();
        for (std::size_t i = 0; i < tuples; ++i) writer.end_tuple();
        return writer.finish();
    };
    const Object deepest = object::decode_shared(nested(max_object_depth / 3));
    EXPECT_EQ(round_trip(deepest), deepest);
    EXPECT_NE(error_of([&] { (void)nested(max_object_depth / 3 + 1); }).find("256 levels"), std::string::npos);
}

TEST(ObjectWriter, goes_back_to_a_mark_as_if_nothing_had_come_after_it) {
    const Tensor large = zeros(float64, {1000});
    ObjectWriter writer;
    writer.begin_list(2);
    writer.tensor(large);
    const ObjectWriter::Mark mark = writer.mark();
    writer.begin_map(1);
    writer.string("half");
    writer.begin_record("R", 3);
    writer.tensor(large);
    writer.rewind(mark);
    writer.integer(5);
    writer.end_list();
    const EncodedObject encoded = writer.finish();
    EXPECT_EQ(object::decode_shared(encoded), Object::list({large, 5}));
    EXPECT_EQ(encoded.bytes, writer.size());
}

TEST(Object, that_is_a_large_tensor_stays_in_the_buffer_it_came_in) {
    Tensor large = empty(float32, {600, 1000});
    for (int i = 0; i < 600'000; ++i) large.data<float>()[i] = static_cast<float>(i);
    const std::vector<Object> list{"before", large, zeros(int8, {7})};
    Object back;
    {
        const EncodedObject encoded = object::encode_list(list);
        back = object::decode_shared(encoded);
        const auto* data = static_cast<const std::byte*>(back.at(1).as_tensor().raw_data());
        const auto* buffer = static_cast<const std::byte*>(encoded.buffer.raw_data());
        EXPECT_TRUE(data > buffer && data < buffer + encoded.bytes);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    }
    EXPECT_EQ(back, Object::list(list));  // the buffer lives on in the tensor
}

TEST(Object, of_a_strided_tensor_is_its_elements_in_order) {
    const std::vector<int> columns{1, 4, 2, 5, 3, 6};
    const Object object = ConstTensorView(columns.data(), {2, 3}, int32, {1, 2});
    EXPECT_EQ(round_trip(object).as_tensor().data<int>()[1], 2);
    auto owner = std::make_shared<std::vector<int>>(columns);
    const Tensor strided(TensorView(owner->data(), {2, 3}, int32, {1, 2}), owner);
    EXPECT_EQ(round_trip(strided), object);
    EXPECT_EQ(Object(strided), object);
}

TEST(Object, in_braces_is_a_map_of_named_values_or_a_list) {
    const Object settings{{"lr", 0.1}, {"layers", {64, 10}}};
    EXPECT_EQ(settings.kind(), ObjectKind::map);
    EXPECT_EQ(settings.at("lr").get<double>(), 0.1);
    EXPECT_EQ(settings.at("layers").get<std::vector<int>>(), (std::vector<int>{64, 10}));
    const Object list{1, "two", 3.0, nullptr, Object::map({{1, 2}})};
    EXPECT_EQ(to_string(list), R"([1, "two", 3, nil, {1: 2}])");
    EXPECT_EQ(list.at(4).at(1), 2);
    EXPECT_EQ(Object::map({{1, 2}, {3, 4}}), Object::map({{3, 4}, {1, 2}}));
    EXPECT_NE(Object::map({{1, 2}, {3, 4}}), Object::map({{3, 2}, {1, 4}}));
    EXPECT_NE(Object(1), Object(1.0));
    EXPECT_NE(Object(1), Object(true));
    Object changed = settings;
    changed.at("lr") = 0.2;
    changed.at("layers").as_list().push_back(5);
    EXPECT_EQ(settings.at("lr"), 0.1);
    EXPECT_EQ(changed.at("layers").size(), 3u);
    EXPECT_EQ(settings.find("no"), nullptr);
    Object moved = std::move(changed);
    EXPECT_EQ(moved.at("lr"), 0.2);
    EXPECT_TRUE(changed.is_nil());  // NOLINT(bugprone-use-after-move): it promises that
}

TEST(Object, that_is_moved_from_is_nil_and_equal_to_nil_whatever_it_was) {
    for (Object value : {Object(true), Object(std::uint64_t{1} << 63), Object(0.5), Object("text"), Object{1, 2}}) {
        const Object before = value;
        const Object moved = std::move(value);
        EXPECT_EQ(moved, before);
        EXPECT_EQ(value, Object()) << before;  // NOLINT(bugprone-use-after-move): it promises that
    }
}

TEST(Object, takes_the_place_of_the_one_that_it_lies_in) {
    Object copied{{"inside", {1, 2}}}, moved = copied;
    copied = copied.at("inside");
    EXPECT_EQ(copied, (Object{1, 2}));
    moved = std::move(moved.at("inside"));
    EXPECT_EQ(moved, (Object{1, 2}));
}

TEST(Object, is_what_every_listed_type_becomes_and_comes_back_from) {
    shop::Everything value{.flag = true,
                           .colour = shop::Colour::blue,
                           .ratio = 0.1F,
                           .phase = {1, 2},
                           .shards = {{"a", 1}, {"b", 2}},
                           .table = {{"x", {1, 2}}, {"y", {}}},
                           .note = {},
                           .pair = {3, "three"},
                           .either = "text",
                           .point = {0.5, 1.5}};
    EXPECT_EQ(round_trip(value).get<shop::Everything>(), value);
    value.note = "here";
    value.either = std::int64_t{5};
    EXPECT_EQ(round_trip(value).get<shop::Everything>(), value);
    EXPECT_EQ(round_trip(shop::Celsius(21.5)).get<shop::Celsius>().degrees(), 21.5);
    (void)round_trip(shop::Nothing{}).get<shop::Nothing>();
    const auto same = [](const auto& x) { EXPECT_EQ(round_trip(x).template get<std::decay_t<decltype(x)>>(), x); };
    same(std::vector<float>{1, 2, 3});
    same(std::vector<std::uint8_t>{1, 2, 3});
    same(std::vector<std::byte>(5));
    same(std::vector<bool>{true, false});
    same(std::vector<std::string>{"a", ""});
    same(std::vector<std::vector<double>>{{1}, {}, {2, 3}});
    same(std::array<std::string, 2>{"a", "b"});
    same(std::map<int, std::string>{{1, "x"}, {-2, "y"}});
    same(std::unordered_map<std::string, double>{{"a", 1}, {"b", 2}});
    same(std::set<int>{3, 1});
    same(std::pair<int, bool>{4, true});
    same(std::optional<int>{});
    same(std::vector<std::optional<int>>{1, {}, 3});
    same(std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(Object(3).get<double>(), 3.0);
    EXPECT_EQ(Object(3).get<std::optional<int>>(), 3);
    EXPECT_EQ((Object{{"path", "p"}, {"rows", 3}}).get<shop::Shard>(), (shop::Shard{"p", 3}));
    EXPECT_EQ(Object(std::string_view("v")), "v");
}

TEST(Object, of_the_wrong_kind_is_an_error_that_names_the_place) {
    using Shards = std::vector<shop::Shard>;
    const Object good = shop::Shard{"a", 1};
    Object bad = good;
    bad.as_record().fields[0].second = 12;
    const auto read = [](const Object& object) { return error_of([&] { (void)object.get<Shards>(); }); };
    EXPECT_EQ(read({good, good, bad}), "[2].path: expected a string, got an integer");
    EXPECT_EQ(read({good, 5}), "[1]: expected a record Shard, got an integer");
    EXPECT_EQ(read("x"), "expected a list, got a string of 1 bytes");
    EXPECT_EQ(read(Object::list({Object::record("Other", {})})), "[0]: expected a record Shard, got a record Other");
    EXPECT_EQ(read(Object::list({Object::record("Shard", {{"path", "x"}})})),
              "[0].rows: is missing in the fields of Shard");
    EXPECT_EQ(read(Object::list({Object::record("Shard", {{"path", "x"}, {"rows", 1}, {"more", 2}})})),
              "[0].more: Shard has no such field");
    EXPECT_EQ(read(Object::list({Object::record("Shard", {{"path", "x"}, {"rows", 1}, {"rows", 2}})})),
              "[0]: a field of Shard is there twice");
    EXPECT_EQ(error_of([] { (void)Object(300).get<std::uint8_t>(); }), "expected an integer from 0 to 255, got 300");
    EXPECT_EQ(error_of([] { (void)Object(-1).get<unsigned>(); }), "expected an integer of zero or more, got -1");
    EXPECT_EQ(error_of([] { (void)Object(1.5).get<int>(); }), "expected an integer, got a real number");
    EXPECT_EQ(error_of([] {
                  (void)(Object{1, 2, 3}).get<std::pair<int, int>>();
              }),
              "expected a list of 2, got a list of 3");
    EXPECT_EQ(error_of([] { (void)Object(true).get<std::variant<int, std::string>>(); }),
              "expected one of 2 alternatives, got a bool");
    EXPECT_EQ(error_of([] { (void)Object(std::vector<float>(2)).get<std::vector<double>>(); }),
              "expected a tensor float64 of one dimension, got a tensor float32[2]");
    EXPECT_EQ(error_of([] {
                  (void)(Object{{"a", {1, "x"}}}).get<std::map<std::string, std::vector<int>>>();
              }),
              ".a[1]: expected an integer, got a string of 1 bytes");
    EXPECT_EQ(error_of([] { (void)(Object{{"a", 1}}).at("b"); }), ".b: is missing in a map of 1");
    EXPECT_EQ(error_of([] { (void)Object(std::uint64_t{1} << 63).get<double>(); }).substr(0, 22),
              "expected a real number");
    const Object foreign = Tensor(TensorView(&bad, {1}, int8, {}, {Device::Type::cuda, 0}), nullptr);
    EXPECT_EQ(error_of([&] {
                  (void)encode(Object{{"x", {1, foreign}}});
              }),
              ".x[1]: a tensor on cuda:0: expected host memory");
}

}  // namespace
}  // namespace tutti::test
