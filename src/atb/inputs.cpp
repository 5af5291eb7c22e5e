#include "atb/inputs.hpp"

#include "api/blocks.hpp"
#include "atb/json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::atb {
namespace {

using Numbers = std::vector<std::int64_t>;

constexpr api::DisplacedNames argument_names{
    .operation = "AllToAllVV2", .send = {"sendCounts", "sdispls", "x"}, .receive = {"recvCounts", "rdispls", "output"}};
constexpr std::size_t tensors_max = 6;  // x among them
constexpr std::array known_inputs{"rdispls", "recvCounts", "sdispls", "sendCounts", "sendCount"};

template <class... Args>
[[noreturn]] void refuse_input(ErrorType code, fmt::format_string<Args...> format, Args&&... args) {
    throw Error(code, "AllToAllVV2: " + fmt::format(format, std::forward<Args>(args)...));
}

const Numbers& send_counts_of(const AllToAllVV2Inputs& inputs) {
    if (inputs.sendCount.empty()) return inputs.sendCounts;
    if (!inputs.sendCounts.empty() && inputs.sendCounts != inputs.sendCount) {
        refuse_input(ERROR_INVALID_PARAM, "sendCounts is [{}] and sendCount is [{}]: expected one of them",
                     fmt::join(inputs.sendCounts, ", "), fmt::join(inputs.sendCount, ", "));
    }
    return inputs.sendCount;
}

void check_length(const char* name, const Numbers& numbers, int ranks) {
    if (numbers.empty() || numbers.size() == static_cast<std::size_t>(ranks)) return;
    refuse_input(ERROR_INVALID_TENSOR_DIM, "{} has {} entries: expected {}, one for each rank", name, numbers.size(),
                 ranks);
}

void check_not_negative(const char* name, const Numbers& numbers) {
    const auto negative = std::ranges::find_if(numbers, [](std::int64_t number) { return number < 0; });
    if (negative != numbers.end())
        refuse_input(ERROR_INVALID_PARAM, "{}[{}] is {}: expected zero or more", name, negative - numbers.begin(),
                     *negative);
}

struct Needed {
    std::int64_t sum = 0;  ///< of recvCounts
    std::int64_t end = 0;  ///< of the last block
};

std::int64_t added(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum))
        refuse_input(ERROR_INVALID_PARAM, "recvCounts and rdispls lead to {} + {}: no tensor is so long", a, b);
    return sum;
}

Needed needed_by(const AllToAllVOptions& blocks) {
    Needed needed;
    for (std::size_t i = 0; i < blocks.receive_counts.size(); ++i) {
        const std::int64_t count = blocks.receive_counts[i];
        const std::int64_t begin = blocks.receive_offsets.empty() ? needed.sum : blocks.receive_offsets[i];
        needed.sum = added(needed.sum, count);
        if (count > 0) needed.end = std::max(needed.end, added(begin, count));
    }
    return needed;
}

// How many elements the output needs. `otherwise`: the number where nothing tells.
std::int64_t length_of(const AllToAllVOptions& blocks, std::int64_t infer_shape, std::int64_t otherwise) {
    if (blocks.receive_counts.empty()) return infer_shape >= 0 ? infer_shape : otherwise;
    const Needed needed = needed_by(blocks);
    if (infer_shape < 0) return std::max(needed.sum, needed.end);
    // Where the blocks leave gaps it may be longer than their sum, by as much as the caller likes.
    const bool fits = needed.end > needed.sum ? infer_shape >= needed.end : infer_shape == needed.sum;
    if (!fits) {
        refuse_input(ERROR_INVALID_TENSOR_DIM, "tensorForInferShape has {} elements: expected {}", infer_shape,
                     needed.end > needed.sum ? fmt::format("{} or more, where the last block ends", needed.end)
                                             : fmt::format("{}, the sum of recvCounts", needed.sum));
    }
    return infer_shape;
}

template <class T>
Numbers numbers_in(const ConstTensorView& view) {
    const auto n = static_cast<std::size_t>(view.element_count());
    std::vector<T> values(n);
    copy(values, view);
    return {values.begin(), values.end()};
}

Numbers numbers_of(const char* name, const ConstTensorView& view) {
    if (view.element_count() == 0) return {};
    if (view.device().type != Device::Type::cpu)
        refuse_input(ERROR_INVALID_PARAM, "{} is on {}: expected it in host memory", name, to_string(view.device()));
    if (view.shape().size() != 1)
        refuse_input(ERROR_INVALID_TENSOR_DIM, "{} is {}: expected one dimension", name, view.to_string());
    switch (view.dtype()) {
        case DType::int64: return numbers_in<std::int64_t>(view);
        case DType::int32: return numbers_in<std::int32_t>(view);
        default: refuse_input(ERROR_INVALID_TENSOR_DTYPE, "{} is {}: expected int64", name, view.to_string());
    }
}

Numbers numbers_of(const Json& json) {
    Numbers numbers;
    for (const Json& value : json.list()) numbers.push_back(value.integer(INT64_MIN, INT64_MAX));
    return numbers;
}

