#include "support/covers.hpp"
#include "tensor/piecewise_writer.hpp"

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tutti/error.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace tutti {
namespace {

using test::covers;

template <class T>
void every_pattern_survives_a_round_trip(unsigned patterns) {
    for (unsigned bits = 0; bits < patterns; ++bits) {
        T value;
        value.bits = static_cast<decltype(value.bits)>(bits);
        const float wide(value);
        const T back(wide);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(float(back)));
        } else {
            EXPECT_EQ(back.bits, value.bits) << bits;
        }
    }
}

TEST(SmallFloats, every_pattern_survives_a_round_trip) {
    every_pattern_survives_a_round_trip<Float16>(1U << 16);
    every_pattern_survives_a_round_trip<BFloat16>(1U << 16);
    every_pattern_survives_a_round_trip<Float8E4M3FN>(1U << 8);
    every_pattern_survives_a_round_trip<Float8E5M2>(1U << 8);
}

// Between two neighbours the nearer wins, and on a tie the even one.
template <class T>
void rounding_is_to_nearest_even(unsigned largest_finite) {
    for (unsigned bits = 0; bits < largest_finite; ++bits) {
        T low, high;
        low.bits = static_cast<decltype(low.bits)>(bits);
        high.bits = static_cast<decltype(low.bits)>(bits + 1);
        const float middle = (float(low) + float(high)) / 2;
        EXPECT_EQ(T(middle).bits, (bits & 1) != 0 ? high.bits : low.bits) << bits;
        EXPECT_EQ(T(std::nextafter(middle, 0.0F)).bits, low.bits) << bits;
        EXPECT_EQ(T(std::nextafter(middle, INFINITY)).bits, high.bits) << bits;
    }
}

TEST(SmallFloats, round_to_nearest_even) {
    rounding_is_to_nearest_even<Float16>(0x7bff);
    rounding_is_to_nearest_even<Float8E4M3FN>(0x7e);
    rounding_is_to_nearest_even<Float8E5M2>(0x7b);
    EXPECT_EQ(BFloat16(1.00390625F).bits, 0x3f80);
    EXPECT_EQ(BFloat16(1.01171875F).bits, 0x3f82);
}

TEST(SmallFloats, overflow_as_their_formats_say) {
    EXPECT_TRUE(std::isinf(float(Float16(65520.0F))));
    EXPECT_EQ(float(Float16(65519.0F)), 65504.0F);
    EXPECT_TRUE(std::isnan(float(Float8E4M3FN(465.0F))));
    EXPECT_EQ(float(Float8E4M3FN(463.0F)), 448.0F);
    EXPECT_TRUE(std::isinf(float(Float8E5M2(61440.0F))));
    EXPECT_TRUE(std::isnan(float(BFloat16(NAN))));
}

TEST(DType, names_go_both_ways_and_an_unknown_one_lists_them) {
    for (int i = 0; i < dtype_count; ++i) {
        const auto dtype = static_cast<DType>(i);
        EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
        EXPECT_GT(size_of(dtype), 0U);
    }
    try {
        dtype_from_string("float31");
        FAIL();
    } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
    }
}

TEST(ReduceOp, says_what_is_defined_for_what) {
    covers("S10-001", "S10-011", "S10-012");
    EXPECT_EQ(static_cast<int>(ReduceOp::sum.kind()), 0);
    EXPECT_EQ(ReduceOp::premul_sum(0.5).factor(), 0.5);
    EXPECT_FALSE(is_supported(ReduceOp::Kind::max, complex64));
    EXPECT_FALSE(is_supported(ReduceOp::Kind::product, complex128));
    EXPECT_FALSE(is_supported(ReduceOp::Kind::band, float32));
    EXPECT_TRUE(is_supported(ReduceOp::Kind::bxor, boolean));
    EXPECT_EQ(reduce_op_from_string("max").kind(), ReduceOp::Kind::max);
    EXPECT_THROW(reduce_op_from_string("median"), InvalidArgument);
}

TEST(View, rejects_what_cannot_be) {
    float value = 0;
    EXPECT_THROW(TensorView(&value, {-1}, float32), InvalidArgument);
    EXPECT_THROW(TensorView(&value, {2, 2}, float32, {1}), InvalidArgument);
    EXPECT_THROW(TensorView(nullptr, {1}, float32), InvalidArgument);
    EXPECT_NO_THROW(TensorView(nullptr, {0, 3}, float32));
    EXPECT_THROW(view(&value, {std::int64_t{1} << 40, std::int64_t{1} << 40}), InvalidArgument);
}

