// tutti explain: the schedule that a collective would use, in words.
#include "algorithm/explain.hpp"

#include "algorithm/select.hpp"
#include "cli/arguments.hpp"
#include "transport/shm/arena.hpp"

#include <tutti/dtype.hpp>
#include <tutti/error.hpp>

#include <cstdio>
#include <memory>

namespace tutti::cli {
namespace {

struct ExplainArguments {
    std::string collective, bytes = "1M", dtype = "float32", transport = "auto", algorithm;
    int ranks = 2, hosts = 1, rank = 0, root = 0;
    bool rank_order = false, table = false;
};

std::vector<std::string> collectives() {
    std::vector<std::string> names;
    for (int c = 1; c <= collective_count; ++c) names.emplace_back(to_string(static_cast<Collective>(c)));
    return names;
}

// Ranks in blocks of equal size, the first hosts one more where they do not divide.
algorithm::Layout layout_of(const ExplainArguments& a) {
    algorithm::Layout layout;
    const transport::ArenaLayout shape;
    for (int r = 0; r < a.ranks; ++r) layout.host_of.push_back(static_cast<int>(std::int64_t{r} * a.hosts / a.ranks));
    layout.shared_memory = a.transport != "tcp";
    layout.slot_bytes = shape.slot_bytes;
    layout.slots = shape.slots;
    return layout;
}

algorithm::Request request_of(const ExplainArguments& a) {
    const DType dtype = dtype_from_string(a.dtype);
    algorithm::Request request;
    for (int c = 1; c <= collective_count; ++c) {
        if (to_string(static_cast<Collective>(c)) == a.collective) request.collective = static_cast<Collective>(c);
    }
    request.rank = a.rank;
    request.root = a.root;
    request.element_bytes = size_of(dtype);
    request.single_rounding = is_low_precision(dtype);
    request.rank_order = a.rank_order;
    if (!a.algorithm.empty()) request.algorithm = a.algorithm;
    const auto n = static_cast<std::uint64_t>(a.ranks);
    const std::uint64_t count = bytes_of(a.bytes, "--bytes") / request.element_bytes;
    const std::vector<std::uint64_t> blocks(n, count / n);
    switch (request.collective) {
        case Collective::all_reduce:
        case Collective::broadcast:
        case Collective::reduce: request.count = count; break;
        case Collective::all_gather:
        case Collective::gather:
        case Collective::scatter:
        case Collective::reduce_scatter: request.counts = blocks; break;
        case Collective::all_to_all:
            request.send_counts = request.receive_counts = blocks;
            for (std::uint64_t r = 0; r < n; ++r) request.send_offsets.push_back(r * (count / n));
            request.receive_offsets = request.send_offsets;
            request.largest_count = count / n;
            break;
        case Collective::barrier: break;
    }
    return request;
}

}  // namespace

Command add_explain(CLI::App& app) {
    auto a = std::make_shared<ExplainArguments>();
    CLI::App* sub = app.add_subcommand("explain", "Print the schedule that a collective would use, why, and its cost");
    sub->add_option("collective", a->collective, "which one")->check(CLI::IsMember(collectives()));
    sub->add_option("-n,--ranks", a->ranks, "number of ranks")->check(CLI::Range(1, 4096))->capture_default_str();
    sub->add_option("-b,--bytes", a->bytes, "size of the whole buffer: 8, 64K, 1M")->capture_default_str();
    sub->add_option("--hosts", a->hosts, "hosts that the ranks are spread over")->capture_default_str();
    sub->add_option("--dtype", a->dtype, "element type")->capture_default_str();
    sub->add_option("--transport", a->transport, "tcp: no shared memory inside a host")
        ->check(CLI::IsMember({"auto", "shm", "tcp"}));
    sub->add_option("--algorithm", a->algorithm, "this one instead of the table's choice");
    sub->add_option("--rank", a->rank, "whose steps are printed when there are many ranks")->capture_default_str();
    sub->add_option("--root", a->root, "broadcast, reduce, gather, scatter")->capture_default_str();
    sub->add_flag(both_spellings("--layout-invariant"), a->rank_order, "combine in the order of ranks");
    sub->add_flag("--table", a->table, "print all algorithms and the rules that choose among them");
    return [a] {
        if (a->table) {
            std::fputs(algorithm::describe_table().c_str(), stdout);
            return 0;
        }
        if (a->collective.empty())
            throw InvalidArgument("no collective given: tutti explain all_reduce --ranks 4 --bytes 1M");
        if (a->hosts < 1 || a->hosts > a->ranks) {
            throw InvalidArgument("--hosts " + std::to_string(a->hosts) + ": expected 1 to " +
                                  std::to_string(a->ranks) + " (--ranks)");
        }
        for (const auto& [name, value] : {std::pair{"--rank", a->rank}, {"--root", a->root}}) {
            if (value < 0 || value >= a->ranks) {
                throw InvalidArgument(std::string(name) + " " + std::to_string(value) + ": expected 0 to " +
                                      std::to_string(a->ranks - 1));
            }
        }
        std::fputs(algorithm::explain(layout_of(*a), request_of(*a)).c_str(), stdout);
        return 0;
    };
}

}  // namespace tutti::cli
