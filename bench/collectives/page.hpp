// The report: a page that holds tables and plots of the measurements, and says where, when and how.
#pragma once

#include "bench/collectives/bench.hpp"

#include <string>
#include <utility>
#include <vector>

namespace tutti::bench {

/// A measurement's facts for the reader, beside its rows.
struct About {
    std::string host, cpu, system, date, command;
    unsigned threads = 0;                                       ///< of the hardware
    double load = 0;                                            ///< processes that wanted to run in the minute before
    std::vector<std::pair<std::string, std::string>> versions;  ///< names and versions, tutti's first
    std::vector<std::pair<std::string, std::string>> absent;    ///< peers that were asked for and not here, and why
};
/// Of this host and this process, now; without versions.
About about_this_host();
/// Those of tutti, of the compiler and of the peers.
std::vector<std::pair<std::string, std::string>> versions_of(const Options& options);

/// The report's place and the program that draws it: found out before anything is measured.
class Report {
 public:
    /// Makes `folder`. Throws InvalidArgument that names --report where it cannot be made or written.
    /// `python`: an interpreter; without matplotlib there the page has no plots, and says so.
    Report(std::string folder, std::string python);

    /// Empty: there will be plots.
    const std::string& why_no_plots() const noexcept { return why_no_plots_; }
    /// rows.json, about.json, index.html and, with matplotlib, an SVG for each collective. The rows come first and the
    /// plots last, so that nothing is lost when one fails. Throws std::system_error that names a file.
    void write(const std::vector<Row>& rows, const Limits& limits, About about);

 private:
    std::string draw() const;

    std::string folder_, python_, why_no_plots_, matplotlib_;
};

/// index.html. `why_no_plots`: said on the page, which then has none.
std::string page_of(const std::vector<Row>& rows, const Limits& limits, const About& about,
                    const std::string& why_no_plots);
/// "64 KB"
std::string size_text(std::uint64_t bytes);

}  // namespace tutti::bench
