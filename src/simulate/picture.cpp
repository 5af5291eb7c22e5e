#include "simulate/picture.hpp"

#include "algorithm/picture.hpp"
#include "core/assert.hpp"
#include "core/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti::simulate {
namespace {

using schedule::StepKind;

// Lengths in the picture's units, of about a pixel each.
constexpr double width = 960, left = 120, right = 24, curve_top = 56, curve_height = 160, path_height = 26, row = 20;
constexpr std::size_t links_shown = 8, bars_max = 500;

constexpr const char* style = R"(<style>
text { font: 12px system-ui, Helvetica, Arial, sans-serif; fill: #4a4a4b }
.title { font-size: 13px; font-weight: 600 } .soft { font-size: 11px }
.axis { stroke: #b9b9ba; fill: none } .curve { stroke: #2f73b5; stroke-width: 2; fill: none } .link { fill: #2f857c }
@media (prefers-color-scheme: dark) { text { fill: #d6d6d7 } .axis { stroke: #55565a } }
</style>
)";

class PlayDrawing {
 public:
    explicit PlayDrawing(const Answer& answer)
        : answer_(answer),
          end_us_(answer.play.end_us),
          done_(finish_times(answer)),
          links_(busiest_links(answer, links_shown)) {
        std::erase_if(links_, [](const LinkUse& link) { return link.share == 0; });
    }

    std::string draw(std::string_view title) {
        const double path_y = curve_top + curve_height + 62, links_y = path_y + path_height + 74;
        const double height = links_y + row * static_cast<double>(std::max<std::size_t>(1, links_.size())) + 12;
        svg_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
            "height=\"{1:.0f}\" role=\"img\">\n{2}",
            width, height, style);
        text(16, 24, "title", title);
        text(16, 42, "soft", fmt::format("played {}; {:.3f} ms", answer_.words, end_us_ / 1e3));
        draw_done();
        draw_path(path_y);
        draw_links(links_y);
        return svg_ + "</svg>\n";
    }

 private:
    double x(double us) const { return left + (end_us_ > 0 ? us / end_us_ : 0) * (width - left - right); }
    void text(double at, double y, const char* kind, std::string_view words, const char* anchor = "start") {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", at, y, kind,
                            anchor, svg::escaped(words));
    }
    void axis(double y) {
        svg_ += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, y, width - right);
        if (end_us_ <= 0) return;
        const bool ms = end_us_ >= 1e4;
        const double unit = ms ? 1e3 : 1, distance = svg::mark_distance(end_us_ / unit);
        for (double mark = 0; mark * unit <= end_us_ * 1.0001; mark += distance) {
            svg_ += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v5\"/>\n", x(mark * unit), y);
            text(x(mark * unit), y + 17, "soft", fmt::format("{:g}", mark), "middle");
        }
        text(width - right, y + 31, "soft", ms ? "ms" : "µs", "end");
    }

    void draw_done() {
        const double bottom = curve_top + curve_height;
        text(left - 10, curve_top + 8, "soft", "all", "end");
        text(left - 10, bottom - curve_height / 2 + 4, "soft", "ranks done", "end");
        text(left - 10, bottom, "soft", "none", "end");
        std::string path = fmt::format("M{:.1f} {:.1f}", left, bottom);
        const std::size_t stride = std::max<std::size_t>(1, done_.size() / 800);
        const double all = static_cast<double>(std::max<std::size_t>(1, answer_.play.finish_us.size()));
        for (std::size_t i = 0; i < done_.size();
             i = i + 1 < done_.size() ? std::min(i + stride, done_.size() - 1) : i + 1)
            path +=
                fmt::format("H{:.1f}V{:.1f}", x(done_[i]), bottom - static_cast<double>(i + 1) / all * curve_height);
        svg_ += fmt::format("<path class=\"curve\" d=\"{}\"/>\n", path);
        axis(bottom);
    }

    // Of very many steps some are drawn, each until the next one.
    void draw_path(double y) {
        text(16, y - 8, "soft", "what the last rank waited for: steps, of whatever rank, one after the other");
        const auto& path = answer_.play.path;
        const std::size_t stride = path.size() / bars_max + 1;
        std::map<std::string_view, const char*> shown;
        for (std::size_t i = 0; i < path.size(); i += stride) {
            const std::size_t last = std::min(i + stride, path.size()) - 1;
            const StepKind kind = answer_.path_kinds[i];
            shown[schedule::to_string(kind)] = algorithm::colour_of(kind);
            svg_ += fmt::format(
                "<g><title>rank {} step {}: {}; from {:.3f} to {:.3f} µs</title><rect x=\"{:.2f}\" y=\"{:.1f}\" "
                "width=\"{:.2f}\" height=\"{:.0f}\" fill=\"{}\"/></g>\n",
                path[i].rank, path[i].op, schedule::to_string(kind), path[i].begin_us, path[last].end_us,
                x(path[i].begin_us), y, std::max(0.6, x(path[last].end_us) - x(path[i].begin_us)), path_height,
                algorithm::colour_of(kind));
        }
        if (path.empty()) text(left, y + 17, "soft", "not kept for so many steps");
        axis(y + path_height + 4);
        double at = left;
        for (const auto& [kind, fill] : shown) {
            svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", at,
                                y + path_height + 28, fill);
            text(at + 14, y + path_height + 37, "soft", kind);
            at += 28 + 7 * static_cast<double>(kind.size());
        }
    }

    void draw_links(double y) {
        text(16, y - 8, "soft", "busiest links, share of their capacity");
        if (links_.empty()) text(left, y + 12, "soft", "no link has a limit");
        for (std::size_t i = 0; i < links_.size(); ++i) {
            const double top = y + row * static_cast<double>(i), span = (width - left - right - 260) * links_[i].share;
            text(16, top + 12, "soft", links_[i].name);
            svg_ += fmt::format("<rect class=\"link\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"13\"/>\n",
                                left + 130, top + 2, std::max(0.5, span));
            text(left + 136 + span, top + 12, "soft", fmt::format("{:.1f} %", 100 * links_[i].share));
        }
    }

    const Answer& answer_;
    double end_us_;
    std::vector<double> done_;
    std::vector<LinkUse> links_;
    std::string svg_;
};

}  // namespace

std::string picture_of(const Answer& answer, std::string_view title) {
    TUTTI_ASSERT(answer.play.path.size() == answer.path_kinds.size());
    return PlayDrawing(answer).draw(title);
}

}  // namespace tutti::simulate
