#include "operation/fingerprint.hpp"

#include "core/assert.hpp"
#include "core/hash.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::group {
namespace {
constexpr std::uint64_t hashed = std::uint64_t{1} << 35;

// The terms of a quantised collective stand where others have their root.
constexpr int format_bits = 2, scales_bits = 2, output_bits = 2;
constexpr DType outputs[] = {DType::float32, DType::float16, DType::bfloat16};

// Operators of the caller, in the bits of the reduce op.
constexpr auto commutes = ReduceOp::Kind::user;
constexpr auto keeps_order = static_cast<ReduceOp::Kind>(static_cast<int>(commutes) + 1);
constexpr int count_bits_of_user = 19;

ReduceOp::Kind kind_of(const tutti::detail::UserOperator& op) {
    return op.commutative() ? commutes : keeps_order;
}

// `count`: the fingerprint's bits of it.
std::string describe_by_user(ReduceOp::Kind op, std::uint64_t count) {
    TUTTI_ASSERT(op == commutes || op == keeps_order);
    const std::string order = op == commutes ? "" : ", in rank order";
    if (count >= hashed) {
        return fmt::format(", an operator of the caller{} (digest of sizes, element size and name: {:x})", order,
                           count & 0xffff);
    }
    const auto digest = static_cast<std::uint16_t>(count >> count_bits_of_user);
    return fmt::format(" × {}, {} ({:04x}){}", count & ((1U << count_bits_of_user) - 1),
                       tutti::detail::describe_operator(digest), digest, order);
}

bool is_quantized(int operation) {
    return operation >= quantized_all_reduce && operation <= quantized_all_gather;
}

std::string describe_block_length(std::uint64_t block) {
    if (block == QuantizedTerms::row) return "a scale for each row";
    if (block == QuantizedTerms::tensor) return "a scale for the tensor";
    return fmt::format("blocks of {}", block);
}

std::string describe_quantized(int operation, DType input, ReduceOp::Kind op, unsigned terms, std::uint64_t count) {
    TUTTI_ASSERT(is_quantized(operation));
    static constexpr const char* names[] = {
#define TUTTI_QUANTIZED_FUNCTION(name, ...) #name,
#include <tutti/collectives.def>
    };
    static constexpr const char* formats[] = {"int8", "int4", "float8_e4m3fn", "float8_e5m2"};
    static constexpr const char* scales[] = {"scales per rank", "shared scales", "a given scale"};
    const auto take = [&terms](int bits) {
        const unsigned value = terms & ((1U << bits) - 1);
        terms >>= bits;
        return value;
    };
    const unsigned format = take(format_bits), scale = take(scales_bits), output = take(output_bits), codes = take(1);
    TUTTI_ASSERT(format < std::size(formats));
    std::string text = fmt::format("{} of {}", names[operation - quantized_all_reduce], to_string(input));
    text += count >= hashed ? fmt::format(", count, rows and scale (digest of them all: {:x})", count & 0xffff)
                            : fmt::format(" × {}", count);
    if (operation != quantized_all_gather) text += fmt::format(", {}", to_string(op));
    text += fmt::format(", as {} in {}, {}", formats[format], describe_block_length(std::uint64_t{terms} * 32),
                        scales[std::min(scale, 2U)]);
    if (operation == quantized_all_reduce) text += codes != 0 ? ", results quantised" : ", results not quantised";
    return text + fmt::format(", into {}", to_string(outputs[std::min(output, 2U)]));
}

Collective collective_of(std::uint64_t fingerprint) {
    const auto operation = fingerprint >> 59;
    return static_cast<Collective>(operation == graph_start ? ((fingerprint >> 36) & 16383) - 1 : operation);
}

// The terms of a message between neighbours stand where other calls have their root, and their reduce op.
constexpr int function_bits = 2, dim_bits = 3, width_bits = 4, earlier_bits = 4;

std::string describe_neighbors(unsigned terms, unsigned earlier, std::string_view dtype, std::uint64_t count) {
    const auto take = [&terms](int bits) {
        const unsigned value = terms & ((1U << bits) - 1);
        terms >>= bits;
        return value;
    };
    const auto at_most = [](unsigned value, int bits) {
        return fmt::format("{}{}", value, value + 1 == 1U << bits ? " or more" : "");
    };
    const auto function = static_cast<NeighborTerms::Function>(take(function_bits));
    const std::string elements = count >= hashed ? std::string(dtype) : fmt::format("{} × {}", dtype, count);
    if (function != NeighborTerms::Function::exchange_halos) {
        return fmt::format(
            "{}, a message of {}",
            function == NeighborTerms::Function::all_to_all ? "neighbor_all_to_all" : "neighbor_all_gather", elements);
    }
    const bool periodic = take(1) != 0;
    const unsigned dim = take(dim_bits), low = take(width_bits), high = take(width_bits);
    std::string order;
    for (unsigned d = 0; d < earlier_bits; ++d) {
        if ((earlier >> d & 1) != 0) order += fmt::format("{}{}", order.empty() ? ", after dimension " : " and ", d);
    }
    return fmt::format("exchange_halos along dimension {} of the tensor{}, widths {} and {}, {}, a face of {}",
                       at_most(dim, dim_bits), order, at_most(low, width_bits), at_most(high, width_bits),
                       periodic ? "periodic" : "not periodic", elements);
}

// The call of an object collective, or nullptr.
const char* object_call(int operation) {
    switch (operation) {
        case broadcast_objects: return "broadcast_object_list";
        case all_gather_objects: return "all_gather_object";
        case gather_objects: return "gather_object";
        case scatter_objects: return "scatter_object_list";
        case object_message: return "a message";
        default: return nullptr;
    }
}
}  // namespace

