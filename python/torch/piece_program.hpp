// The text of a piece (pieces.hpp), read.
#pragma once

#include <tutti/distributed.hpp>

#include <c10/core/Scalar.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::torch {

/// A tensor of a piece: the letter and number of its name.
struct PieceTensor {
    enum class Of : std::uint8_t { written, read, own };
    Of of = Of::own;
    std::size_t number = 0;
};

struct PieceStep {
    std::string name;  ///< a collective, "copy", or a local operation
    PieceTensor to;
    std::vector<PieceTensor> from;
    std::optional<c10::Scalar> scalar{};  ///< of a local operation, in place of its second tensor
    ReduceOp op = ReduceOp::sum;
    int root = -1;  ///< in the group
};

struct PieceProgram {
    std::optional<std::uint64_t> bucket_bytes{};
    bool algebra = true;
    std::vector<PieceStep> steps;
};

/// Throws InvalidArgument that names the step.
PieceProgram read_program(std::string_view text);

}  // namespace tutti::torch
