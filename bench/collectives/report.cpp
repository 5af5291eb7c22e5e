#include "bench/collectives/bench.hpp"
#include "bench/collectives/page.hpp"

#include <tutti/version.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace tutti::bench {
namespace {

void print_columns(std::FILE* to, bool bound, bool peers) {
    std::fputs("# time: median over samples of the mean over ranks; cpu: user and system time of all ranks, a byte\n",
               to);
    if (bound)
        std::fputs(
            "# bound: the part of the time that the limits explain, at most 100%; -: the row was quicker than these "
            "limits\n",
            to);
    std::fprintf(to, "#%13s %14s %12s %13s %9s %10s %10s %10s %8s %8s %10s %7s%s%s\n", "collective", "size(B)", "count",
                 "type", "redop", "time(us)", "p10(us)", "p90(us)", "algbw", "busbw", "cpu(ns/B)", "#wrong",
                 bound ? "  bound" : "", peers ? "  time/tutti  implementation" : "");
    std::fflush(to);
}

}  // namespace

double cpu_ns_per_byte(const Row& row) {
    return row.bytes > 0 ? row.cpu_us * 1000 / static_cast<double>(row.bytes) : 0;
}

void print_header(std::FILE* to, const Options& options, const Limits& limits) {
    std::fprintf(to, "# tutti %s, %d ranks, %s, on %s with %u hardware threads\n", tutti::version(), options.ranks,
                 options.transport.c_str(), about_this_host().cpu.c_str(), std::thread::hardware_concurrency());
    if (options.beside > 0)
        std::fprintf(to, "# beside %d processes that compute; what single calls take then differs widely\n",
                     options.beside);
    if (limits.copies.empty()) return print_columns(to, false, !options.against.empty() || options.plan);
    std::fprintf(to, "# limits of this machine: cache line %.0f ns one way, memcpy", limits.line_ns);
    for (const auto& copy : limits.copies) {
        std::fprintf(to, " %.1f", copy.gbps);
    }
    std::fputs(" GB/s (", to);
    for (const auto& copy : limits.copies) {
        std::fprintf(to, "%s%llu", &copy == limits.copies.data() ? "" : ", ",
                     static_cast<unsigned long long>(copy.bytes >> 10));
    }
    std::fputs(" KiB)", to);
    if (limits.tcp_us > 0) {
        std::fprintf(to, ", TCP loopback %.1f us one way, %.2f GB/s", limits.tcp_us, limits.tcp_gbps);
    }
    std::fputs("\n", to);
    print_columns(to, true, !options.against.empty() || options.plan);
}

std::string bound_text(const Row& row) {
    return row.bound_us ? fmt::format("{:.0f}%", 100 * *row.bound_us / row.median_us) : "-";
}

void print_row(std::FILE* to, const Row& row, const Limits& limits, double tutti_us) {
    std::fprintf(to, "%14s %14llu %12llu %13.13s %9s %10.2f %10.2f %10.2f %8.2f %8.2f %10.3g %7s",
                 row.collective.c_str(), static_cast<unsigned long long>(row.bytes),
                 static_cast<unsigned long long>(row.count), std::string(to_string(row.dtype)).c_str(), row.op.c_str(),
                 row.median_us, row.p10_us, row.p90_us, row.algbw_gbps, row.busbw_gbps, cpu_ns_per_byte(row),
                 row.wrong ? std::to_string(*row.wrong).c_str() : "n/a");
    if (!limits.copies.empty()) std::fprintf(to, " %6s", bound_text(row).c_str());
    if (tutti_us > 0) std::fprintf(to, " %11.2f  %s", row.median_us / tutti_us, row.implementation.c_str());
    std::fputs("\n", to);
    std::fflush(to);
}

void print_summary(std::FILE* to, const std::vector<Row>& rows) {
    std::uint64_t wrong = 0;
    double busbw = 0;
    std::size_t own = 0;
    for (const Row& row : rows) {
        wrong += row.wrong.value_or(0);
        if (row.implementation != "tutti") continue;
        busbw += row.busbw_gbps;
        ++own;
    }
    std::fprintf(to, "# wrong elements: %llu; average bus bandwidth: %.3f GB/s\n",
                 static_cast<unsigned long long>(wrong), own == 0 ? 0.0 : busbw / static_cast<double>(own));
}

