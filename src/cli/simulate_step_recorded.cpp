// A step from what ran: the records of a job's ranks, or the graph of one of them.
#include "cli/simulate_step.hpp"
#include "cli/trace.hpp"
#include "command/arguments.hpp"
#include "core/assert.hpp"
#include "core/text.hpp"
#include "graph/text.hpp"
#include "graph/value.hpp"
#include "record/flight.hpp"
#include "record/timeline.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace tutti::cli {
namespace {

// The groups of a run of n ranks, as they are with more. One that reaches from the first rank to the last grows with
// the ranks, at its stride; one that ends before stays as long as it is.
class Grown {
 public:
    Grown(StepWriter& writer, int recorded) : writer_(writer), recorded_(recorded) {}

    // Where one rank's group is; empty: a group of one rank.
    std::optional<std::size_t> of(const std::string& name, const std::vector<int>& members) {
        const int size = static_cast<int>(members.size());
        if (size <= 1) return std::nullopt;
        const int stride = members[1] - members[0];
        bool regular = stride >= 1 && members[0] % (size * stride) < stride;
        for (int i = 0; i < size; ++i)
            regular = regular && members[static_cast<std::size_t>(i)] == members[0] + i * stride;
        if (!regular || recorded_ % (size * stride) != 0)
            writer_.refuse(fmt::format("group {} of ranks {}", visible_line(name), fmt::join(members, ", ")),
                           "ranks at one distance, as those of a mesh");
        const bool reaches = size * stride == recorded_;
        const int ranks = writer_.ranks(), grown = reaches ? ranks / stride : size;
        if (ranks % (stride * std::max(1, grown)) != 0 || grown < 1)
            writer_.refuse(fmt::format("group {} of ranks {}", visible_line(name), fmt::join(members, ", ")),
                           fmt::format("--ranks that {} divides", reaches ? stride : size * stride));
        if (grown == 1) return std::nullopt;
        // Groups of one shape are one dimension of a mesh.
        const std::string shape = stride == 1 && grown == ranks ? "all" : fmt::format("{} x {}", grown, stride);
        return writer_.group(shape, grown, stride);
    }

 private:
    StepWriter& writer_;
    int recorded_;
};

// Calls that are not played, for the words: "2 x new_group".
class Skipped {
 public:
    void add(const std::string& what) { ++counts_[what]; }
    std::string words() const {
        std::string text;
        for (const auto& [what, count] : counts_)
            text += fmt::format("{}{} x {}", text.empty() ? "; not played: " : ", ", count, visible_line(what));
        return text;
    }

 private:
    std::map<std::string, int> counts_;
};

// A collective of a record.
struct Recorded {
    const record::Dump* dump = nullptr;
    const record::Entry* entry = nullptr;
    std::int64_t begin_ns() const { return entry->enqueued_ns; }
    // The end of a brief one is not known; it was brief.
    std::int64_t end_ns() const { return std::max(entry->ended_ns, entry->enqueued_ns); }
};

// The bytes of the whole buffer; empty: they are not known.
std::optional<std::uint64_t> bytes_of(const Recorded& r, const record::What& what, const CollectiveTraits& traits,
                                      DType dtype) {
    const auto ranks = static_cast<std::uint64_t>(r.dump->size);
    std::uint64_t elements = 0;
    if (what.several) return std::nullopt;
    if (traits.exchanges()) {
        if (r.entry->sent.empty()) return std::nullopt;
        for (const std::uint64_t count : r.entry->sent) elements += count;
    } else if (what.count) {
        elements = traits.has_blocks() ? *what.count * ranks : *what.count;
    } else if (what.operation != "barrier") {
        return std::nullopt;
    }
    return elements * size_of(dtype);
}

class RecordReader {
 public:
    RecordReader(StepWriter& writer, const std::vector<record::Dump>& dumps) : writer_(writer) {
        std::set<std::uint64_t> homes;
        for (const record::Dump& dump : dumps) {
            homes.insert(dump.home);
            const auto& members = dump.members.ranks();
            ranks_ = std::max(ranks_, members.empty() ? dump.size : *std::ranges::max_element(members) + 1);
            for (const record::Entry& entry : dump.entries) {
                if (record::is_message(entry.kind))
                    skipped_.add("message");
                else if (entry.state == record::State::completed)
                    calls_[dump.members[dump.rank]].push_back({&dump, &entry});
            }
        }
        if (homes.size() > 1)
            writer_.refuse(fmt::format("dumps of {} jobs", homes.size()), "those of one job, in a folder of their own");
        for (auto& [rank, calls] : calls_) std::ranges::stable_sort(calls, {}, &Recorded::begin_ns);
        if (calls_.empty()) writer_.refuse("", "a record with collectives that are complete");
    }

    std::string read() {
        // The calls of the first rank; the computing of all ranks that made the same ones, on average.
        const auto& pattern = calls_.begin()->second;
        std::vector<const std::vector<Recorded>*> alike;
        for (const auto& [rank, calls] : calls_) {
            if (std::ranges::equal(
                    calls, pattern, {}, [](const Recorded& r) { return r.entry->what; },
                    [](const Recorded& r) { return r.entry->what; }))
                alike.push_back(&calls);
        }
        Grown groups(writer_, ranks_);
        std::vector<std::optional<std::uint32_t>> numbers;
        for (std::size_t i = 0; i < pattern.size(); ++i) {
            std::vector<std::uint32_t> after;
            if (i > 0) {
                const auto waited = waited_for(pattern, i);
                double us = 0;
                for (const auto* calls : alike) us += computing_us(*calls, i);
                if (waited && numbers[*waited]) after.push_back(*numbers[*waited]);
                after = {writer_.add_compute("computing", us / static_cast<double>(alike.size()), std::move(after))};
            }
            numbers.push_back(add(pattern[i], groups, std::move(after)));
        }
        return fmt::format("a recorded run of {} ranks, {} collectives; computing as of {} of {} records{}", ranks_,
                           pattern.size(), alike.size(), calls_.size(), skipped_.words());
    }

