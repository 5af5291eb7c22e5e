// tutti trace: the evidence of the dumps of a job's ranks: which rank waits for which, for whom the others have waited
// longest, and a timeline to look at.
#include "cli/trace.hpp"

#include "cli/commands.hpp"
#include "record/flight.hpp"
#include "record/lateness.hpp"
#include "record/timeline.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace tutti::cli {
namespace {

struct TraceArguments {
    std::vector<std::string> places;
    std::string chrome;
    std::string torch;
};

int trace(const TraceArguments& a) {
    std::vector<record::Dump> dumps;
    for (const auto& file : dump_files(a.places)) dumps.push_back(record::read_dump(file));
    if (!a.torch.empty()) {
        std::filesystem::create_directories(a.torch);
        for (const record::FlightFile& file : record::flight_files(dumps))
            record::write_file(std::filesystem::path(a.torch) / file.name, file.bytes);
    }
    const std::vector<record::WorldTimeline> worlds = record::merge(std::move(dumps));
    for (const record::WorldTimeline& world : worlds)
        std::fputs((record::describe(world) + record::lateness_table(world)).c_str(), stdout);
    if (!a.chrome.empty()) record::write_file(a.chrome, record::chrome_trace(worlds));
    return 0;
}

}  // namespace

std::vector<std::filesystem::path> dump_files(const std::vector<std::string>& places) {
    std::vector<std::filesystem::path> files;
    for (const std::string& place : places) {
        std::error_code error;
        if (!std::filesystem::is_directory(place, error)) {
            files.emplace_back(place);
            continue;
        }
        const std::size_t before = files.size();
        for (const auto& entry : std::filesystem::directory_iterator(place)) {
            if (entry.path().extension() == ".dump") files.push_back(entry.path());
        }
        if (files.size() == before) throw InvalidArgument(place + ": no dumps in this folder: expected files *.dump");
    }
    std::ranges::sort(files);
    return files;
}

Command add_trace(CLI::App& app) {
    auto a = std::make_shared<TraceArguments>();
    CLI::App* sub = app.add_subcommand("trace", "Print who waits for whom, from the dumps of a job's ranks");
    sub->add_option("dumps", a->places, "dumps, or folders of them (TUTTI_TRACE_DIR of the job)")
        ->required()
        ->type_name("FILE");
    sub->add_option("--chrome,--perfetto", a->chrome, "also write a timeline for ui.perfetto.dev or chrome://tracing")
        ->type_name("FILE");
    sub->add_option("--torch", a->torch, "also write a file for each rank, for PyTorch's torchfrtrace, to this folder")
        ->type_name("DIR");
    sub->footer(
        "A rank writes a dump when its group fails or ends, and on SIGUSR2.\n\n"
        "Examples:\n"
        "  TUTTI_TRACE_DIR=dumps tutti run -n 4 ./program\n"
        "  tutti trace dumps\n"
        "  tutti trace dumps --perfetto timeline.json\n"
        "  tutti trace dumps --torch flight && torchfrtrace flight");
    return [a] { return trace(*a); };
}

}  // namespace tutti::cli
