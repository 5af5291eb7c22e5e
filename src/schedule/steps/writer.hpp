// Writer: the steps of one rank as lines of text, which are calls of the Builder; it keeps count of the rounds.
#pragma once

#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::schedule {

struct At;

class Writer {
 public:
    using Edges = std::vector<std::vector<std::uint32_t>>;  // by step

    /// `edges`: those of sends that the Builder does not find.
    Writer(const Schedule& schedule, const Edges& edges) : s_(schedule), edges_(edges) {}

    std::string run();

    // For the kinds.
    void add(const std::string& line) { text_ += "  " + line + "\n"; }
    /// Lines that take the rounds up to this one, where no step does.
    void use_rounds(std::uint32_t until);
    /// The step takes a round itself.
    void count_round() { ++rounds_; }
    std::span<const std::uint32_t> edges(std::size_t step) const;
    /// All operands, a blank before each.
    std::string operands(const At& at) const;

 private:
    const Schedule& s_;
    const Edges& edges_;
    std::string text_;
    std::uint32_t rounds_ = 0;
};

}  // namespace tutti::schedule
