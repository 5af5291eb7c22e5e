#include "algorithm/picture.hpp"

#include "algorithm/explain.hpp"
#include "algorithm/walk.hpp"
#include "core/svg.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace tutti::algorithm {
namespace {

using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;

// Lengths in the picture's units, of about a pixel each.
constexpr double picture_margin = 16, first_row_y = 58, row_height = 30, bar_height = 18, rows_x = 76, rows_width = 880;
constexpr double legend_height = 18, number_width = 7, shortest_bar = 1.5;
constexpr int legend_columns = 4;

// Mid tones, which stand out from white and from black; the words and lines around them follow the page.
constexpr const char* picture_style = R"(<style>
text { font: 12px system-ui, Helvetica, Arial, sans-serif; fill: #4a4a4b }
.title { font-size: 13px; font-weight: 600 } .soft { font-size: 11px } .in { font-size: 10px; fill: #fff }
.lane { stroke: #b9b9ba } .message { stroke: #8a8a8b; stroke-width: 1; opacity: .8 }
@media (prefers-color-scheme: dark) {
  text { fill: #d6d6d7 } .in { fill: #fff } .lane { stroke: #55565a }
}
</style>
)";

struct Place {
    Rank rank;
    std::size_t step;
};
/// Bytes go from one rank to another; or, where `from` is `to`'s own step, from the memory of `peer`, or to it.
struct Message {
    Place from, to;
    Rank peer = -1;
};

// In the order of the ranks and steps that take them.
std::vector<Message> messages_of(const std::vector<Schedule>& schedules) {
    std::map<std::pair<Rank, Rank>, std::vector<Place>> sends;  // by sender and receiver
    std::map<std::pair<Rank, std::uint32_t>, Place> published;  // by rank and round, signals too
    for (Rank rank = 0; const Schedule& s : schedules) {
        for (std::size_t i = 0; i < s.steps.size(); ++i) {
            const Step& step = s.steps[i];
            if (step.kind == StepKind::send) sends[{rank, step.peer}].push_back({rank, i});
            if (step.kind == StepKind::publish || step.kind == StepKind::signal)
                published.try_emplace({rank, step.round}, rank, i);
        }
        ++rank;
    }
    std::vector<Message> messages;
    std::map<std::pair<Rank, Rank>, std::size_t> received;
    for (Rank rank = 0; const Schedule& s : schedules) {
        for (std::size_t i = 0; i < s.steps.size(); ++i) {
            const Step& step = s.steps[i];
            const Place here{rank, i};
            const auto from_round = [&](Rank peer) {
                if (const auto found = published.find({peer, step.round}); found != published.end())
                    messages.push_back({found->second, here});
            };
            if (receives(step.kind)) {
                const std::pair way{step.peer, rank};
                messages.push_back({sends.at(way).at(received[way]++), here});
            }
            if (step.kind == StepKind::read || step.kind == StepKind::wait) from_round(step.peer);
            if (step.kind == StepKind::get || step.kind == StepKind::put) messages.push_back({here, here, step.peer});
            if (step.kind != StepKind::read_combine) continue;
            for (const schedule::Operand& operand : operands_of(s, step)) {
                if (operand.peer < 0 || operand.peer == rank) continue;
                if (s.in_place)
                    messages.push_back({here, here, operand.peer});
                else
                    from_round(operand.peer);
            }
        }
        ++rank;
    }
    return messages;
}

class ScheduleDrawing {
 public:
    ScheduleDrawing(const std::vector<Schedule>& schedules, const std::vector<std::vector<Span>>& spans)
        : schedules_(schedules), spans_(spans) {
        for (const auto& row : spans) {
            for (const Span& span : row) total_us_ = std::max(total_us_, span.end_us);
        }
    }

    std::string draw(std::string_view question) {
        std::set<StepKind> kinds;
        for (const Schedule& s : schedules_) {
            for (const Step& step : s.steps) kinds.insert(step.kind);
        }
        const double axis_y = first_row_y + row_height * static_cast<double>(schedules_.size());
        const double legend_y = axis_y + 52;
        const auto legend_rows = (kinds.size() + legend_columns - 1) / legend_columns;
        const double height = legend_y + legend_height * static_cast<double>(legend_rows);
        svg_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
            "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}",
            rows_x + rows_width + picture_margin, height, svg::escaped(question), picture_style);
        text(picture_margin, 24, "title",
             fmt::format("{}: {}, {:.1f} µs predicted", question, schedules_.front().algorithm, total_us_));
        draw_axis(axis_y);
        for (std::size_t rank = 0; rank < schedules_.size(); ++rank) draw_lane(static_cast<Rank>(rank));
        for (const Message& message : messages_of(schedules_)) draw(message);
        for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
            for (std::size_t i = 0; i < schedules_[rank].steps.size(); ++i) draw_step({static_cast<Rank>(rank), i});
        }
        for (int at = 0; const StepKind kind : kinds) {
            const double x = picture_margin + (at % legend_columns) * (rows_x + rows_width) / legend_columns;
            const double y = legend_y + legend_height * (at++ / legend_columns);
            svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"10\" rx=\"2\" fill=\"{}\"/>", x,
                                y - 9, colour_of(kind));
            text(x + 19, y, "soft", schedule::to_string(kind));
        }
        return std::move(svg_) + "</svg>\n";
    }

 private:
    const Step& step(Place at) const { return schedules_[static_cast<std::size_t>(at.rank)].steps[at.step]; }
    const Span& span(Place at) const { return spans_[static_cast<std::size_t>(at.rank)][at.step]; }
    double x(double us) const { return rows_x + (total_us_ > 0 ? rows_width * us / total_us_ : 0); }
    static double middle(Rank rank) { return first_row_y + row_height * rank + bar_height / 2; }

    void text(double at, double y, const char* style, std::string_view words, const char* anchor = "start") {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", at, y, style,
                            anchor, svg::escaped(words));
    }
    void draw_lane(Rank rank) {
        text(rows_x - 10, middle(rank) + 4, "soft", fmt::format("rank {}", rank), "end");
        svg_ += fmt::format("<path class=\"lane\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>\n", rows_x, middle(rank), rows_width);
    }
    void draw_axis(double y) {
        svg_ += fmt::format("<path class=\"lane\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>\n", rows_x, y, rows_width);
        const double distance = total_us_ > 0 ? svg::mark_distance(total_us_) : 1;
        for (double us = 0; us <= total_us_ * 1.0001; us += distance) {
            svg_ += fmt::format("<path class=\"lane\" d=\"M{:.1f} {:.1f}v5\"/>\n", x(us), y);
            text(x(us), y + 18, "soft", fmt::format("{:g}", us), "middle");
        }
        text(rows_x + rows_width, y + 33, "soft", "predicted µs", "end");
    }
    // From where a send ends to where its receive begins; in place, between the step and the row of its peer.
    void draw(const Message& m) {
        const bool upright = m.peer >= 0;
        const double x0 = x(upright ? span(m.from).begin_us : span(m.from).end_us);
        svg_ += fmt::format(
            "<path class=\"message\" data-from=\"{}\" data-to=\"{}\" d=\"M{:.2f} {:.2f}L{:.2f} {:.2f}\"/>\n",
            m.from.rank, upright ? m.peer : m.to.rank, x0, middle(m.from.rank), upright ? x0 : x(span(m.to).begin_us),
            middle(upright ? m.peer : m.to.rank));
    }
    void draw_step(Place at) {
        const Schedule& s = schedules_[static_cast<std::size_t>(at.rank)];
        const auto& [begin_us, end_us] = span(at);
        const double width = std::max(x(end_us) - x(begin_us), shortest_bar);
        std::string after;
        if (step(at).after_count > 0) after = fmt::format(", after {}", fmt::join(after_of(s, step(at)), " "));
        svg_ += fmt::format(
            "<g><title>rank {} step {}: {}: {}{}; from {:.3f} to {:.3f} µs</title><rect x=\"{:.2f}\" y=\"{:.1f}\" "
            "width=\"{:.2f}\" height=\"{:.0f}\" rx=\"2\" fill=\"{}\"/>",
            at.rank, at.step, schedule::to_string(step(at).kind), svg::escaped(schedule::sentence_of(s, step(at))),
            after, begin_us, end_us, x(begin_us), middle(at.rank) - bar_height / 2, width, bar_height,
            colour_of(step(at).kind));
        const std::string number = fmt::format("{}", at.step);
        if (number_width * static_cast<double>(number.size()) + 2 <= width)
            text(x(begin_us) + width / 2, middle(at.rank) + 4, "in", number, "middle");
        svg_ += "</g>\n";
    }

