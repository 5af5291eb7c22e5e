#include "cli/simulate_step.hpp"

#include "algorithm/select.hpp"
#include "cli/simulate_report.hpp"
#include "command/requests.hpp"
#include "core/assert.hpp"
#include "core/text.hpp"
#include "core/whole_file.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>

namespace tutti::cli {
namespace {

using simulate::Hop;
using simulate::NamedCost;
using simulate::StepAnswer;
using simulate::WholeStep;

constexpr std::size_t step_bytes_max = std::size_t{256} << 20, pieces_max = 1 << 16;

// The way to the end, by a key of its parts, the longest first.
template <class Key>
auto way_by(const StepAnswer& answer, Key&& key) {
    std::map<decltype(key(answer.path.front())), double> sums;
    for (const Hop& hop : answer.path) sums[key(hop)] += hop.to_us - hop.from_us;
    std::vector<std::pair<decltype(key(answer.path.front())), double>> sorted(sums.begin(), sums.end());
    std::erase_if(sorted, [](const auto& entry) { return entry.second <= 0; });
    std::ranges::stable_sort(sorted, std::greater{}, [](const auto& entry) { return entry.second; });
    return sorted;
}

auto way_by_piece(const StepAnswer& answer, const WholeStep& step) {
    return way_by(answer, [&](const Hop& hop) { return step.pieces[hop.piece].name; });
}
auto way_by_rank(const StepAnswer& answer) {
    return way_by(answer, [](const Hop& hop) { return hop.rank; });
}

double share_of(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

}  // namespace

void StepWriter::refuse(const std::string& what, const std::string& expected) const {
    throw InvalidArgument(fmt::format("--step {}: {}{}expected {}", where_, what, what.empty() ? "" : ": ", expected));
}

std::size_t StepWriter::group(const std::string& name, int size, int stride) {
    const simulate::Spread spread{ranks_, size, stride};
    for (std::size_t i = 0; i < spreads_.size(); ++i) {
        if (spreads_[i] == spread && step_.groups[i] == name) return i;
    }
    spreads_.push_back(spread);
    step_.groups.push_back(name);
    return spreads_.size() - 1;
}

std::uint32_t StepWriter::add(WholeStep::Piece piece) {
    if (step_.pieces.size() == pieces_max) refuse(fmt::format("more than {} pieces", pieces_max), "fewer");
    TUTTI_ASSERT(std::ranges::all_of(piece.after, [&](auto before) { return before < step_.pieces.size(); }));
    step_.pieces.push_back(std::move(piece));
    return static_cast<std::uint32_t>(step_.pieces.size() - 1);
}

std::uint32_t StepWriter::add_compute(const std::string& name, double us, std::vector<std::uint32_t> after) {
    TUTTI_ASSERT(us >= 0);
    return add({.name = name, .compute_us = us, .after = std::move(after)});
}

std::uint32_t StepWriter::add_call(const std::string& name, const Collective& c, std::vector<std::uint32_t> after) {
    const auto [at, is_new] =
        calls_.try_emplace({c.call, c.bytes, c.dtype, c.root, c.group}, static_cast<int>(step_.calls.size()));
    if (is_new) {
        const simulate::Spread& spread = spreads_[c.group];
        algorithm::Request request = command::request_for(c.call, c.bytes, c.dtype, spread.size);
        request.root = c.root;
        request.algorithm = algorithm::parse_override(named_, request.collective);
        step_.calls.push_back({.request = std::move(request), .spread = spread, .group = c.group});
    }
    return add({.name = name, .call = at->second, .after = std::move(after)});
}

WholeStep StepWriter::take() {
    if (step_.pieces.empty()) refuse("", "at least one piece");
    return std::move(step_);
}

StepFile step_of(const std::string& place, const algorithm::Layout& layout) {
    StepWriter writer(place, layout.size(), layout.tuning.named);
    StepFile file;
    std::error_code error;
    if (std::filesystem::is_directory(place, error) || place.ends_with(".dump")) {
        file.words = read_recorded_step(place, writer);
    } else {
        std::string text;
        try {
            text = whole_file(place, step_bytes_max);
        } catch (const InvalidArgument& refused) {
            writer.refuse(refused.what(), "a JSON file, a folder of dumps, or a graph as Graph::to_text() writes it");
        }
        if (text.starts_with("tutti graph "))
            file.words = read_graph_step(text, writer);
        else
            read_json_step(text, writer);
    }
    file.step = writer.take();
    if (file.words.empty()) file.words = fmt::format("{} pieces", file.step.pieces.size());
    return file;
}

std::string details_of(const StepAnswer& answer, const WholeStep& step) {
    std::string text = fmt::format(
        "  a step takes {}; of a rank, on average: {} computing ({:.1f} %), {} of communication hidden beside it, {} "
        "exposed ({:.1f} %)\n",
        time_in_words(answer.step_us), time_in_words(answer.compute_us), share_of(answer.compute_us, answer.step_us),
        time_in_words(answer.hidden_us), time_in_words(answer.exposed_us), share_of(answer.exposed_us, answer.step_us));
    text += fmt::format("  {:<24} {:>6} {:>12} {:>12} {:>12}  {}\n", "of a rank", "times", "runs", "exposed",
                        "of it late", "how");
    std::map<std::string, std::string> how;
    for (const WholeStep::Piece& piece : step.pieces) {
        if (piece.call < 0) continue;
        const WholeStep::Call& call = step.calls[static_cast<std::size_t>(piece.call)];
        how.try_emplace(piece.name,
                        fmt::format("{} in {}: {}", to_string(call.request.collective), step.groups[call.group],
                                    answer.words[static_cast<std::size_t>(piece.call)]));
    }
    for (const NamedCost& cost : answer.costs) {
        const auto of_call = how.find(cost.name);
        text += fmt::format("  {:<24} {:>6} {:>12} {:>12} {:>12}  {}{}\n", visible_line(cost.name), cost.count,
                            time_in_words(cost.busy_us), cost.computes ? "" : time_in_words(cost.exposed_us),
                            cost.computes ? "" : time_in_words(cost.late_us),
                            of_call == how.end() ? "computes" : of_call->second,
                            cost.late_rank >= 0 ? fmt::format("; waits most for rank {}", cost.late_rank) : "");
    }
    if (!answer.at_once.empty()) text += fmt::format("  {}\n", answer.at_once);
    const auto [first, last] = std::ranges::minmax(answer.finish_us);
    text += fmt::format("  ranks are done: first {}, last {}, rank {}, which waited on:", time_in_words(first),
                        time_in_words(last), answer.last);
    for (const auto& [name, us] : way_by_piece(answer, step))
        text += fmt::format(" {} {};", visible_line(name), time_in_words(us));
    text.back() = '\n';
    constexpr std::size_t ranks_shown = 8;
    const auto ranks = way_by_rank(answer);
    text += "  on its way, by rank:";
    for (std::size_t i = 0; i < std::min(ranks.size(), ranks_shown); ++i)
        text += fmt::format(" {} {};", ranks[i].first, time_in_words(ranks[i].second));
    text.back() = '\n';
    if (const Hop& begin = answer.path.front(); begin.from_us > 0)
        text += fmt::format("  rank {}, where it begins, begins at {}\n", begin.rank, time_in_words(begin.from_us));
    return text;
}

std::string json_of(const StepAnswer& answer, const simulate::StepQuestion& question) {
    using Json = nlohmann::ordered_json;
    const WholeStep& step = question.step;
    Json json{{"ranks", answer.ranks},
              {"hosts", question.layout.host_of.back() + 1},
              {"network", question.network.name},
              {"played_ranks", answer.played},
              {"step_us", answer.step_us},
              {"compute_us", answer.compute_us},
              {"hidden_us", answer.hidden_us},
              {"exposed_us", answer.exposed_us},
              {"last_rank", answer.last},
              {"costs", Json::array()},
              {"way_us", Json::object()},
              {"way_by_rank", Json::array()},
              {"pieces", Json::array()}};
    for (const NamedCost& cost : answer.costs) {
        Json& one = json["costs"].emplace_back(
            Json{{"name", cost.name}, {"computes", cost.computes}, {"count", cost.count}, {"us", cost.busy_us}});
        if (!cost.computes) one.update({{"exposed_us", cost.exposed_us}, {"late_us", cost.late_us}});
        if (cost.late_rank >= 0) one["late_rank"] = cost.late_rank;
    }
    for (const auto& [name, us] : way_by_piece(answer, step)) json["way_us"][name] = us;
    for (const auto& [rank, us] : way_by_rank(answer)) json["way_by_rank"].push_back({{"rank", rank}, {"us", us}});
    for (std::size_t i = 0; i < step.pieces.size(); ++i) {
        const WholeStep::Piece& piece = step.pieces[i];
        const auto [first_begin, last_begin] = std::ranges::minmax(answer.pieces[i].begin_us);
        const auto [first_end, last_end] = std::ranges::minmax(answer.pieces[i].end_us);
        Json& one = json["pieces"].emplace_back(
            Json{{"name", piece.name}, {"begin_us", {first_begin, last_begin}}, {"end_us", {first_end, last_end}}});
        if (piece.call < 0) continue;
        const WholeStep::Call& call = step.calls[static_cast<std::size_t>(piece.call)];
        one["call"] = to_string(call.request.collective);
        one["group"] = step.groups[call.group];
        one["played"] = answer.words[static_cast<std::size_t>(piece.call)];
    }
    return json.dump(1) + '\n';
}

}  // namespace tutti::cli