TEST(View, comes_from_anything_contiguous) {
    std::vector<float> vector(6);
    const ConstTensorView from_vector(vector);
    EXPECT_EQ(from_vector.to_string(), "float32[6]");
    std::array<std::int16_t, 3> array{};
    EXPECT_EQ(TensorView(array).dtype(), int16);
    EXPECT_EQ(view(vector.data(), {2, 3}).shape(), Extents({2, 3}));
    EXPECT_EQ(view(vector.data(), {}).element_count(), 1);  // zero dimensions hold one element
    double number = 0;
    const TensorView from_number(number);
    EXPECT_EQ(from_number.to_string(), "float64[1]");
    EXPECT_EQ(from_number.data(), &number);
    const bool flag = true;
    EXPECT_EQ(ConstTensorView(flag).to_string(), "bool[1]");
}

TEST(Copy, follows_strides_of_any_kind) {
    std::vector<std::int32_t> data(24);
    std::iota(data.begin(), data.end(), 0);
    std::vector<std::int32_t> transposed(24, -1);
    copy(view(transposed.data(), {6, 4}), ConstTensorView(data.data(), {6, 4}, int32, {1, 6}));
    for (int i = 0; i < 6; ++i) {
        for (int j = 0; j < 4; ++j) EXPECT_EQ(transposed[static_cast<std::size_t>(i * 4 + j)], j * 6 + i);
    }
    std::vector<std::int32_t> reversed(24);
    copy(reversed, ConstTensorView(data.data() + 23, {24}, int32, {-1}));
    EXPECT_EQ(reversed.front(), 23);
    EXPECT_EQ(reversed.back(), 0);
    std::vector<std::int32_t> repeated(4);
    copy(repeated, ConstTensorView(data.data() + 5, {4}, int32, {0}));
    EXPECT_EQ(repeated, std::vector<std::int32_t>(4, 5));
    EXPECT_THROW(copy(repeated, data), InvalidArgument);
}

// Any shape with any strides, against an index computed the slow way.
TEST(Copy, agrees_with_an_element_by_element_walk) {
    std::mt19937 random(3);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    for (const DType dtype : {uint8, int16, float32, float64, complex128}) {
        const std::size_t unit = size_of(dtype);
        for (int round = 0; round < 200; ++round) {
            // Two layouts of one shape: a random order of dimensions in memory, gaps between them, some reversed.
            std::vector<std::int64_t> shape;
            std::int64_t count = 1;
            for (int i = pick(0, 5); i > 0; --i) {
                shape.push_back(pick(1, i == 1 ? 90 : 6));
                count *= shape.back();
            }
            struct Layout {
                std::vector<std::int64_t> strides;
                std::int64_t start = 0, extent = 1;
            };
            const auto layout = [&] {
                Layout l{std::vector<std::int64_t>(shape.size())};
                std::vector<std::size_t> order(shape.size());
                std::iota(order.begin(), order.end(), 0U);
                if (pick(0, 2) != 0) std::shuffle(order.begin(), order.end(), random);
                for (std::size_t i = order.size(); i-- > 0;) {
                    const std::size_t d = order[i];
                    l.strides[d] = l.extent * (pick(0, 3) == 0 ? 2 : 1);
                    l.extent = l.strides[d] * shape[d];
                    if (pick(0, 4) == 0) {
                        l.start += l.strides[d] * (shape[d] - 1);
                        l.strides[d] = -l.strides[d];
                    }
                }
                return l;
            };
            const Layout from = layout(), to = layout();
            std::vector<std::uint8_t> source(static_cast<std::size_t>(from.extent) * unit);
            for (auto& byte : source) byte = static_cast<std::uint8_t>(random());
            std::vector<std::uint8_t> target(static_cast<std::size_t>(to.extent) * unit, 0xa5);
            std::vector<std::uint8_t> wanted = target;
            for (std::int64_t i = 0; i < count; ++i) {
                std::int64_t rest = i, at = to.start, where = from.start;
                for (std::size_t d = shape.size(); d-- > 0;) {
                    at += rest % shape[d] * to.strides[d];
                    where += rest % shape[d] * from.strides[d];
                    rest /= shape[d];
                }
                std::memcpy(&wanted[static_cast<std::size_t>(at) * unit],
                            &source[static_cast<std::size_t>(where) * unit], unit);
            }
            copy(TensorView(target.data() + static_cast<std::size_t>(to.start) * unit, shape, dtype, to.strides),
                 ConstTensorView(source.data() + static_cast<std::size_t>(from.start) * unit, shape, dtype,
                                 from.strides));
            ASSERT_EQ(target, wanted) << Extents(shape).to_string() << " from " << Extents(from.strides).to_string()
                                      << " to " << Extents(to.strides).to_string();
        }
    }
}