std::uint64_t Fingerprint::pack(int operation, DType dtype, ReduceOp::Kind op, int root, std::uint64_t count) {
    TUTTI_ASSERT(operation >= 0 && operation < 32 && root >= -1);
    TUTTI_ASSERT(static_cast<std::uint64_t>(dtype) < 32 && static_cast<std::uint64_t>(op) < 16);
    if (count >= hashed) count = hashed | ((count * 0x9e3779b97f4a7c15ULL) >> 29);
    TUTTI_ASSERT(count < 2 * hashed);
    const auto root_bits = static_cast<std::uint64_t>(std::min(root, 16382) + 1);
    return static_cast<std::uint64_t>(operation) << 59 | static_cast<std::uint64_t>(dtype) << 54 |
           static_cast<std::uint64_t>(op) << 50 | root_bits << 36 | count;
}

std::uint64_t Fingerprint::pack(int operation, DType dtype, ReduceOp::Kind op, int root,
                                std::span<const std::uint64_t> counts) {
    if (std::ranges::adjacent_find(counts, std::ranges::not_equal_to{}) == counts.end()) {
        return pack(operation, dtype, op, root, counts.empty() ? 0 : counts[0]);
    }
    std::uint64_t hash = fnv1a_basis;
    for (const std::uint64_t count : counts) hash = fnv1a_word(hash, count);
    return pack(operation, dtype, op, root, hash | hashed);
}

std::uint64_t Fingerprint::pack(int operation, DType dtype, const tutti::detail::UserOperator& op, int root,
                                std::uint64_t count) {
    const std::uint64_t digest = op.digest();
    const bool fits = count < std::uint64_t{1} << count_bits_of_user;
    return pack(
        operation, dtype, kind_of(op), root,
        fits ? digest << count_bits_of_user | count : fnv1a_word(fnv1a_word(fnv1a_basis, digest), count) | hashed);
}

std::uint64_t Fingerprint::pack(int operation, DType dtype, const tutti::detail::UserOperator& op, int root,
                                std::span<const std::uint64_t> counts) {
    std::uint64_t hash = fnv1a_word(fnv1a_basis, op.digest());
    for (const std::uint64_t count : counts) hash = fnv1a_word(hash, count);
    return pack(operation, dtype, kind_of(op), root, hash | hashed);
}

std::uint64_t Fingerprint::pack(const QuantizedTerms& terms, std::span<const std::uint64_t> counts) {
    const auto output = std::ranges::find(outputs, terms.output) - std::begin(outputs);
    TUTTI_ASSERT(is_quantized(terms.operation) && output < std::ssize(outputs));
    TUTTI_ASSERT(terms.block % 32 == 0 && terms.block > 0 && terms.block <= QuantizedTerms::tensor);
    unsigned bits = static_cast<unsigned>(terms.block / 32);
    bits = bits << 1 | (terms.gathers_codes ? 1U : 0U);
    bits = bits << output_bits | static_cast<unsigned>(output);
    bits = bits << scales_bits | static_cast<unsigned>(terms.scales);
    bits = bits << format_bits | static_cast<unsigned>(terms.format);
    return pack(terms.operation, terms.input, terms.averages ? ReduceOp::Kind::avg : ReduceOp::Kind::sum,
                static_cast<int>(bits), counts);
}

