#include "graph/picture.hpp"

#include "core/svg.hpp"
#include "graph/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace tutti::graph {
namespace {

// Lengths in the picture's units, of about a pixel each.
constexpr double margin = 16, gap = 36, panel_width = 460;
constexpr double title_y = 22, compute_y = 78, bar_height = 30, communication_y = 178, axis_y = 244, height = 304;
constexpr double letter_width = 6.3;
constexpr double shortest_bar = 1.5;
constexpr std::size_t arrows_max = 400;

// Mid tones, which stand out from white and from black; the frame's lines and words follow the page.
constexpr const char* style = R"(<style>
text { font: 12px system-ui, Helvetica, Arial, sans-serif; fill: #4a4a4b }
.title { font-size: 13px; font-weight: 600 } .soft { font-size: 11px } .in { font-size: 11px; fill: #fff }
.compute { fill: #2f73b5 } .communication { fill: #c4383a } .copy { fill: #7d5bb0 }
.wait { fill: none; stroke: #8a8a8b; stroke-dasharray: 3 2 }
.lane { stroke: #b9b9ba; stroke-width: 1 } .arrow { fill: none; stroke: #8a8a8b; stroke-width: 1 }
.order { stroke-dasharray: 2 3 } .head { fill: #8a8a8b }
@media (prefers-color-scheme: dark) {
  text { fill: #d6d6d7 } .in { fill: #fff } .lane { stroke: #55565a }
}
</style>
)";

const char* style_of(const Node& n) {
    if (n.kind == Kind::wait) return "wait";
    if (n.kind == Kind::copy) return "copy";
    return n.kind == Kind::compute ? "compute" : "communication";
}

// The longest that fits into the bar: its words, its number, nothing.
std::string label_of(const Node& n, double width) {
    std::string words = n.kind == Kind::compute ? n.name : std::string(to_string(n.kind));
    if (n.pieces.size() > 1) words = fmt::format("{} × {}", words, n.pieces.size());
    for (const std::string& label : {words, fmt::format("{}", n.id)}) {
        if (letter_width * static_cast<double>(label.size()) + 4 <= width) return label;
    }
    return {};
}

class Drawing {
 public:
    Drawing(const Panel& panel, double left, double total_us)
        : graph_(panel.graph), bars_(timeline(panel.graph)), left_(left), total_us_(total_us) {
        text(left_, title_y, "title",
             fmt::format("{}: {} node{}, {:.1f} µs", panel.title, graph_.nodes.size(),
                         graph_.nodes.size() == 1 ? "" : "s", graph_.predicted_us()));
        draw_lane("compute", compute_y);
        draw_lane("communication", communication_y);
        draw_axis();
        draw_arrows();
        for (const Bar& bar : bars_) draw(bar);
    }
    std::string take() { return std::move(svg_); }

 private:
    double x(double us) const { return left_ + panel_width * us / total_us_; }
    double width(const Bar& bar) const { return std::max(x(bar.end_us) - x(bar.begin_us), shortest_bar); }
    static double top(const Bar& bar) { return bar.moves_data ? communication_y : compute_y; }
    const Node& node(const Bar& bar) const { return graph_.nodes[static_cast<std::size_t>(bar.node)]; }

    void text(double at, double y, const char* style_name, std::string_view words, const char* anchor = "start") {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", at, y,
                            style_name, anchor, svg::escaped(words));
    }
    void draw_lane(const char* name, double y) {
        text(left_, y - 8 - (y == compute_y ? 18 : 0), "soft", name);
        svg_ += fmt::format("<path class=\"lane\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>\n", left_, y + bar_height + 0.5,
                            panel_width);
    }
    void draw_axis() {
        const double step = svg::mark_distance(total_us_);
        for (double us = 0; us <= total_us_ * 1.0001; us += step) {
            svg_ += fmt::format("<path class=\"lane\" d=\"M{:.1f} {:.1f}v5\"/>\n", x(us), axis_y);
            text(x(us), axis_y + 18, "soft", fmt::format("{:g}", us), us == 0 ? "start" : "middle");
        }
        text(left_ + panel_width, axis_y + 34, "soft", "predicted µs", "end");
        svg_ += fmt::format("<path class=\"lane\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>\n", left_, axis_y, panel_width);
    }
    void draw(const Bar& bar) {
        const Node& n = node(bar);
        svg_ += fmt::format(
            "<g><title>node {}: {}; from {:.1f} to {:.1f} µs</title><rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" "
            "width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\"/></g>\n",
            n.id, svg::escaped(describe(graph_, n)), bar.begin_us, bar.end_us, style_of(n), x(bar.begin_us), top(bar),
            width(bar), bar_height);
        const std::string label = n.kind == Kind::wait ? "" : label_of(n, width(bar));
        if (!label.empty()) text(x(bar.begin_us) + width(bar) / 2, top(bar) + 19, "in", label, "middle");
    }
    void draw_arrows() {
        const std::vector<Edge> edges = graph_.edges();
        if (edges.size() > arrows_max)
            return text(left_, axis_y + 34, "soft", fmt::format("{} dependencies without arrows", edges.size()));
        for (const Edge& e : edges)
            arrow(bars_[static_cast<std::size_t>(e.from)], bars_[static_cast<std::size_t>(e.to)], e.hazard);
    }
    // From the end of a bar to the beginning of another; on one lane over the bars, in an arc.
    void arrow(const Bar& from, const Bar& to, Hazard hazard) {
        const bool passes_value = hazard == Hazard::read_after_write || hazard == Hazard::wait;
        const double x0 = x(from.begin_us) + std::max(width(from) - 4, width(from) / 2);
        const double x1 = x(to.begin_us) + std::min(4., width(to) / 2);
        std::string path;
        if (from.moves_data == to.moves_data) {
            const double y = top(from), lift = std::clamp(std::abs(x1 - x0) / 6, 6., 18.);
            path = fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x0, y, x0, y - lift, x1,
                               y - lift, x1, y - 1);
        } else {
            const double y0 = to.moves_data ? compute_y + bar_height : communication_y;
            const double y1 = to.moves_data ? communication_y - 1 : compute_y + bar_height + 1;
            const double middle = (y0 + y1) / 2;
            path = fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", x0, y0, x0, middle, x1,
                               middle, x1, y1);
        }
        svg_ += fmt::format("<path class=\"arrow{}\" d=\"{}\" marker-end=\"url(#head)\"/>\n",
                            passes_value ? "" : " order", path);
    }

    const Graph& graph_;
    const std::vector<Bar> bars_;
    const double left_, total_us_;
    std::string svg_;
};

std::string legend() {
    std::string svg;
    double at = margin;
    const auto entry = [&](const char* mark, const char* words) {
        svg += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"10\" rx=\"2\"/>", mark,
                           at, height - 21);
        svg += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", at + 19, height - 12, words);
        at += 36 + 5.8 * static_cast<double>(std::string_view(words).size());
    };
    entry("compute", "compute step");
    entry("communication", "communication");
    entry("copy", "copy");
    entry("wait", "the rank waits");
    svg += fmt::format(
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">arrow: needs the value; dashed: must come after</text>\n", at,
        height - 12);
    return svg;
}

}  // namespace

std::vector<Bar> timeline(const Graph& graph) {
    std::vector<Bar> bars;
    std::map<int, double> ends;  // by id
    double now = 0, free = 0;    // when the rank, and what moves its data, are free
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
        const Node& n = graph.nodes[static_cast<std::size_t>(i)];
        const double takes = predicted_us(graph, n);
        if (n.kind == Kind::wait) {
            const auto end = ends.find(n.of);
            const double until = end == ends.end() ? now : std::max(now, end->second);
            bars.push_back({i, false, now, until});
            now = until;
        } else if (is_communication(n.kind)) {
            const double begin = std::max(now, free);
            free = begin + takes;
            ends[n.id] = free;
            bars.push_back({i, true, begin, free});
            if (!n.asynchronous) now = free;
        } else {
            bars.push_back({i, false, now, now + takes});
            now += takes;
        }
    }
    return bars;
}

std::string picture_of(std::span<const Panel> panels) {
    double total_us = 0;
    for (const Panel& panel : panels) total_us = std::max(total_us, panel.graph.predicted_us());
    if (total_us <= 0) total_us = 1;  // nothing takes any time
    const double count = static_cast<double>(panels.size());
    const double width = 2 * margin + count * panel_width + (count - 1) * gap;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\">\n{2}<defs><marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"6\" "
        "markerHeight=\"6\" orient=\"auto\"><path class=\"head\" d=\"M0 0L6 3L0 6z\"/></marker></defs>\n",
        width, height, style);
    double left = margin;
    for (const Panel& panel : panels) {
        svg += Drawing(panel, left, total_us).take();
        left += panel_width + gap;
    }
    return svg + legend() + "</svg>\n";
}

}  // namespace tutti::graph