TEST(Copy, crosses_different_shapes_in_row_major_order) {
    std::vector<float> data(24), target(48, -1), flat(12);
    std::iota(data.begin(), data.end(), 0.0F);
    const ConstTensorView columns(data.data(), {4, 3}, float32, {1, 8});  // neither is contiguous
    copy(TensorView(target.data(), {2, 6}, float32, {12, 2}), columns);
    copy(flat, columns);
    for (int i = 0; i < 12; ++i) {
        const auto index = static_cast<std::size_t>(i);
        EXPECT_EQ(flat[index], static_cast<float>(i / 3 + i % 3 * 8));
        EXPECT_EQ(target[static_cast<std::size_t>(i / 6 * 12 + i % 6 * 2)], flat[index]);
    }
    EXPECT_EQ(std::ranges::count(target, -1.0F), 36);
    copy(std::span(data).subspan(1, 23), std::span(data).first(23));  // contiguous views may overlap
    EXPECT_EQ(data[23], 22);
}

TEST(Tensor, owns_shares_and_clones) {
    Tensor a = tensor<float>({1, 2, 3});
    Tensor same = a;
    Tensor other = a.clone();
    a.data<float>()[0] = 9;
    EXPECT_EQ(same.data<float>()[0], 9);
    EXPECT_EQ(other.data<float>()[0], 1);
    EXPECT_THROW(a.data<double>(), InvalidArgument);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.raw_data()) % 64, 0U);
    EXPECT_EQ(Extents({1, 2, 3, 4, 5, 6}).to_string(), "[1, 2, 3, 4, 5, 6]");
}

// So that all of a tensor's pages can become huge ones: nothing else lies in the last, and it is all there.
TEST(Tensor, of_many_bytes_has_huge_pages_to_itself) {
    constexpr std::size_t page = std::size_t{2} << 20;
    for (const std::size_t bytes : {page / 16, page / 2, page, page + 1, 5 * page / 2}) {
        const Tensor first = empty(uint8, Extents::of(static_cast<std::int64_t>(bytes)));
        const Tensor second = empty(uint8, Extents::of(static_cast<std::int64_t>(bytes)));
        const auto at = reinterpret_cast<std::uintptr_t>(first.raw_data());
        const auto other = reinterpret_cast<std::uintptr_t>(second.raw_data());
        EXPECT_EQ(at % page, 0U) << bytes;
        const std::size_t whole = (bytes + page - 1) / page * page;
        EXPECT_TRUE(other >= at + whole || at >= other + whole) << bytes;
        std::vector<unsigned char> resident(whole / 4096);
        EXPECT_EQ(::mincore(const_cast<void*>(first.raw_data()), whole, resident.data()), 0) << "mapped to its end";
    }
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(empty(uint8, {1}).raw_data()) % 64, 0U);
}

// By the kernel's list of this process's mappings: the flag that madvise sets.
bool asks_for_huge_pages(const void* at) {
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t low = 0, high = 0;
        char dash = 0;
        if (std::istringstream(line) >> std::hex >> low >> dash >> high && dash == '-')
            inside = low <= reinterpret_cast<std::uintptr_t>(at) && reinterpret_cast<std::uintptr_t>(at) < high;
        if (inside && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
    }
    return false;
}

TEST(Tensor, of_a_megabyte_asks_for_huge_pages_for_its_own_memory_alone) {
    const std::int64_t mib = 1 << 20;
    std::vector<char> callers(8 * mib);
    const Tensor big = empty(uint8, {mib}), small = empty(uint8, {mib - 1});
    if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "this kernel has none";
    EXPECT_TRUE(asks_for_huge_pages(big.raw_data()));
    EXPECT_FALSE(asks_for_huge_pages(small.raw_data()));
    EXPECT_FALSE(asks_for_huge_pages(callers.data() + 4 * mib));
    ::setenv("TUTTI_HUGE_PAGES", "0", 1);
    const Tensor without = empty(uint8, {64 * mib});  // no allocator has memory ready for that
    ::unsetenv("TUTTI_HUGE_PAGES");
    EXPECT_FALSE(asks_for_huge_pages(without.raw_data()));
}

TEST(Tensor, crosses_dlpack_in_both_directions) {
    for (int i = 0; i < dtype_count; ++i) {
        const auto dtype = static_cast<DType>(i);
        Tensor original = zeros(dtype, {2, 3});
        DLManagedTensor* exported = original.to_dlpack();
        const Tensor back = Tensor::from_dlpack(exported);
        EXPECT_EQ(back.raw_data(), original.raw_data());
        EXPECT_EQ(back.dtype(), dtype);
        EXPECT_EQ(back.shape(), Extents({2, 3}));
    }
}

