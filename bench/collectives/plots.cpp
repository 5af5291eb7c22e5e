// tutti bench --report: the folder, and the plots, which Python's matplotlib draws by bench/plots.py.
#include "bench/collectives/folder.hpp"
#include "bench/collectives/page.hpp"
#include "bench/collectives/plots_script.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tutti::bench {
namespace {

namespace fs = std::filesystem;

// One word for a shell.
std::string word(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

void write_file(const fs::path& file, const std::string& text) {
    std::ofstream out(file);
    out << text;
    if (!out.flush())
        throw std::system_error(errno, std::generic_category(),
                                fmt::format("--report {} cannot be written", file.string()));
}

std::string json_of(const About& about) {
    nlohmann::ordered_json versions = nlohmann::ordered_json::object();
    for (const auto& [name, number] : about.versions) versions[name] = number;
    nlohmann::ordered_json absent = nlohmann::ordered_json::object();
    for (const auto& [name, why] : about.absent) absent[name] = why;
    const nlohmann::ordered_json object = {
        {"host", about.host},       {"cpu", about.cpu},     {"hardware_threads", about.threads},
        {"system", about.system},   {"date", about.date},   {"load", about.load},
        {"command", about.command}, {"versions", versions}, {"absent", absent}};
    return object.dump(2) + '\n';
}

// Its version; empty: `python` has none.
std::string matplotlib_of(const std::string& python) {
    const std::string command =
        fmt::format("{} -c 'import matplotlib; print(matplotlib.__version__)' 2>/dev/null", word(python));
    std::FILE* const output = ::popen(command.c_str(), "r");
    if (output == nullptr) return {};
    std::array<char, 64> text{};
    const bool any = std::fgets(text.data(), static_cast<int>(text.size()), output) != nullptr;
    const bool good = ::pclose(output) == 0 && any;
    return good ? std::string(text.data(), std::strcspn(text.data(), "\n")) : std::string();
}

}  // namespace

Report::Report(std::string folder, std::string python) : folder_(std::move(folder)), python_(std::move(python)) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!error && ::access(folder_.c_str(), W_OK) != 0) error = {errno, std::generic_category()};
    if (error)
        throw InvalidArgument(
            fmt::format("--report {}: expected a folder that can be written, or a place where one can be "
                        "made: {}",
                        folder_, error.message()));
    matplotlib_ = matplotlib_of(python_);
    if (matplotlib_.empty())
        why_no_plots_ = fmt::format(
            "{} has no matplotlib, which draws them (pip install matplotlib, or the package python3-matplotlib; "
            "--plot-python names another interpreter)",
            python_);
}

// Empty: all is well.
std::string Report::draw() const {
    const Folder temporary;
    const fs::path script = temporary / "plots.py";
    write_file(script, plots_script);
    const std::string command = fmt::format("{} {} {}", word(python_), word(script), word(folder_));
    if (std::system(command.c_str()) == 0) return {};
    return fmt::format("matplotlib {} of {} failed, and said why in the terminal", matplotlib_, python_);
}

void Report::write(const std::vector<Row>& rows, const Limits& limits, About about) {
    write_json((fs::path(folder_) / "rows.json").string(), rows, limits);
    const fs::path page = fs::path(folder_) / "index.html";
    if (why_no_plots_.empty()) about.versions.emplace_back("matplotlib", matplotlib_);
    write_file(fs::path(folder_) / "about.json", json_of(about));
    write_file(page, page_of(rows, limits, about, why_no_plots_));
    if (!why_no_plots_.empty()) return;
    why_no_plots_ = draw();
    if (!why_no_plots_.empty()) write_file(page, page_of(rows, limits, about, why_no_plots_));
}

}  // namespace tutti::bench
