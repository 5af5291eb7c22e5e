// What `tutti simulate --step` plays: a step from a JSON file, from a recorded run, or from a captured graph; and the
// answer as text and as JSON. Everything throws InvalidArgument that names the file, the field, the value and what is
// expected.
#pragma once

#include "simulate/step.hpp"

#include <tutti/dtype.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace tutti::cli {

/// Collects the pieces of a step between `ranks` ranks.
class StepWriter {
 public:
    /// `where`: begins messages. `named`: as Tuning::named.
    StepWriter(std::string where, int ranks, std::string named)
        : where_(std::move(where)), named_(std::move(named)), ranks_(ranks) {}

    [[noreturn]] void refuse(const std::string& what, const std::string& expected) const;
    int ranks() const noexcept { return ranks_; }
    const std::string& where() const noexcept { return where_; }
    const simulate::WholeStep& step() const noexcept { return step_; }

    /// The number of a group of `size` ranks, each `stride` behind the last.
    std::size_t group(const std::string& name, int size, int stride);
    /// Both return the piece's number.
    std::uint32_t add_compute(const std::string& name, double us, std::vector<std::uint32_t> after);
    struct Collective {
        std::string call;
        std::uint64_t bytes = 0;  ///< of the whole buffer
        DType dtype = DType::float32;
        int root = 0;
        std::size_t group = 0;
    };
    std::uint32_t add_call(const std::string& name, const Collective& collective, std::vector<std::uint32_t> after);
    /// Throws where there is no piece.
    simulate::WholeStep take();

 private:
    std::uint32_t add(simulate::WholeStep::Piece piece);

    std::string where_, named_;
    int ranks_;
    simulate::WholeStep step_;
    std::vector<simulate::Spread> spreads_;  // by group
    std::map<std::tuple<std::string, std::uint64_t, DType, int, std::size_t>, int> calls_;
};

struct StepFile {
    simulate::WholeStep step;
    std::string words;  ///< what it was read from
};
/// `place`: a file or a folder. `layout`: of all ranks.
StepFile step_of(const std::string& place, const algorithm::Layout& layout);

/// A file of JSON. simulate_step_json.cpp
void read_json_step(const std::string& text, StepWriter& writer);
/// Dumps of a job's ranks: a folder, or one of them. Returns what was read, in words. simulate_step_recorded.cpp
std::string read_recorded_step(const std::string& place, StepWriter& writer);
/// Graphs in the form of Graph::to_text(). Returns what was read, in words. simulate_step_recorded.cpp
std::string read_graph_step(const std::string& text, StepWriter& writer);

std::string details_of(const simulate::StepAnswer& answer, const simulate::WholeStep& step);
std::string json_of(const simulate::StepAnswer& answer, const simulate::StepQuestion& question);

}  // namespace tutti::cli
