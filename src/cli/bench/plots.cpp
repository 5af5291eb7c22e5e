// tutti bench --report: plots by gnuplot, and a page that holds them and the table.
#include "cli/bench/bench.hpp"

#include <tutti/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> distinct(const std::vector<Row>& rows, std::string Row::*member) {
    std::vector<std::string> values;
    for (const Row& row : rows) {
        if (std::ranges::find(values, row.*member) == values.end()) values.push_back(row.*member);
    }
    return values;
}

// One implementation's rows of a collective, or the limits: size, time, bus bandwidth.
struct Curve {
    std::string title, style;
    struct Point {
        double bytes, us, gbps;
    };
    std::vector<Point> points;
};

std::string size_text(std::uint64_t bytes) {
    static constexpr const char* units[] = {"B", "KB", "MB", "GB"};
    std::size_t unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{} {}", bytes, units[unit]);
}

// tutti stands out; the others keep their colours on all plots.
std::string style_of(std::size_t implementation) {
    static constexpr const char* colours[] = {"#c1272d", "#2563a8", "#3c8d40", "#8b5fa8", "#c77f1a"};
    static constexpr int points[] = {7, 5, 9, 11, 13};
    const std::size_t i = implementation % std::size(colours);
    return fmt::format("with linespoints linewidth {} pointtype {} pointsize 0.6 linecolor rgb '{}'",
                       implementation == 0 ? 2.5 : 1.5, points[i], colours[i]);
}

std::vector<Curve> curves_of(const std::string& collective, const std::vector<Row>& rows) {
    std::vector<Curve> curves;
    Curve bound{"limit of the machine", "with lines linewidth 1.5 dashtype (8,5) linecolor rgb '#777777'", {}};
    const auto implementations = distinct(rows, &Row::implementation);
    for (std::size_t i = 0; i < implementations.size(); ++i) {
        Curve curve{implementations[i], style_of(i), {}};
        for (const Row& row : rows) {
            if (row.collective != collective || row.implementation != implementations[i]) continue;
            const auto bytes = static_cast<double>(row.bytes);
            curve.points.push_back({bytes, row.median_us, row.busbw_gbps});
            if (i > 0 || row.bound_us <= 0) continue;
            bound.points.push_back({bytes, row.bound_us, bytes * row.bus_factor / row.bound_us / 1000});
        }
        if (!curve.points.empty()) curves.push_back(std::move(curve));
    }
    if (!bound.points.empty()) curves.push_back(std::move(bound));
    std::ranges::reverse(curves);  // the first ones are drawn last, over the others
    return curves;
}

// The named columns of the curves' data blocks in one panel.
std::string panel(const std::string& title, const std::vector<Curve>& curves, int column) {
    std::string lines;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        lines += fmt::format("{}$curve{} using 1:{} {} title \"{}\"", i == 0 ? "" : ", ", i, column, curves[i].style,
                             curves[i].title);
    }
    return fmt::format("set title \"{}\"\nplot {}\n", title, lines);
}

// Labels for at most eight of the sizes.
std::string ticks_of(const std::vector<Curve::Point>& points) {
    std::string ticks;
    const std::size_t step = (points.size() + 7) / 8;
    for (std::size_t i = 0; i < points.size(); i += step) {
        ticks += fmt::format("{}'{}' {}", i == 0 ? "" : ", ", size_text(static_cast<std::uint64_t>(points[i].bytes)),
                             points[i].bytes);
    }
    return ticks;
}

void draw(const fs::path& file, const std::string& collective, const std::vector<Row>& rows) {
    const std::vector<Curve> curves = curves_of(collective, rows);
    const auto& points = curves.back().points;
    // Copies inside a cache are quicker than anything that two cores exchange: their line leaves the picture.
    double best = 0;
    for (const Row& row : rows) {
        if (row.collective == collective) best = std::max(best, row.busbw_gbps);
    }
    const fs::path script = fs::path(file).replace_extension(".gp");
    std::ofstream out(script);
    out << "set terminal svg size 1200,460 font 'sans,13' noenhanced background rgb 'white'\n"
        << "set output '" << file.string() << "'\n"
        << "set border 3 linecolor rgb '#555555'\nset tics nomirror textcolor rgb '#333333'\n"
        << "set grid xtics ytics linecolor rgb '#dddddd'\n"
        << "set multiplot layout 1,2 margins 0.07,0.97,0.14,0.9 spacing 0.09\n"
        << "set logscale x 2\nset xtics (" << ticks_of(points) << ")\n"
        << fmt::format("set xrange [{}:{}]\n", points.front().bytes * 0.8, points.back().bytes * 1.25)
        << "set xlabel 'size of the buffer'\nset key top left reverse Left samplen 2\n";
    for (std::size_t i = 0; i < curves.size(); ++i) {
        out << "$curve" << i << " << END\n";
        for (const auto& point : curves[i].points) {
            out << fmt::format("{} {} {}\n", point.bytes, point.us, point.gbps);
        }
        out << "END\n";
    }
    out << "set logscale y\nset format y '%g'\n"
        << panel(collective + ": time, us (median; lower is better)", curves, 2)
        << fmt::format("unset logscale y\nset yrange [0:{}]\nunset key\n", 1.6 * best)
        << panel(collective + ": bus bandwidth, GB/s (higher is better)", curves, 3) << "unset multiplot\n";
    out.close();
    if (!out) throw std::runtime_error("--report: " + script.string() + " cannot be written");
    if (std::system(fmt::format("gnuplot '{}'", script.string()).c_str()) != 0) {
        throw std::runtime_error("--report: gnuplot failed on " + script.string() + "; is it installed?");
    }
}

