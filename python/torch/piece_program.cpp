#include "piece_program.hpp"

#include <tutti/error.hpp>

#include <array>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace tutti::torch {
namespace {

[[noreturn]] void refuse(const std::string& step, const std::string& what) {
    throw InvalidArgument("tutti_graph::replay_: step \"" + step + "\" of the program " + what);
}

std::optional<ReduceOp> op_of(std::string_view word) {
    static constexpr std::array<std::pair<std::string_view, ReduceOp::Kind>, 8> kinds{
        {{"sum", ReduceOp::Kind::sum},
         {"avg", ReduceOp::Kind::avg},
         {"product", ReduceOp::Kind::product},
         {"min", ReduceOp::Kind::min},
         {"max", ReduceOp::Kind::max},
         {"band", ReduceOp::Kind::band},
         {"bor", ReduceOp::Kind::bor},
         {"bxor", ReduceOp::Kind::bxor}}};
    for (const auto& [name, kind] : kinds) {
        if (name == word) return ReduceOp(kind);
    }
    return std::nullopt;
}

template <class Number>
std::optional<Number> number_in(std::string_view digits) {
    Number number{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return number;
}

std::optional<PieceTensor> tensor_in(std::string_view word) {
    static constexpr std::string_view letters = "wrt";
    const std::size_t of = word.empty() ? std::string_view::npos : letters.find(word.front());
    if (of == std::string_view::npos) return std::nullopt;
    const auto number = number_in<std::size_t>(word.substr(1));
    if (!number) return std::nullopt;
    return PieceTensor{static_cast<PieceTensor::Of>(of), *number};
}

// "#i3", "#f0x1.8p+1"
c10::Scalar scalar_in(const std::string& step, const std::string& word) {
    if (word.size() > 2 && word[1] == 'i') {
        if (const auto number = number_in<std::int64_t>(std::string_view(word).substr(2))) return {*number};
    } else if (word.size() > 2 && word[1] == 'f') {
        char* end = nullptr;
        const double number = std::strtod(word.c_str() + 2, &end);
        if (*end == '\0') return {number};
    }
    refuse(step, "has the number " + word + "; expected #i and a whole number, or #f and a real one");
}

std::uint64_t option_in(const std::string& step, const std::vector<std::string>& words) {
    std::uint64_t number = 0;
    const std::string& digits = words.back();
    if (words.size() != 2 || std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
        refuse(step, "sets no number; expected one after its name");
    return number;
}

PieceStep step_in(const std::string& text, const std::vector<std::string>& words) {
    PieceStep step{.name = words.front()};
    bool has_result = false;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (const auto tensor = tensor_in(word)) {
            if (std::exchange(has_result, true))
                step.from.push_back(*tensor);
            else
                step.to = *tensor;
        } else if (const auto op = op_of(word)) {
            step.op = *op;
        } else if (const auto root = number_in<int>(word)) {
            step.root = *root;
        } else if (word.front() == '#') {
            step.scalar = scalar_in(text, word);
        } else {
            refuse(text, "has the word " + word + "; expected a tensor, an operator, a root or a number");
        }
    }
    if (!has_result) refuse(text, "writes no tensor; expected one after its name");
    return step;
}

}  // namespace

PieceProgram read_program(std::string_view text) {
    PieceProgram program;
    std::istringstream all{std::string(text)};
    for (std::string step; std::getline(all, step, ';');) {
        std::istringstream in(step);
        std::vector<std::string> words;
        for (std::string word; in >> word;) words.push_back(word);
        if (words.empty()) continue;
        if (words.front() == "piece") continue;  // tells equal pieces apart
        if (words.front() == "bucket")
            program.bucket_bytes = option_in(step, words);
        else if (words.front() == "algebra")
            program.algebra = option_in(step, words) != 0;
        else
            program.steps.push_back(step_in(step, words));
    }
    return program;
}

}  // namespace tutti::torch