 private:
    // Of the calls before number i that ended before it was made, and after the one before it was made: the last to
    // end. The program is taken to have waited for it.
    static std::optional<std::size_t> waited_for(const std::vector<Recorded>& calls, std::size_t i) {
        std::optional<std::size_t> last;
        for (std::size_t k = 0; k < i; ++k) {
            const std::int64_t end = calls[k].end_ns();
            if (end > calls[i].begin_ns() || end < calls[i - 1].begin_ns()) continue;
            if (!last || end >= calls[*last].end_ns()) last = k;
        }
        return last;
    }
    static double computing_us(const std::vector<Recorded>& calls, std::size_t i) {
        const auto waited = waited_for(calls, i);
        const std::int64_t from = waited ? calls[*waited].end_ns() : calls[i - 1].begin_ns();
        return static_cast<double>(std::max<std::int64_t>(0, calls[i].begin_ns() - from)) / 1e3;
    }

    std::optional<std::uint32_t> add(const Recorded& r, Grown& groups, std::vector<std::uint32_t> after) {
        const record::What what = record::what_of(r.entry->what, false);
        const auto collective = collective_named(what.operation);
        const auto types = command::dtype_names();
        const bool typed = what.dtype.empty() || std::ranges::find(types, what.dtype) != types.end();
        if (!collective || !typed) {
            skipped_.add(what.operation);
            return std::nullopt;
        }
        const DType dtype = what.dtype.empty() ? DType::uint8 : dtype_from_string(what.dtype);
        const auto bytes = bytes_of(r, what, traits_of(*collective), dtype);
        if (!bytes) {
            skipped_.add(what.operation + " of lengths that the record lacks");
            return std::nullopt;
        }
        std::vector<int> members = r.dump->members.ranks();
        if (members.empty()) {
            members.resize(static_cast<std::size_t>(r.dump->size));
            std::iota(members.begin(), members.end(), 0);
        }
        const auto group = groups.of(r.dump->group, members);
        if (!group) return std::nullopt;
        const int size = static_cast<int>(members.size());
        return writer_.add_call(
            what.operation,
            {.call = what.operation,
             .bytes = *bytes,
             .dtype = dtype,
             .root = traits_of(*collective).is_rooted() && r.entry->peer >= 0 ? r.entry->peer % size : 0,
             .group = *group},
            std::move(after));
    }

    StepWriter& writer_;
    std::map<int, std::vector<Recorded>> calls_;  // by rank of the world
    int ranks_ = 1;
    Skipped skipped_;
};

}  // namespace

std::string read_recorded_step(const std::string& place, StepWriter& writer) {
    std::vector<record::Dump> dumps, latest;
    for (const auto& file : dump_files({place})) dumps.push_back(record::read_dump(file));
    for (record::WorldTimeline& world : record::merge(std::move(dumps))) {
        for (auto& dump : world.ranks) {
            if (dump) latest.push_back(std::move(*dump));
        }
    }
    return RecordReader(writer, latest).read();
}

std::string read_graph_step(const std::string& text, StepWriter& writer) {
    const std::vector<graph::Graph> graphs = graph::read_graphs(text, "--step " + writer.where());
    TUTTI_ASSERT(!graphs.empty());
    const graph::Graph& g = graphs.front();
    int recorded = 1;
    for (const graph::GroupInfo& group : g.groups) {
        for (const int rank : group.ranks) recorded = std::max(recorded, rank + 1);
    }
    Grown groups(writer, recorded);
    Skipped skipped;
    const std::vector<std::vector<int>> before = graph::predecessors(g);
    std::optional<std::uint32_t> blocks;  // the last collective on which the program waits at once
    std::vector<std::uint32_t> numbers;
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
        const graph::Node& node = g.nodes[i];
        std::vector<std::uint32_t> after;
        for (const int position : before[i]) after.push_back(numbers[static_cast<std::size_t>(position)]);
        if (blocks) after.push_back(*blocks);
        std::optional<std::size_t> group;
        if (graph::is_message(node.kind)) skipped.add("message");
        if (graph::is_collective(node.kind)) {
            const graph::GroupInfo& info = g.groups[static_cast<std::size_t>(node.group)];
            group = groups.of(info.name, info.ranks);
        }
        if (!group) {
            const std::string name = node.kind == graph::Kind::compute && !node.name.empty()
                                         ? node.name
                                         : std::string(graph::to_string(node.kind));
            numbers.push_back(
                writer.add_compute(name, node.kind == graph::Kind::compute ? node.cost_us : 0, std::move(after)));
            continue;
        }
        // A collective begins where the program has come to it, even if its data were there before.
        if (i > 0) after.push_back(numbers.back());
        const std::string call(graph::to_string(node.kind));
        numbers.push_back(writer.add_call(call,
                                          {.call = call,
                                           .bytes = graph::bytes_of(node),
                                           .dtype = node.dtype,
                                           .root = std::max(0, node.root),
                                           .group = *group},
                                          std::move(after)));
        if (!node.asynchronous) blocks = numbers.back();
    }
    return fmt::format("a graph of {} nodes, of {} ranks{}", g.nodes.size(), recorded, skipped.words());
}

}  // namespace tutti::cli
