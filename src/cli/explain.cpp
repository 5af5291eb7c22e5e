// tutti explain: the schedule that a collective would use, in words; or what a graph does (explain_graph.hpp).
#include "algorithm/explain.hpp"
#include "core/assert.hpp"

#include "algorithm/picture.hpp"
#include "algorithm/select.hpp"
#include "cli/commands.hpp"
#include "cli/explain_graph.hpp"
#include "cli/explain_quantized.hpp"
#include "cli/manual/page.hpp"
#include "cli/output_file.hpp"
#include "cli/tuning.hpp"
#include "command/requests.hpp"
#include "operation/planner.hpp"
#include "transport/shm/arena.hpp"
#include "transport/shm/peer_memory.hpp"

#include <tutti/dtype.hpp>
#include <tutti/error.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <sstream>

namespace tutti::cli {
namespace {

constexpr int ranks_max = 4096;

struct ExplainArguments {
    std::string collective, bytes = "1M", dtype = "float32", transport = "auto", algorithm, type = "int8", save;
    int ranks = 2, hosts = 1, rank = 0, root = 0;
    bool rank_order = false, table = false, choices = false, one_leg = false;
    std::uint64_t block = 256;
    double network_gbps = 0;
    std::vector<std::string> graphs;
    std::string svg;
};

// Ranks in blocks of equal size, the first hosts one more where they do not divide.
algorithm::Layout layout_of(const ExplainArguments& a) {
    algorithm::Layout layout;
    TUTTI_ASSERT(a.ranks >= 1 && a.hosts >= 1 && a.hosts <= a.ranks);
    const auto shape = transport::ArenaLayout::of(a.ranks, a.ranks);
    for (int r = 0; r < a.ranks; ++r) layout.host_of.push_back(static_cast<int>(std::int64_t{r} * a.hosts / a.ranks));
    TUTTI_ASSERT(layout.host_of.size() == static_cast<std::size_t>(a.ranks));
    layout.shared_memory = a.transport != "tcp";
    layout.slot_bytes = shape.slot_bytes;
    layout.slots = shape.slots;
    layout.machines = a.hosts;
    layout.pulls = layout.shared_memory && a.hosts == 1 && transport::PeerMemory::allowed();
    if (a.transport == "tcp") std::iota(layout.host_of.begin(), layout.host_of.end(), 0);  // as if each were alone
    layout.tuning = tuning_of_this_host();
    return layout;
}

algorithm::Request request_of(const ExplainArguments& a) {
    TUTTI_ASSERT(a.rank >= 0 && a.rank < a.ranks && a.root >= 0 && a.root < a.ranks);
    algorithm::Request request =
        request_for(a.collective, bytes_of(a.bytes, "--bytes"), dtype_from_string(a.dtype), a.ranks);
    request.rank = a.rank;
    request.root = a.root;
    request.rank_order = a.rank_order;
    if (!a.algorithm.empty()) request.algorithm = a.algorithm;
    return request;
}

// Ranks of an exchange know their own blocks alone, so they try something before its schedule. The planner, which
// decides about each call, says here what that is.
std::string step_before(const algorithm::Layout& layout, const algorithm::Request& request) {
    if (!traits_of(request.collective).exchanges() || layout.size() == 1) return {};
    detail::Planner planner(layout, request.rank, request.rank_order);
    if (layout.one_host() && layout.shared_memory) planner.use_slots();
    planner.serve_with(request.collective, request.algorithm);
    engine::CollectiveCall call{.collective = request.collective, .dtype = *request.dtype};
    call.set_count(request.largest_count.value_or(0));
    switch (planner.path(call)) {
        case detail::Path::slots:
            return "  before: each rank writes its blocks into its slot, or that they do not fit\n";
        case detail::Path::relay:
            return fmt::format("  before: where all blocks have at most {} bytes, ranks pass them on for each other\n",
                               planner.largest_relayed());
        case detail::Path::library:
        case detail::Path::schedule: break;
    }
    return {};
}

constexpr const char* quantized_name = "quantized_all_reduce";

algorithm::Request quantised_request_of(const ExplainArguments& a, const algorithm::Layout& layout) {
    if (a.block < 32 || a.block > 1024 || a.block % 32 != 0)
        throw InvalidArgument("--block " + std::to_string(a.block) + ": expected a multiple of 32 from 32 to 1024");
    const DType dtype = dtype_from_string(a.dtype);
    const QuantizedType type = quantized_type_from_string(a.type);
    const algorithm::Quantizing quantizing{.format = static_cast<quantize::Format>(type),
                                           .block = a.block,
                                           .gathers_codes = !a.one_leg,
                                           .input_type = dtype,
                                           .output_type = dtype,
                                           .tile = algorithm::tile_elements(a.block, layout.one_host())};
    return {.collective = Collective::all_reduce,
            .element_bytes = size_of(dtype),
            .dtype = dtype,
            .count = bytes_of(a.bytes, "--bytes") / size_of(dtype),
            .quantizing = quantizing};
}

std::string when_quantised(const ExplainArguments& a, const algorithm::Layout& layout) {
    return explain_quantized({.bytes = bytes_of(a.bytes, "--bytes"),
                              .dtype = dtype_from_string(a.dtype),
                              .ranks = a.ranks,
                              .one_host = layout.one_host(),
                              .type = quantized_type_from_string(a.type),
                              .block = a.block,
                              .quantize_results = !a.one_leg,
                              .network_gbps = a.network_gbps},
                             layout.tuning.costs.value_or(algorithm::CostModel{}), source_of(layout));
}

// Lines that are longer than the terminal is wide go on below: under the words of a step, or a little to the right.
void print(const std::string& text) {
    const std::size_t width = manual::width_of_output();
    constexpr std::size_t words_of_a_step = 25;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
        const bool step = begin < line.size() && line[begin] >= '0' && line[begin] <= '9';
        const std::size_t indent = step ? words_of_a_step : begin + 4;
        while (line.size() > width) {
            std::size_t end = line.rfind(' ', width);
            if (end != std::string::npos && line[end + 1] == '+' && line[end - 1] == ',')
                end = line.rfind(' ', end - 1);
            if (end == std::string::npos || end <= indent) break;
            fmt::print("{}\n", line.substr(0, end));
            line = std::string(indent, ' ') + line.substr(end + 1);
        }
        fmt::print("{}\n", line);
    }
}

void save(const schedule::Recipe& recipe, const std::string& file) {
    std::string text;
    try {
        text = schedule::to_text(recipe);
    } catch (const InvalidArgument&) {  // it could not be read again
        throw InvalidArgument(
            fmt::format("--save {}: a schedule of more than {} elements or {} ranks: expected fewer "
                        "(--bytes, --ranks); it runs for multiples",
                        file, schedule::elements_max, schedule::ranks_max));
    }
    write_output("--save", file, text);
    TUTTI_ASSERT(!recipe.ranks.empty());
    const schedule::Schedule& first = recipe.ranks.front();
    const bool staged = !first.in_place && std::ranges::any_of(first.steps, [](const schedule::Step& step) {
        return schedule::is_shared(step.kind);
    });
    fmt::print("  saved in {}; {}\n", file,
               staged ? "TUTTI_SCHEDULE takes no steps on the staging area: see --transport tcp"
                      : fmt::format("try it: TUTTI_SCHEDULE={}", file));
}

std::string question_of(const ExplainArguments& a) {
    return fmt::format("{} of {} between {} rank{}{}", a.collective, a.bytes, a.ranks, a.ranks == 1 ? "" : "s",
                       a.hosts > 1 ? fmt::format(" on {} hosts", a.hosts) : "");
}

std::vector<std::string> explained_collectives() {
    std::vector<std::string> names = planned_collectives();
    names.emplace_back(quantized_name);
    return names;
}

}  // namespace

