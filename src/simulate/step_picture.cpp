#include "simulate/step_picture.hpp"

#include "core/assert.hpp"
#include "core/svg.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::simulate {
namespace step_picture {

// Lengths in the picture's units, of about a pixel each.
constexpr double width = 960, left = 120, right = 24, top = 74, bar = 18, between = 4, rank_gap = 14;
constexpr std::size_t ranks_shown = 4;
constexpr double least_shown = 0.4, least_named = 40, letter = 6.6;

constexpr const char* style = R"(<style>
text { font: 12px system-ui, Helvetica, Arial, sans-serif; fill: #4a4a4b }
.title { font-size: 13px; font-weight: 600 } .soft { font-size: 11px } .in { font-size: 11px; fill: #ffffff }
.axis { stroke: #b9b9ba; fill: none } .compute { fill: #2f73b5 } .moves { fill: #2f857c } .late { fill: #c2793a }
.path { stroke: #b3362f; stroke-width: 2; fill: none }
@media (prefers-color-scheme: dark) { text { fill: #d6d6d7 } .axis { stroke: #55565a } }
</style>
)";

class StepDrawing {
 public:
    StepDrawing(const StepAnswer& answer, const WholeStep& step) : answer_(answer), step_(step) {
        const auto show = [&](Rank rank) {
            if (ranks_.size() < ranks_shown && std::ranges::find(ranks_, rank) == ranks_.end()) ranks_.push_back(rank);
        };
        show(answer.last);
        for (const Hop& hop : answer.path) show(hop.rank);
        for (Rank rank = 0; rank < answer.played; ++rank) show(rank);
        std::ranges::sort(ranks_);
    }

    std::string draw(std::string_view title) {
        const double lanes = 1 + static_cast<double>(step_.groups.size());
        const double of_rank = lanes * (bar + between) + rank_gap;
        const double bottom = top + of_rank * static_cast<double>(ranks_.size());
        svg_ = fmt::format(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
            "height=\"{1:.0f}\" role=\"img\">\n{2}",
            width, bottom + 44, style);
        text(16, 24, "title", title);
        text(16, 42, "soft",
             fmt::format("{:.3f} ms; of a rank, on average: computes {:.3f} ms, communicates beside that {:.3f} ms, "
                         "waits {:.3f} ms",
                         answer_.step_us / 1e3, answer_.compute_us / 1e3, answer_.hidden_us / 1e3,
                         answer_.exposed_us / 1e3));
        double at = left;
        for (const auto& [kind, words] : {std::pair{"compute", "computes"},
                                          {"late", "waits until the last rank begins"},
                                          {"moves", "communicates"}}) {
            svg_ += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"53\" width=\"10\" height=\"10\"/>\n", kind, at);
            text(at + 14, 62, "soft", words);
            at += 220;
        }
        svg_ += fmt::format("<path class=\"path\" d=\"M{:.1f} 58h14\"/>\n", at);
        text(at + 18, 62, "soft", "what the end waited for");
        for (std::size_t i = 0; i < ranks_.size(); ++i) draw_rank(ranks_[i], top + of_rank * static_cast<double>(i));
        draw_axis(bottom);
        return svg_ + "</svg>\n";
    }

 private:
    double x(double us) const {
        return left + (answer_.step_us > 0 ? us / answer_.step_us : 0) * (width - left - right);
    }
    void text(double at, double y, const char* kind, std::string_view words, const char* anchor = "start") {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", at, y, kind,
                            anchor, svg::escaped(words));
    }
    void box(double from, double to, double y, const char* kind) {
        if (x(to) - x(from) < least_shown) return;
        svg_ += fmt::format("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.0f}\"/>", kind,
                            x(from), y, x(to) - x(from), bar);
    }

    void draw_rank(Rank rank, double y) {
        const auto r = static_cast<std::size_t>(rank);
        text(left - 10, y + 13, "soft", fmt::format("rank {}", rank), "end");
        for (std::size_t g = 0; g < step_.groups.size(); ++g)
            text(left - 10, y + (bar + between) * static_cast<double>(g + 1) + 13, "soft", step_.groups[g], "end");
        for (std::size_t i = 0; i < step_.pieces.size(); ++i) {
            const WholeStep::Piece& piece = step_.pieces[i];
            const double begin = answer_.pieces[i].begin_us[r], end = answer_.pieces[i].end_us[r];
            if (x(end) - x(begin) < least_shown) continue;
            const double lane =
                piece.call < 0 ? 0 : 1 + static_cast<double>(step_.calls[static_cast<std::size_t>(piece.call)].group);
            const double at = y + lane * (bar + between);
            const auto& last = answer_.pieces[i].last;
            const double all_there =
                last.empty() ? begin : std::min(end, answer_.pieces[i].begin_us[static_cast<std::size_t>(last[r])]);
            svg_ += fmt::format("<g><title>{}: {:.3f} to {:.3f} ms</title>", svg::escaped(piece.name), begin / 1e3,
                                end / 1e3);
            box(begin, all_there, at, "late");
            box(all_there, end, at, piece.call < 0 ? "compute" : "moves");
            svg_ += "</g>\n";
            const double room = x(end) - x(begin);
            if (room > least_named && room > letter * static_cast<double>(piece.name.size()))
                text(x(begin) + 4, at + 13, "in", piece.name);
            for (const Hop& hop : answer_.path) {
                if (hop.piece != i || hop.rank != rank || x(hop.to_us) - x(hop.from_us) < least_shown) continue;
                svg_ += fmt::format("<path class=\"path\" d=\"M{:.2f} {:.1f}H{:.2f}\"/>\n", x(hop.from_us),
                                    at + bar + 1, x(hop.to_us));
            }
        }
    }

    void draw_axis(double y) {
        svg_ += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", left, y, width - right);
        if (answer_.step_us <= 0) return;
        const bool ms = answer_.step_us >= 1e4;
        const double unit = ms ? 1e3 : 1, distance = svg::mark_distance(answer_.step_us / unit);
        for (double mark = 0; mark * unit <= answer_.step_us * 1.0001; mark += distance) {
            svg_ += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v5\"/>\n", x(mark * unit), y);
            text(x(mark * unit), y + 17, "soft", fmt::format("{:g}", mark), "middle");
        }
        text(width - right, y + 31, "soft", ms ? "ms" : "µs", "end");
    }

    const StepAnswer& answer_;
    const WholeStep& step_;
    std::vector<Rank> ranks_;
    std::string svg_;
};

}  // namespace step_picture

std::string picture_of(const StepAnswer& answer, const WholeStep& step, std::string_view title) {
    TUTTI_ASSERT(answer.pieces.size() == step.pieces.size());
    return step_picture::StepDrawing(answer, step).draw(title);
}

}  // namespace tutti::simulate
