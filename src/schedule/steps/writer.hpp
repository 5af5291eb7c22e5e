// Writer: writes the steps of one rank as lines of text, each a call of the Builder, and counts the rounds.
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

    /// `edges`: the dependencies of sends that the Builder does not find by itself.
    Writer(const Schedule& schedule, const Edges& edges) : s_(schedule), edges_(edges) {}

    std::string run();

    // For the kinds of steps.
    void add(const std::string& line) { text_ += "  " + line + "\n"; }
    /// Writes lines that use up the rounds before `until` if no step has used them.
    void use_rounds(std::uint32_t until);
    /// The current step uses a round itself.
    void count_round() { ++rounds_; }
    std::span<const std::uint32_t> edges(std::size_t step) const;
    /// All operands, each preceded by a space.
    std::string operands(const At& at) const;

 private:
    const Schedule& s_;
    const Edges& edges_;
    std::string text_;
    std::uint32_t rounds_ = 0;
};

}  // namespace tutti::schedule