    const std::vector<Schedule>& schedules_;
    const std::vector<std::vector<Span>>& spans_;
    double total_us_ = 0;
    std::string svg_;
};

}  // namespace

const char* colour_of(StepKind kind) {
    switch (kind) {
        case StepKind::copy: return "#7d5bb0";
        case StepKind::combine: return "#a5750a";
        case StepKind::convert: return "#9a5f9e";
        case StepKind::encode: return "#5f7d3a";
        case StepKind::decode: return "#2f857c";
        case StepKind::decode_add: return "#b05a1e";
        case StepKind::magnitudes: return "#7f7f3f";
        case StepKind::largest: return "#5f7389";
        case StepKind::call: return "#b05b8f";
        case StepKind::send:
        case StepKind::put:
        case StepKind::publish: return "#2f73b5";
        case StepKind::receive:
        case StepKind::get:
        case StepKind::read: return "#33893f";
        case StepKind::receive_combine:
        case StepKind::read_combine: return "#c4383a";
        case StepKind::meet: return "#5d5d60";
        case StepKind::signal: return "#c26a12";
        case StepKind::wait: return "#8a8a8b";
        case StepKind::release: return "#9c8f86";
        case StepKind::settle: return "#74808c";
    }
    return "";
}

std::string picture_of(const Layout& layout, const Request& request, std::string_view question) {
    if (layout.size() > drawn_ranks_max)
        throw InvalidArgument(
            fmt::format("a picture of {} ranks: expected at most {}", layout.size(), drawn_ranks_max));
    const std::vector<Schedule> schedules = schedules_of(layout, request);
    std::size_t steps = 0;
    for (const Schedule& s : schedules) steps += s.steps.size();
    if (steps > drawn_steps_max)
        throw InvalidArgument(fmt::format("a picture of {} steps: expected at most {} (fewer ranks, or fewer bytes)",
                                          steps, drawn_steps_max));
    const auto spans = walk(schedules, layout, request.element_bytes, layout.tuning.costs.value_or(CostModel{}));
    return ScheduleDrawing(schedules, spans).draw(question);
}

}  // namespace tutti::algorithm
