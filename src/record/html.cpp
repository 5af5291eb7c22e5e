#include "record/html.hpp"

#include "core/svg.hpp"
#include "core/text.hpp"
#include "record/flight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace tutti::record {
namespace {

constexpr const char* page_head = R"(<!doctype html>
<html lang=en>
<meta charset=utf-8>
<meta name=viewport content="width=device-width">
<meta http-equiv=refresh content=2>
<title>tutti: who waits for whom</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 75em; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; border-bottom: 1px solid #8886 }
.scroll { overflow-x: auto } pre { white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: 1em 0 } caption { text-align: left; white-space: nowrap }
td, th { border: 1px solid #8884; padding: .1em .5em; text-align: right; font-variant-numeric: tabular-nums }
</style>
<h1>Who waits for whom</h1>
)";

struct Cell {
    double amount = 0;
    std::string text{}, title{};
};

/// `cell(row, column)`. Nothing where all amounts are 0.
std::string matrix(const WorldTimeline& world, std::string_view caption, const char* colour,
                   const std::function<Cell(int, int)>& cell) {
    const int size = static_cast<int>(world.ranks.size());
    std::vector<Cell> cells;
    double most = 0;
    for (int row = 0; row < size; ++row) {
        for (int column = 0; column < size; ++column)
            most = std::max(most, cells.emplace_back(cell(row, column)).amount);
    }
    if (most == 0) return {};
    std::string html = fmt::format("<div class=scroll><table><caption>{}</caption>\n<tr><th>", caption);
    for (int column = 0; column < size; ++column) html += fmt::format("<th>{}", world.members[column]);
    for (int row = 0; row < size; ++row) {
        html += fmt::format("\n<tr><th>{}", world.members[row]);
        for (int column = 0; column < size; ++column) {
            const Cell& one = cells[static_cast<std::size_t>(row * size + column)];
            if (one.amount == 0)
                html += "<td>";
            else
                html += fmt::format("<td style=\"background:rgb({} / {:.0f}%)\" title=\"{}\">{}", colour,
                                    10 + 60 * one.amount / most, svg::escaped(one.title), one.text);
        }
    }
    return html + "\n</table></div>\n";
}

std::uint64_t bytes_of(std::string_view dtype) {
    const std::size_t digit = dtype.find_first_of("0123456789");
    const std::size_t end = std::min(dtype.find_first_not_of("0123456789", digit), dtype.size());
    const auto bits = digit < end ? number_in<std::uint64_t>(dtype.substr(digit, end - digit)) : std::nullopt;
    return bits ? std::max<std::uint64_t>(1, *bits / 8) : 1;  // "bool"
}

std::string short_bytes(std::uint64_t bytes) {
    constexpr const char* units[] = {"B", "KB", "MB", "GB", "TB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
    return fmt::format("{:.3g} {}", value, units[unit]);
}

}  // namespace

std::vector<std::vector<std::uint64_t>> bytes_by_pair(const WorldTimeline& world) {
    const std::size_t size = world.ranks.size();
    std::vector bytes(size, std::vector<std::uint64_t>(size));
    for (std::size_t rank = 0; rank < size; ++rank) {
        if (!world.ranks[rank]) continue;
        for (const Entry& entry : world.ranks[rank]->entries) {
            const What what = what_of(entry.what, is_message(entry.kind));
            const std::uint64_t each = bytes_of(what.dtype);
            if (entry.kind == Kind::send && entry.peer >= 0 && static_cast<std::size_t>(entry.peer) < size)
                bytes[rank][static_cast<std::size_t>(entry.peer)] += what.count.value_or(0) * each;
            for (std::size_t peer = 0; peer < std::min(entry.sent.size(), size); ++peer) {
                if (peer != rank) bytes[rank][peer] += entry.sent[peer] * each;
            }
        }
    }
    return bytes;
}

std::string html_of(std::span<const WorldTimeline> worlds, std::string_view remarks) {
    std::string html = page_head;
    if (!remarks.empty()) html += fmt::format("<pre>{}</pre>\n", svg::escaped(remarks));
    for (const WorldTimeline& world : worlds) {
        html += fmt::format("<h2>group \"{}\"</h2>\n", svg::escaped(world.group));
        if (world.ranks.size() <= matrix_ranks_max) {
            const std::vector<Wait> waits = wait_for_graph(world);
            html += matrix(
                world, "waiting now: the rank of a row for that of a column, in seconds", "196 56 58",
                [&](int rank, int peer) -> Cell {
                    for (const Wait& wait : waits) {
                        if (wait.rank == rank && std::ranges::find(wait.peers, peer) != wait.peers.end())
                            return {std::max(wait.seconds, 1e-3), fmt::format("{:.1f}", wait.seconds),
                                    fmt::format("rank {} waits for rank {} in {}: {}", world.members[rank],
                                                world.members[peer], wait.in.title(world.members), wait.because)};
                    }
                    return {};
                });
            const auto bytes = bytes_by_pair(world);
            html += matrix(world,
                           "sent lately: from the rank of a row to that of a column, in messages and all_to_alls among "
                           "the last operations",
                           "47 115 181", [&](int rank, int peer) -> Cell {
                               const std::uint64_t sent =
                                   bytes[static_cast<std::size_t>(rank)][static_cast<std::size_t>(peer)];
                               return {static_cast<double>(sent), short_bytes(sent),
                                       fmt::format("{} bytes from rank {} to rank {}", sent, world.members[rank],
                                                   world.members[peer])};
                           });
        }
        html += fmt::format("<pre>{}</pre>\n", svg::escaped(describe(world)));
    }
    return html + "</html>\n";
}

}  // namespace tutti::record