Command add_explain(CLI::App& app) {
    auto a = std::make_shared<ExplainArguments>();
    CLI::App* sub = app.add_subcommand(
        "explain", "Print the schedule that a collective would use, why, and its cost; or what a graph does");
    sub->add_option("collective", a->collective, "which one")->check(one_of(explained_collectives()));
    sub->add_option("-n,--np,--ranks", a->ranks, "number of ranks")
        ->check(CLI::Range(1, ranks_max))
        ->capture_default_str();
    sub->add_option("-b,--bytes", a->bytes, "size of the whole buffer: 8, 64K, 1M")
        ->type_name("SIZE")
        ->capture_default_str();
    sub->add_option("--hosts", a->hosts, "hosts that the ranks are spread over")->capture_default_str();
    sub->add_option("--dtype", a->dtype, "element type")
        ->check(shows(dtype_names(), Form::word))
        ->capture_default_str();
    sub->add_option("--transport", a->transport, "tcp: no shared memory inside a host")
        ->check(one_of({"auto", "shm", "tcp"}));
    sub->add_option("--algorithm", a->algorithm, "this one instead of the table's choice")
        ->check(one_of(algorithm::algorithm_names()));
    sub->add_option("--rank", a->rank, "whose steps are printed when there are many ranks")->capture_default_str();
    sub->add_option("--root", a->root, "broadcast, reduce, gather, scatter")->capture_default_str();
    sub->add_flag(both_spellings("--layout-invariant"), a->rank_order, "combine in the order of ranks");
    sub->add_flag("--table", a->table, "print all algorithms and the rules that choose among them");
    sub->add_flag("--choices", a->choices, "print what is chosen for these ranks, by size, in the form of the table");
    sub->add_option("--save", a->save, "write the schedules of all ranks to this file, as TUTTI_SCHEDULE takes them")
        ->type_name("FILE");
    sub->add_option("--type", a->type, "quantized_all_reduce: what is sent")
        ->check(one_of({"int8", "int4", "float8_e4m3fn", "float8_e5m2"}))
        ->capture_default_str();
    sub->add_option("--block", a->block, "quantized_all_reduce: elements with one scale")->capture_default_str();
    sub->add_flag(both_spellings("--one-leg"), a->one_leg, "quantized_all_reduce: results travel as they are");
    sub->add_option("--network", a->network_gbps, "quantized_all_reduce: GB/s that a rank can send and receive")
        ->check(CLI::PositiveNumber.description(""));
    sub->add_option("--graph", a->graphs,
                    "graphs of all ranks, as Graph::to_text() writes them: prove and optimise them")
        ->expected(1, ranks_max)
        ->type_name("FILE");
    sub->add_option("--svg", a->svg,
                    "also draw the steps of all ranks over their predicted time; --graph: the graph of --rank, before "
                    "and after")
        ->type_name("FILE");
    sub->footer(
        "Examples:\n"
        "  tutti explain all_reduce -n 8 -b 1M --hosts 2\n"
        "  tutti explain broadcast -n 8 --transport tcp --svg broadcast.svg\n"
        "  tutti explain --table\n"
        "  tutti explain --choices -n 4\n"
        "  tutti explain --graph step.0 step.1 --svg step.svg\n\n"
        "Exit status: 0; 1 if the graphs do not prove.");
    return [a] {
        if (!a->graphs.empty()) {
            if (!a->collective.empty())
                throw InvalidArgument(fmt::format("--graph and {}: expected one of them", a->collective));
            return explain_graphs({.files = a->graphs, .rank = a->rank, .svg = a->svg});
        }
        if (a->table) {
            std::fputs(algorithm::describe_table(tuning_of_this_host().rules).c_str(), stdout);
            return 0;
        }
        if (a->hosts < 1 || a->hosts > a->ranks) {
            throw InvalidArgument("--hosts " + std::to_string(a->hosts) + ": expected 1 to " +
                                  std::to_string(a->ranks) + " (--ranks)");
        }
        if (a->choices) {
            std::fputs(algorithm::describe_choices(layout_of(*a)).c_str(), stdout);
            return 0;
        }
        if (a->collective.empty())
            throw InvalidArgument("no collective given: tutti explain all_reduce --ranks 4 --bytes 1M");
        for (const auto& [name, value] : {std::pair{"--rank", a->rank}, {"--root", a->root}}) {
            if (value < 0 || value >= a->ranks) {
                throw InvalidArgument(std::string(name) + " " + std::to_string(value) + ": expected 0 to " +
                                      std::to_string(a->ranks - 1));
            }
        }
        const algorithm::Layout layout = layout_of(*a);
        const bool quantised = a->collective == quantized_name;
        algorithm::Request request = quantised ? quantised_request_of(*a, layout) : request_of(*a);
        if (!quantised && !request.algorithm)
            request.algorithm = algorithm::parse_override(layout.tuning.named, request.collective);
        if (!a->svg.empty()) write_output("--svg", a->svg, algorithm::picture_of(layout, request, question_of(*a)));
        print((quantised ? when_quantised(*a, layout) : std::string()) +
              algorithm::explain(layout, request, source_of(layout)) + step_before(layout, request));
        if (!quantised && !a->save.empty()) save(algorithm::recipe_of(layout, request), a->save);
        return 0;
    };
}

}  // namespace tutti::cli