namespace {

// One row as JSON and CSV have it: the columns in the order of their names.
nlohmann::json object_of(const Row& row, const Limits& limits) {
    nlohmann::json object = {{"collective", row.collective},
                             {"bytes", row.bytes},
                             {"dtype", std::string(to_string(row.dtype))},
                             {"op", row.op},
                             {"ranks", row.ranks},
                             {"transport", row.transport},
                             {"implementation", row.implementation},
                             {"median_us", row.median_us},
                             {"p10_us", row.p10_us},
                             {"p90_us", row.p90_us},
                             {"mean_us", row.mean_us},
                             {"busbw_gbps", row.busbw_gbps},
                             {"cpu_us", row.cpu_us},
                             {"cpu_ns_per_byte", nullptr},
                             {"bound_us", nullptr},
                             {"traffic_bound_us", nullptr},
                             {"line_ns", line_ns(row, limits)},
                             {"line_before_ns", row.line_before_ns},
                             {"line_after_ns", row.line_after_ns},
                             {"wrong", nullptr}};
    if (row.wrong) object["wrong"] = *row.wrong;
    if (row.bound_us) object["bound_us"] = *row.bound_us;
    if (const auto bound = traffic_bound_us(row, limits)) object["traffic_bound_us"] = *bound;
    if (row.bytes > 0) object["cpu_ns_per_byte"] = cpu_ns_per_byte(row);
    return object;
}

void write(const char* option, const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text;
    out.flush();
    if (!out) throw std::system_error(errno, std::generic_category(), option + (" " + file) + " cannot be written");
}

}  // namespace

void write_json(const std::string& file, const std::vector<Row>& rows, const Limits& limits) {
    nlohmann::json list = nlohmann::json::array();
    for (const Row& row : rows) list.push_back(object_of(row, limits));
    write("--json", file, list.dump(2) + '\n');
}

// No name and no number has a comma or a quotation mark.
void write_csv(const std::string& file, const std::vector<Row>& rows, const Limits& limits) {
    std::string text;
    for (const Row& row : rows) {
        const nlohmann::json object = object_of(row, limits);
        std::vector<std::string> names, values;
        for (const auto& [name, value] : object.items()) {
            names.push_back(name);
            values.push_back(value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump());
        }
        if (text.empty()) text = fmt::format("{}\n", fmt::join(names, ","));
        text += fmt::format("{}\n", fmt::join(values, ","));
    }
    write("--csv", file, text);
}

std::vector<Row> read_json(const std::string& file) {
    std::ifstream in(file);
    const auto list = nlohmann::json::parse(in, nullptr, false);
    if (!list.is_array()) throw std::runtime_error("bench: " + file + " holds no rows");
    std::vector<Row> rows;
    for (const auto& object : list) {
        Row row{.collective = object.at("collective"), .bytes = object.at("bytes")};
        row.dtype = dtype_from_string(object.at("dtype").get<std::string>());
        row.count = row.bytes / size_of(row.dtype);
        row.op = object.at("op");
        row.transport = object.value("transport", "");  // peers do not say
        row.ranks = object.at("ranks");
        row.median_us = object.at("median_us");
        row.p10_us = object.at("p10_us");
        row.p90_us = object.at("p90_us");
        row.mean_us = object.at("mean_us");
        row.busbw_gbps = object.at("busbw_gbps");
        row.cpu_us = object.at("cpu_us");
        row.line_before_ns = object.value("line_before_ns", 0.0);
        row.line_after_ns = object.value("line_after_ns", 0.0);
        row.algbw_gbps = static_cast<double>(row.bytes) / row.median_us / 1000;
        row.bus_factor = row.algbw_gbps > 0 ? row.busbw_gbps / row.algbw_gbps : 1;
        row.implementation = object.at("implementation");
        if (!object.at("wrong").is_null()) row.wrong = object.at("wrong").get<std::uint64_t>();
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace tutti::bench