// Cells of the column are marked where a peer is quicker than tutti.
std::string table_of(const std::string& collective, const std::vector<Row>& rows) {
    std::string table =
        "<table><tr><th>size<th>type<th>time, us<th>p10<th>p90<th>bus, GB/s<th>CPU, ns/B<th>wrong<th>limit / time"
        "<th>time / tutti's<th>implementation\n";
    double own_us = 0;
    for (const Row& row : rows) {
        if (row.collective != collective) continue;
        const bool own = row.implementation == "tutti";
        if (own) own_us = row.median_us;
        const double ratio = own_us > 0 ? row.median_us / own_us : 0;
        table += fmt::format(
            "<tr{}><td>{}<td>{}<td>{:.2f}<td>{:.2f}<td>{:.2f}<td>{:.2f}<td>{:.3g}<td>{}<td>{:.0f} "
            "%<td{}>{:.2f}<td>{}\n",
            own ? " class=own" : "", size_text(row.bytes), to_string(row.dtype), row.median_us, row.p10_us, row.p90_us,
            row.busbw_gbps, cpu_ns_per_byte(row), row.wrong ? std::to_string(*row.wrong) : "n/a",
            100 * row.bound_us / row.median_us, ratio < 1 ? " class=ahead" : "", ratio, row.implementation);
    }
    return table + "</table>\n";
}

}  // namespace

void write_report(const std::string& folder, const std::vector<Row>& rows, const Limits& limits) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::runtime_error(fmt::format("--report {}: {}", folder, error.message()));
    std::string page = fmt::format(
        "<!doctype html>\n<meta charset=\"utf-8\"><title>tutti bench</title>\n"
        "<style>body{{font:14px sans-serif;margin:2em auto;max-width:1250px;color:#222}}img{{max-width:100%}}"
        "table{{border-collapse:collapse}}td,th{{padding:2px 10px;text-align:right;font-variant-numeric:tabular-nums}}"
        "th{{border-bottom:1px solid #999}}td:last-child,th:last-child{{text-align:left}}"
        ".own td{{border-top:1px solid #ddd;font-weight:bold}}.ahead{{color:#c1272d;font-weight:bold}}</style>\n"
        "<h1>tutti {}: {} ranks, {}</h1>\n<p>Limits of this machine: a cache line's way between cores {:.0f} ns; "
        "memcpy",
        version(), rows.empty() ? 0 : rows.front().ranks, rows.empty() ? "" : rows.front().transport, limits.line_ns);
    for (const auto& copy : limits.copies) page += fmt::format(" {:.1f} GB/s at {};", copy.gbps, size_text(copy.bytes));
    if (limits.tcp_us > 0) {
        page += fmt::format(" TCP loopback {:.1f} us one way, {:.2f} GB/s;", limits.tcp_us, limits.tcp_gbps);
    }
    page +=
        " the dashed lines are what they allow. Times are medians; CPU is user and system time of all ranks. Red: a "
        "peer is quicker.</p>\n";
    for (const std::string& collective : distinct(rows, &Row::collective)) {
        page += fmt::format("<h2>{}</h2>\n", collective);
        if (std::ranges::any_of(rows, [&](const Row& r) { return r.collective == collective && r.bytes > 0; })) {
            draw(fs::path(folder) / (collective + ".svg"), collective, rows);
            page += fmt::format("<img src=\"{0}.svg\" alt=\"{0}: time and bus bandwidth over size\">\n", collective);
        }
        page += table_of(collective, rows);
    }
    std::ofstream out(fs::path(folder) / "index.html");
    out << page;
    out.close();
    if (!out) throw std::runtime_error("--report " + folder + ": index.html cannot be written");
    write_json((fs::path(folder) / "rows.json").string(), rows, limits);
}

}  // namespace tutti::bench