std::uint64_t Fingerprint::pack(const NeighborTerms& terms, DType dtype, std::uint64_t count) {
    const auto least = [](std::uint64_t value, int bits) {
        return static_cast<unsigned>(std::min(value, (std::uint64_t{1} << bits) - 1));
    };
    unsigned bits = least(terms.high, width_bits);
    bits = bits << width_bits | least(terms.low, width_bits);
    bits = bits << dim_bits | least(terms.dim, dim_bits);
    bits = bits << 1 | (terms.periodic ? 1U : 0U);
    bits = bits << function_bits | static_cast<unsigned>(terms.function);
    TUTTI_ASSERT(bits > 0 && bits < 16384);
    const auto earlier = static_cast<ReduceOp::Kind>(terms.earlier & ((1U << earlier_bits) - 1));
    return pack(point_to_point, dtype, earlier, static_cast<int>(bits) - 1, count);
}

std::uint64_t Fingerprint::pack_graph(std::uint64_t first, std::uint64_t hash) {
    TUTTI_ASSERT(first >> 59 != 0);
    const auto op = static_cast<ReduceOp::Kind>((first >> 50) & 15);
    return pack(graph_start, dtype(first), op, static_cast<int>(first >> 59), hash | hashed);
}

std::string Fingerprint::describe(std::uint64_t f) {
    if (f == any_message) return "any message";
    const int operation = static_cast<int>(f >> 59);
    if (operation == graph_start) {
        return fmt::format("a graph that begins with {} of {} (digest of its collectives: {:x})",
                           to_string(collective_of(f)), to_string(dtype(f)), f & 0xffffffff);
    }
    const auto dtype = to_string(Fingerprint::dtype(f));
    const int root = static_cast<int>((f >> 36) & 16383) - 1;
    const std::uint64_t count = f & (2 * hashed - 1);
    if (operation == group_creation && root == static_cast<int>(Making::split)) return "ProcessGroup.split";
    if (operation == group_creation && root == static_cast<int>(Making::mesh)) return "a device mesh";
    if (operation == group_creation) return count == 1 ? "new_group" : fmt::format("new_group of {} groups", count);
    if (is_quantized(operation)) {
        return describe_quantized(operation, Fingerprint::dtype(f), static_cast<ReduceOp::Kind>((f >> 50) & 15),
                                  static_cast<unsigned>(root), count);
    }
    if (operation == point_to_point && root >= 0)
        return describe_neighbors(static_cast<unsigned>(root) + 1, static_cast<unsigned>((f >> 50) & 15), dtype, count);
    if (const char* call = object_call(operation)) {
        return fmt::format("{} of {} object{}{}", call, count, count == 1 ? "" : "s",
                           root >= 0 ? fmt::format(", root {}", root) : "");
    }
    std::string text = operation == point_to_point     ? "a message"
                       : operation == symmetric_memory ? "empty_symmetric"
                                                       : std::string(to_string(static_cast<Collective>(operation)));
    if (operation == static_cast<int>(Collective::barrier)) return text;
    const bool is_collective = operation >= 1 && operation <= collective_count;
    const CollectiveTraits traits = is_collective ? traits_of(static_cast<Collective>(operation)) : CollectiveTraits{};
    text += fmt::format(" of {}", dtype);
    const auto op = static_cast<ReduceOp::Kind>((f >> 50) & 15);
    const bool by_user = traits.combines && op >= commutes;
    const bool whole = traits.input == CollectiveTraits::Extent::whole;
    if (by_user)
        text += describe_by_user(op, count);
    else if (count >= hashed && whole)
        text += fmt::format(", several at once (digest of them all: {:x})", count & 0xffff);
    else if (count >= hashed)
        text += fmt::format(", sizes by rank (digest of them all: {:x})", count & 0xffff);
    else if (traits.input != CollectiveTraits::Extent::exchanged)
        text += fmt::format(" × {}", count);
    if (traits.combines && !by_user) text += fmt::format(", {}", to_string(op));
    if (root >= 0 && operation != point_to_point) text += fmt::format(", root {}", root);
    return text;
}

std::string Fingerprint::describe_block(std::uint64_t f, int from, std::uint64_t sent_bytes, int to,
                                        std::uint64_t expected_bytes) {
    const std::size_t element = size_of(dtype(f));
    return fmt::format("{}: rank {} sends {} × {} to rank {}, which expects {}", to_string(collective_of(f)), from,
                       to_string(dtype(f)), sent_bytes / element, to, expected_bytes / element);
}

}  // namespace tutti::group