TEST(Tensor, crosses_dlpack_with_its_device) {
    using Type = Device::Type;
    float values[2] = {1, 2};
    for (const Type type : {Type::cuda, Type::rocm, Type::npu, Type::xpu}) {
        const Device device{type, 3};
        const Tensor tensor(TensorView(values, {2}, float32, {}, device), nullptr);
        DLManagedTensor* exported = tensor.to_dlpack();
        EXPECT_EQ(static_cast<int>(exported->dl_tensor.device.device_type), static_cast<int>(type));
        EXPECT_EQ(exported->dl_tensor.device.device_id, 3);
        EXPECT_EQ(Tensor::from_dlpack(exported).device(), device);
    }
    struct {
        int dlpack;
        Device device;
    } const others[] = {{3, {}}, {11, {}}, {13, {Type::cuda, 1}}, {1, {}}};
    for (const auto& [number, device] : others) {
        DLManagedTensor* exported = zeros(float32, {2}).to_dlpack();
        exported->dl_tensor.device = {static_cast<DLDeviceType>(number), 1};
        EXPECT_EQ(Tensor::from_dlpack(exported).device(), device) << number;
    }
    DLManagedTensor* exported = zeros(float32, {2}).to_dlpack();
    exported->dl_tensor.device.device_type = kDLVulkan;
    EXPECT_THROW(Tensor::from_dlpack(exported), InvalidArgument);
    exported->deleter(exported);
}

TEST(Tensor, refuses_a_dlpack_tensor_that_contradicts_itself) {
    DLManagedTensor* exported = zeros(float32, {2}).to_dlpack();
    exported->dl_tensor.ndim = -1;
    EXPECT_THROW(Tensor::from_dlpack(exported), InvalidArgument);
    exported->dl_tensor.ndim = 1;
    exported->dl_tensor.data = nullptr;  // with elements
    exported->dl_tensor.byte_offset = 64;
    EXPECT_THROW(Tensor::from_dlpack(exported), InvalidArgument);
    exported->deleter(exported);
}

TEST(Device, has_a_name_that_can_be_read_back) {
    using Type = Device::Type;
    for (const Device device :
         {Device{}, Device{Type::cuda, 0}, Device{Type::rocm, 7}, Device{Type::npu, 12}, Device{Type::xpu, 1}})
        EXPECT_EQ(device_from_string(to_string(device)), device);
    EXPECT_EQ(to_string(Device{Type::rocm, 7}), "rocm:7");
    EXPECT_EQ(device_from_string("cuda"), (Device{Type::cuda, 0}));
    EXPECT_EQ(name_of(Type::npu), "npu");
    for (const char* bad : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "CUDA:0", "cuda :0"})
        EXPECT_THROW(device_from_string(bad), InvalidArgument) << bad;
}

TEST(PiecewiseWriter, writes_as_copy_does_wherever_the_bytes_are_cut) {
    std::mt19937 random(4711);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    for (int turn = 0; turn < 300; ++turn) {
        std::vector<std::int64_t> shape, strides(static_cast<std::size_t>(draw(0, 4)));
        std::vector<std::size_t> order(strides.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        for (std::size_t i = 0; i < order.size(); ++i) shape.push_back(draw(1, 5));
        std::ranges::shuffle(order, random);
        std::int64_t stride = draw(1, 2);
        for (const std::size_t i : order) {
            strides[i] = stride;
            stride *= shape[i] + draw(0, 1);
        }
        const DType dtypes[] = {uint8, int16, float32, float64, complex128};
        const DType dtype = dtypes[draw(0, 4)];
        std::vector<std::byte> expected(static_cast<std::size_t>(stride) * size_of(dtype)), written = expected;
        const TensorView to(expected.data(), Extents(shape), dtype, Extents(strides));
        const Tensor from = empty(dtype, Extents(shape));
        for (std::size_t i = 0; i < from.byte_count(); ++i)
            static_cast<std::uint8_t*>(from.raw_data())[i] = static_cast<std::uint8_t>(i * 7 + 1);
        copy(to, from);
        PiecewiseWriter write(TensorView(written.data(), Extents(shape), dtype, Extents(strides)));
        for (int again = 0; again < 2; ++again) {
            for (std::size_t at = 0; at < from.byte_count();) {
                const std::size_t left = (from.byte_count() - at) / size_of(dtype);
                const std::size_t bytes = std::min(left, static_cast<std::size_t>(draw(1, 9))) * size_of(dtype);
                write(at, std::span(static_cast<const std::byte*>(from.raw_data()) + at, bytes));
                at += bytes;
            }
            ASSERT_EQ(written, expected) << "turn " << turn << ", view " << to.to_string();
        }
    }
}

TEST(Copy, refuses_memory_of_a_device) {
    float values[2] = {1, 2};
    const TensorView host(values, {2}, float32), card(values, {2}, float32, {}, {Device::Type::cuda, 0});
    EXPECT_THROW(copy(host, card), InvalidArgument);
    EXPECT_THROW(copy(card, host), InvalidArgument);
    EXPECT_THROW(Tensor(card, nullptr).clone(), InvalidArgument);
}

}  // namespace
}  // namespace tutti