/// Numbers that the caller has left out.
void complete(Numbers& counts, Numbers& offsets, const api::Blocks& blocks) {
    const std::vector<std::uint64_t> places = api::offsets_of(blocks);
    if (counts.empty()) counts.assign(blocks.counts.begin(), blocks.counts.end());
    offsets.assign(places.begin(), places.end());
}

}  // namespace

Exchange exchange_of(int rank, int ranks, std::int64_t input_elements, const AllToAllVV2Inputs& inputs,
                     std::int64_t output_elements) {
    Exchange exchange{.blocks = {.send_counts = send_counts_of(inputs),
                                 .send_offsets = inputs.sdispls,
                                 .receive_counts = inputs.recvCounts,
                                 .receive_offsets = inputs.rdispls}};
    AllToAllVOptions& blocks = exchange.blocks;
    check_length(argument_names.send.counts, blocks.send_counts, ranks);
    check_length(argument_names.send.offsets, blocks.send_offsets, ranks);
    check_length(argument_names.receive.counts, blocks.receive_counts, ranks);
    check_length(argument_names.receive.offsets, blocks.receive_offsets, ranks);
    check_not_negative(argument_names.receive.counts, blocks.receive_counts);
    check_not_negative(argument_names.receive.offsets, blocks.receive_offsets);
    exchange.output_elements =
        length_of(blocks, inputs.inferShape, output_elements >= 0 ? output_elements : input_elements);
    if (output_elements >= 0 && output_elements < exchange.output_elements) {
        refuse_input(ERROR_INVALID_TENSOR_DIM, "output has {} elements: expected {} or more", output_elements,
                     exchange.output_elements);
    }
    try {
        api::RankNumbers sent, received;
        const api::DisplacedBlocks checked =
            api::displaced_blocks(rank, ranks,
                                  {.input = static_cast<std::uint64_t>(input_elements),
                                   .output = static_cast<std::uint64_t>(exchange.output_elements)},
                                  blocks, {sent, received}, argument_names);
        // An output may be longer than the blocks need: nothing is left to be worked out from its length.
        complete(blocks.send_counts, blocks.send_offsets, checked.send);
        complete(blocks.receive_counts, blocks.receive_offsets, checked.receive);
    } catch (const InvalidArgument& error) {
        throw Error(ERROR_INVALID_PARAM, error.what());
    }
    return exchange;
}

AllToAllVV2Inputs inputs_from_json(const std::string& text) {
    const Json json("set_varaintpack_param", text);
    for (const std::string& key : json.keys()) {
        if (std::ranges::find(known_inputs, key) == known_inputs.end())
            json.fail(fmt::format("\"{}\" is no input: expected {}", key, fmt::join(known_inputs, ", ")));
    }
    AllToAllVV2Inputs inputs;
    const std::pair<const char*, Numbers*> members[]{{"sendCounts", &inputs.sendCounts},
                                                     {"sendCount", &inputs.sendCount},
                                                     {"sdispls", &inputs.sdispls},
                                                     {"recvCounts", &inputs.recvCounts},
                                                     {"rdispls", &inputs.rdispls}};
    for (const auto& [key, member] : members) {
        if (const auto value = json.find(key)) *member = numbers_of(*value);
    }
    return inputs;
}

AllToAllVV2Inputs inputs_from_tensors(const std::vector<ConstTensorView>& tensors) {
    if (tensors.empty() || tensors.size() > tensors_max) {
        refuse_input(
            ERROR_INVALID_IN_TENSOR_NUM,
            "{} inputs: expected x, sendCounts, sdispls, recvCounts, rdispls, tensorForInferShape; those behind x may "
            "be left out",
            tensors.size());
    }
    AllToAllVV2Inputs inputs;
    const std::pair<const char*, Numbers*> members[]{{argument_names.send.counts, &inputs.sendCounts},
                                                     {argument_names.send.offsets, &inputs.sdispls},
                                                     {argument_names.receive.counts, &inputs.recvCounts},
                                                     {argument_names.receive.offsets, &inputs.rdispls}};
    for (std::size_t i = 0; i < std::size(members) && i + 1 < tensors.size(); ++i)
        *members[i].second = numbers_of(members[i].first, tensors[i + 1]);
    if (tensors.size() == tensors_max && tensors.back().element_count() > 0)
        inputs.inferShape = tensors.back().element_count();
    return inputs;
}

AllToAllVV2Inputs merged(const AllToAllVV2Inputs& first, const AllToAllVV2Inputs& second) {
    const auto either = [](const Numbers& a, const Numbers& b) { return a.empty() ? b : a; };
    const bool sends = !first.sendCounts.empty() || !first.sendCount.empty();
    return {.sendCounts = sends ? first.sendCounts : second.sendCounts,
            .sdispls = either(first.sdispls, second.sdispls),
            .recvCounts = either(first.recvCounts, second.recvCounts),
            .rdispls = either(first.rdispls, second.rdispls),
            .inferShape = first.inferShape >= 0 ? first.inferShape : second.inferShape,
            .sendCount = sends ? first.sendCount : second.sendCount};
}

}  // namespace tutti::atb
