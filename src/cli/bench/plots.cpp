// tutti bench --report: plots by gnuplot, and a page that holds them and the table.
#include "cli/bench/bench.hpp"

#include <tutti/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

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

// One curve: an inline data block of gnuplot's, its points, and the line that draws it.
struct Curve {
    std::string title, style;
    std::vector<std::pair<double, double>> points;
};

std::string plot(const std::string& label, const std::vector<Curve>& curves) {
    std::string blocks, lines;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        blocks += fmt::format("$curve{} << END\n", i);
        for (const auto& [x, y] : curves[i].points) blocks += fmt::format("{} {}\n", x, y);
        blocks += "END\n";
        lines += fmt::format("{}$curve{} using 1:2 {} title \"{}\"", i == 0 ? "" : ", ", i, curves[i].style,
                             curves[i].title);
    }
    return fmt::format("set ylabel \"{}\"\n{}plot {}\n", label, blocks, lines);
}

void draw(const fs::path& file, const std::string& collective, const std::vector<Row>& rows) {
    std::vector<Curve> times, bandwidths;
    Curve bound{"bound", "with lines dashtype 2 linecolor rgb '#888888'", {}};
    Curve bus_bound = bound;
    for (const std::string& implementation : distinct(rows, &Row::implementation)) {
        Curve time{implementation, "with linespoints", {}}, bandwidth = time;
        for (const Row& row : rows) {
            const auto bytes = static_cast<double>(std::max<std::uint64_t>(row.bytes, 1));
            if (row.collective != collective || row.implementation != implementation) continue;
            time.points.emplace_back(bytes, row.median_us);
            bandwidth.points.emplace_back(bytes, row.busbw_gbps);
            if (implementation != "tutti" || row.bound_us <= 0) continue;
            bound.points.emplace_back(bytes, row.bound_us);
            bus_bound.points.emplace_back(bytes, bytes * row.bus_factor / row.bound_us / 1000);
        }
        if (time.points.empty()) continue;
        times.push_back(std::move(time));
        bandwidths.push_back(std::move(bandwidth));
    }
    if (!bound.points.empty()) {
        times.push_back(std::move(bound));
        bandwidths.push_back(std::move(bus_bound));
    }
    const fs::path script = fs::path(file).replace_extension(".gp");
    std::ofstream out(script);
    out << "set terminal svg size 1100,420 font 'sans,11'\nset output '" << file.string() << "'\n"
        << "set multiplot layout 1,2\nset logscale x 2\nset grid\nset key top left\nset xlabel 'bytes'\n"
        << "set format x '%.0b%B'\nset logscale y\n"
        << plot("time, us (median)", times) << "unset logscale y\n"
        << plot("bus bandwidth, GB/s", bandwidths) << "unset multiplot\n";
    out.close();
    if (!out) throw std::runtime_error("--report: " + script.string() + " cannot be written");
    if (std::system(fmt::format("gnuplot '{}'", script.string()).c_str()) != 0) {
        throw std::runtime_error("--report: gnuplot failed on " + script.string() + "; is it installed?");
    }
}

}  // namespace

void write_report(const std::string& folder, const std::vector<Row>& rows, const Limits& limits) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::runtime_error(fmt::format("--report {}: {}", folder, error.message()));
    std::string page = fmt::format(
        "<!doctype html>\n<meta charset=\"utf-8\"><title>tutti bench</title>\n"
        "<style>body{{font:14px sans-serif;margin:2em;max-width:1150px}}td,th{{padding:2px 10px;text-align:right}}"
        "th{{border-bottom:1px solid}}td:last-child,th:last-child{{text-align:left}}</style>\n"
        "<h1>tutti {}: {} ranks, {}</h1>\n<p>Cache line {:.0f} ns one way; memcpy",
        version(), rows.empty() ? 0 : rows.front().ranks, rows.empty() ? "" : rows.front().transport, limits.line_ns);
    for (const auto& copy : limits.copies) page += fmt::format(" {:.1f} GB/s at {} KiB;", copy.gbps, copy.bytes >> 10);
    if (limits.tcp_us > 0) {
        page += fmt::format(" TCP loopback {:.1f} us one way, {:.2f} GB/s.", limits.tcp_us, limits.tcp_gbps);
    }
    page += " Times are medians; bound is what these limits allow.</p>\n";
    for (const std::string& collective : distinct(rows, &Row::collective)) {
        draw(fs::path(folder) / (collective + ".svg"), collective, rows);
        page += fmt::format(
            "<h2>{0}</h2>\n<img src=\"{0}.svg\" alt=\"{0}: time and bus bandwidth over size\">\n<table><tr><th>bytes"
            "<th>type<th>time, us<th>p10<th>p90<th>bus, GB/s<th>wrong<th>bound<th>implementation\n",
            collective);
        for (const Row& row : rows) {
            if (row.collective != collective) continue;
            page += fmt::format("<tr><td>{}<td>{}<td>{:.2f}<td>{:.2f}<td>{:.2f}<td>{:.2f}<td>{}<td>{:.0f} %<td>{}\n",
                                row.bytes, to_string(row.dtype), row.median_us, row.p10_us, row.p90_us, row.busbw_gbps,
                                row.wrong ? std::to_string(*row.wrong) : "n/a", 100 * row.bound_us / row.median_us,
                                row.implementation);
        }
        page += "</table>\n";
    }
    std::ofstream out(fs::path(folder) / "index.html");
    out << page;
    out.close();
    if (!out) throw std::runtime_error("--report " + folder + ": index.html cannot be written");
    write_json((fs::path(folder) / "rows.json").string(), rows);
}

}  // namespace tutti::bench
