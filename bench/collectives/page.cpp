#include "bench/collectives/page.hpp"

#include <tutti/version.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tutti::bench {
namespace {

constexpr const char* style = R"(<style>
:root { color-scheme: light dark; --line: #8886; --soft: #7f7f7f; --own: #c1272d18; --ahead: #c1272d; }
@media (prefers-color-scheme: dark) { :root { --own: #ff6b6b22; --ahead: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: .2em } h2 { margin-top: 2.2em; border-bottom: 1px solid var(--line) }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1em 1.2em } dt { color: var(--soft) } dd { margin: 0 }
code { font-size: .93em; overflow-wrap: anywhere } img { width: 100%; height: auto; margin-bottom: .8em }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .93em; white-space: nowrap }
td, th { padding: .15em .8em; text-align: right; font-variant-numeric: tabular-nums }
th { border-bottom: 1px solid var(--line); font-weight: 600; text-align: right }
td.word, th.word { text-align: left } tr.first td { border-top: 1px solid var(--line) } tr.own { background: var(--own) }
td.ahead { color: var(--ahead); font-weight: 600 } .note { border-left: 3px solid var(--line); padding-left: 1em }
</style>
)";

std::string html(const std::string& text) {
    std::string result;
    for (const char c : text)
        result += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    return result;
}

std::vector<std::string> collectives_of(const std::vector<Row>& rows) {
    std::vector<std::string> names;
    for (const Row& row : rows) {
        if (std::ranges::find(names, row.collective) == names.end()) names.push_back(row.collective);
    }
    return names;
}

bool any_peer(const std::vector<Row>& rows) {
    return std::ranges::any_of(rows, [](const Row& row) { return row.implementation != "tutti"; });
}

std::string facts(const About& about, const Limits& limits) {
    std::string list = "<dl>\n";
    const auto fact = [&list](const char* name, const std::string& text) {
        list += fmt::format("<dt>{}<dd>{}\n", name, text);
    };
    fact("host", fmt::format("{}, {}", html(about.host), html(about.system)));
    fact("CPU", fmt::format("{}, {} hardware threads", html(about.cpu), about.threads));
    fact("date", about.date);
    fact("command", fmt::format("<code>{}</code>", html(about.command)));
    std::string versions;
    for (const auto& [name, number] : about.versions)
        versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", html(name), html(number));
    fact("versions", versions);
    std::string absent;
    for (const auto& [name, why] : about.absent)
        absent += fmt::format("{}{}: {}", absent.empty() ? "" : "; ", html(name), html(why));
    if (!absent.empty()) fact("not measured", absent);
    if (limits.copies.empty()) return list + "</dl>\n";
    std::string copies = fmt::format("a cache line from core to core {:.0f} ns; memcpy by one core", limits.line_ns);
    for (const auto& copy : limits.copies)
        copies += fmt::format(" {:.1f} GB/s at {},", copy.gbps, size_text(copy.bytes));
    copies.pop_back();
    if (limits.tcp_us > 0)
        copies += fmt::format("; TCP over loopback {:.1f} us one way, {:.2f} GB/s", limits.tcp_us, limits.tcp_gbps);
    fact("limits", copies);
    return list + "</dl>\n";
}

// The meaning of the columns that there are.
std::string legend(bool limits, bool peers) {
    std::string text =
        "<p>Times are medians over samples of the mean over ranks, p10 and p90 their tenth and ninetieth percent (the "
        "band around "
        "tutti's line). Bus "
        "bandwidth is the size over the time, corrected for each collective as in nccl-tests. CPU is user and system "
        "time of all ranks, a byte.";
    if (limits)
        text +=
            " Limit is the part of the time that this machine's limits explain (the way of one cache line, or of one "
            "byte over TCP, and one copy of each byte that must move): at 100 % nothing could be quicker. It is left "
            "out "
            "where a row was quicker than the limits, which were then measured while the machine was busier.";
    if (peers) text += " Where a peer is quicker than tutti, the ratio stands in red.";
    return text + "</p>\n";
}

std::string table_of(const std::string& collective, const std::vector<Row>& rows, bool limits, bool peers) {
    std::string table = fmt::format(
        "<div class=scroll><table>\n<tr><th>size<th class=word>type<th>time, µs<th>p10<th>p90<th>bus, GB/s<th>CPU, "
        "ns/B<th>wrong{}{}\n",
        limits ? "<th>limit" : "", peers ? "<th>time / tutti's<th class=word>implementation" : "");
    double own_us = 0;
    for (const Row& row : rows) {
        if (row.collective != collective) continue;
        const bool own = row.implementation == "tutti";
        if (own) own_us = row.median_us;
        const double ratio = own_us > 0 ? row.median_us / own_us : 0;
        table += fmt::format("<tr class=\"{}\"><td>{}<td class=word>{}<td>{:.2f}<td>{:.2f}<td>{:.2f}<td>{:.2f}",
                             own && peers ? "own first" : "", size_text(row.bytes), to_string(row.dtype), row.median_us,
                             row.p10_us, row.p90_us, row.busbw_gbps);
        table += fmt::format("<td>{:.3g}<td>{}", cpu_ns_per_byte(row), row.wrong ? std::to_string(*row.wrong) : "n/a");
        if (limits) table += fmt::format("<td>{}", bound_text(row));
        if (peers)
            table += fmt::format("<td{}>{:.2f}<td class=word>{}", ratio < 1 ? " class=ahead" : "", ratio,
                                 row.implementation);
        table += '\n';
    }
    return table + "</table></div>\n";
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
    static constexpr const char* units[] = {"B", "KB", "MB", "GB"};
    std::size_t unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{} {}", bytes, units[unit]);
}

std::string page_of(const std::vector<Row>& rows, const Limits& limits, const About& about,
                    const std::string& why_no_plots) {
    const bool has_limits = !limits.copies.empty(), peers = any_peer(rows);
    const std::string what =
        rows.empty() ? "nothing was measured" : fmt::format("{} ranks, {}", rows.front().ranks, rows.front().transport);
    std::string page = fmt::format(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width\">\n"
        "<title>tutti bench: {0}</title>\n{1}<h1>tutti bench: {0}</h1>\n",
        what, style);
    page += facts(about, limits) + legend(has_limits, peers);
    if (about.load > about.threads)
        page += fmt::format(
            "<p class=note>The host was busy: {:.1f} processes wanted its {} hardware threads when this ended. Times "
            "are "
            "longer than on a quiet one; what implementations that took turns are to one another may still hold.</p>\n",
            about.load, about.threads);
    if (!why_no_plots.empty())
        page += fmt::format("<p class=note>This page has no plots: {}. The rows are in rows.json.</p>\n",
                            html(why_no_plots));
    for (const std::string& collective : collectives_of(rows)) {
        page += fmt::format("<h2>{}</h2>\n", collective);
        const bool sizes =
            std::ranges::any_of(rows, [&](const Row& r) { return r.collective == collective && r.bytes > 0; });
        if (why_no_plots.empty() && sizes)
            page += fmt::format("<img src=\"{0}.svg\" alt=\"{0}: time and bus bandwidth over size\">\n", collective);
        page += table_of(collective, rows, has_limits, peers);
    }
    return page;
}

}  // namespace tutti::bench
