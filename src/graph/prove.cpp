// The proof: the graphs of all ranks are run at once, on symbols, at the level of calls. A rank goes on until it has to
// wait for another; where nobody can go on and somebody has not ended, they would wait forever.
#include "core/assert.hpp"
#include "graph/joint_call.hpp"
#include "graph/symbols.hpp"
#include "graph/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti::graph {
namespace {

constexpr std::size_t most_faults = 8;
constexpr std::uint64_t compute_tag = 0x3c6ef372fe94f82bULL;

struct Shared {
    std::vector<int> ranks;
    std::deque<JointCall> instances;
    std::uint64_t first = 0;          ///< the number of instances.front()
    std::vector<std::uint64_t> next;  ///< by rank of the group
    std::vector<std::uint64_t> taken;
};

/// An asynchronous node between its start and its wait.
struct Flying {
    int position;
    const Node* node;
    std::uint64_t number;  ///< of its collective, or of its message from that rank
};

/// From one rank to another.
struct Messages {
    std::vector<Contents> sent;
    std::uint64_t posted = 0;  ///< receives
};

struct Rank {
    Rank(int rank, const Graph& its) : world(rank), graph(&its), memory(rank, its.buffers) {}
    int world;
    const Graph* graph;
    Memory memory;
    std::size_t at = 0;
    bool begun = false;  ///< the node at `at` has joined its collective
    std::uint64_t number = 0;
    std::vector<Flying> flying;
    std::vector<int> waited;          ///< ids of asynchronous nodes that are over
    std::vector<std::uint64_t> seen;  ///< what steps without results have read, in any order
};

class Run {
 public:
    /// Whether a rank that gets nothing of a collective, and only sends, waits for the others all the same, as it may
    /// have to where its data finds no room.
    enum class Senders { wait, go_on };
    Run(const std::vector<Graph>& graphs, Senders senders) : senders_(senders) {
        ranks_.reserve(graphs.size());
        const std::vector<int> numbers = ranks_in_world(graphs);
        for (std::size_t r = 0; r < graphs.size(); ++r) {
            ranks_.emplace_back(numbers[r], graphs[r]);
            if (!index_.emplace(numbers[r], r).second) fault(fmt::format("two graphs are of rank {}", numbers[r]));
        }
        for (const Rank& rank : ranks_) {
            for (const GroupInfo& g : rank.graph->groups) check_group(rank, g);
        }
        if (faults_.empty()) go();
    }

    std::vector<std::string>& faults() noexcept { return faults_; }
    const std::vector<Rank>& ranks() const noexcept { return ranks_; }

 private:
    void fault(std::string text) {
        if (faults_.size() < most_faults) faults_.push_back(std::move(text));
        failed_ = true;
    }

    void check_group(const Rank& rank, const GroupInfo& g) {
        const int size = static_cast<int>(g.ranks.size());
        if (g.rank < 0 || g.rank >= size || g.ranks[static_cast<std::size_t>(g.rank)] != rank.world)
            return fault(
                fmt::format("rank {}: its graph is that of rank {} of group \"{}\"", rank.world, g.rank, g.name));
        auto [found, is_new] = shared_.try_emplace(g.name);
        Shared& shared = found->second;
        if (is_new) {
            shared.ranks = g.ranks;
            shared.next.resize(g.ranks.size());
            shared.taken.resize(g.ranks.size());
        } else if (shared.ranks != g.ranks) {
            fault(fmt::format("rank {}: group \"{}\" has other ranks than on the ranks before it", rank.world, g.name));
        }
        for (const int other : g.ranks) {
            if (!index_.contains(other))
                return fault(fmt::format("group \"{}\" has rank {}, of which there is no graph", g.name, other));
        }
    }

    void go() {
        for (bool moved = true; moved && !failed_;) {
            moved = false;
            for (Rank& rank : ranks_) {
                while (!failed_ && rank.at < rank.graph->nodes.size() && step(rank)) moved = true;
            }
        }
        if (failed_) return;
        std::string stuck;
        for (const Rank& rank : ranks_) {
            if (rank.at == rank.graph->nodes.size()) {
                for (const Flying& f : rank.flying)
                    fault(fmt::format("rank {}: nobody waits for {}", rank.world, describe(*rank.graph, *f.node)));
                continue;
            }
            stuck += fmt::format("{}rank {} in node {}, {}", stuck.empty() ? "" : "; ", rank.world,
                                 rank.graph->nodes[rank.at].id, describe(*rank.graph, rank.graph->nodes[rank.at]));
        }
        if (!stuck.empty()) return fault("ranks wait forever: " + stuck);
        for (const auto& [channel, messages] : messages_) {
            if (messages.sent.size() > messages.posted)
                fault(fmt::format("rank {} sends {} messages to rank {} that it does not receive", std::get<1>(channel),
                                  messages.sent.size() - messages.posted, std::get<2>(channel)));
        }
    }

    // Whether the rank's next node is over.
    bool step(Rank& rank) {
        TUTTI_ASSERT(rank.at < rank.graph->nodes.size());
        const Node& node = rank.graph->nodes[rank.at];
        if (!rank.begun && node.kind != Kind::wait && !is_free(rank, node)) return false;
        bool over = true;
        if (is_collective(node.kind))
            over = collective(rank, node);
        else if (node.kind == Kind::wait)
            over = wait(rank, node);
        else if (node.kind == Kind::send)
            send(rank, node);
        else if (node.kind == Kind::receive)
            over = post_receive(rank, node);
        else if (node.kind == Kind::copy)
            copy(rank, node);
        else
            compute(rank, node);
        if (!over) return false;
        ++rank.at;
        rank.begun = false;
        return true;
    }

    // A node must not write what one under way uses, nor read what it writes.
    bool is_free(Rank& rank, const Node& node) {
        if (rank.flying.empty()) return true;
        const std::vector<Range> reads = reads_of(node), writes = writes_of(node);
        const auto meet = [](const std::vector<Range>& a, const std::vector<Range>& b) {
            for (const Range& x : a) {
                for (const Range& y : b) {
                    if (overlap(x, y)) return true;
                }
            }
            return false;
        };
        for (const Flying& f : rank.flying) {
            const std::vector<Range> written = writes_of(*f.node);
            if (meet(reads, written) || meet(writes, written) || meet(writes, reads_of(*f.node))) {
                fault(fmt::format("rank {}: {} touches what {} still uses; expected a wait between them", rank.world,
                                  describe(*rank.graph, node), describe(*rank.graph, *f.node)));
                return false;
            }
        }
        return true;
    }

    bool fly(Rank& rank, const Node& node, std::uint64_t number) {
        TUTTI_ASSERT(node.asynchronous);
        rank.flying.push_back({static_cast<int>(rank.at), &node, number});
        return true;
    }

    bool collective(Rank& rank, const Node& node) {
        const GroupInfo& group = rank.graph->groups[static_cast<std::size_t>(node.group)];
        Shared& shared = shared_.at(group.name);
        if (!rank.begun) {
            rank.number = shared.next[static_cast<std::size_t>(group.rank)]++;
            if (!join(rank, node, group, shared)) return false;
            rank.begun = true;
        }
        if (node.asynchronous) return fly(rank, node, rank.number);
        return finish(rank, node, group, shared, rank.number, static_cast<int>(rank.at));
    }

    bool join(const Rank& rank, const Node& node, const GroupInfo& group, Shared& shared) {
        TUTTI_ASSERT(rank.number >= shared.first);
        while (shared.first + shared.instances.size() <= rank.number) {
            shared.instances.emplace_back();
            shared.instances.back().inputs.resize(group.ranks.size());
            shared.instances.back().nodes.resize(group.ranks.size());
        }
        JointCall& one = shared.instances[rank.number - shared.first];
        const auto me = static_cast<std::size_t>(group.rank);
        if (one.first == nullptr) {
            one.first = &node;
            one.first_rank = group.rank;
        } else if (const std::string_view what = difference(*one.first, node); !what.empty()) {
            const Rank& other = rank_of_world(group.ranks[static_cast<std::size_t>(one.first_rank)]);
            fault(fmt::format("collective #{} of group \"{}\": rank {} has {}, but rank {} has {}: {}", rank.number + 1,
                              group.name, one.first_rank, describe(*other.graph, *one.first), group.rank,
                              describe(*rank.graph, node), what));
            return false;
        }
        one.nodes[me] = &node;
        TUTTI_ASSERT(one.joined < static_cast<int>(group.ranks.size()));
        TUTTI_ASSERT(one.inputs[me].empty());
        for (const Piece& p : node.pieces) {
            Blocks& blocks = one.inputs[me].emplace_back();
            for (const Range& r : p.reads) blocks.push_back(rank.memory.read(r));
        }
        if (++one.joined < static_cast<int>(group.ranks.size())) return true;
        if (const auto wrong = resolve(one, group.determinism)) {
            fault(fmt::format("{} of group \"{}\": rank {} expects {} bytes and gets {}", describe(*rank.graph, node),
                              group.name, wrong->rank, wrong->expected, wrong->got));
            return false;
        }
        return true;
    }

    bool finish(Rank& rank, const Node& node, const GroupInfo& group, Shared& shared, std::uint64_t number,
                int position) {
        TUTTI_ASSERT(number >= shared.first && number - shared.first < shared.instances.size());
        const bool waits = senders_ == Senders::wait || !writes_of(node).empty() || node.kind == Kind::barrier;
        JointCall& one = shared.instances[number - shared.first];
        if (waits && one.joined < static_cast<int>(group.ranks.size())) return false;
        if (waits) {
            const Pieces& results = one.results[static_cast<std::size_t>(group.rank)];
            TUTTI_ASSERT(results.size() == (node.kind == Kind::barrier ? 0 : node.pieces.size()));
            for (std::size_t p = 0; p < results.size(); ++p) {
                for (std::size_t b = 0; b < results[p].size(); ++b)
                    rank.memory.write(node.pieces[p].writes[b], results[p][b], position);
            }
        }
        ++shared.taken[static_cast<std::size_t>(group.rank)];
        const std::uint64_t all = *std::ranges::min_element(shared.taken);
        while (shared.first < all && shared.instances.front().joined == static_cast<int>(group.ranks.size()) &&
               !is_awaited(group, shared.first)) {
            shared.instances.pop_front();
            ++shared.first;
        }
        return true;
    }

    // Asynchronous collectives may be waited for in another order.
    bool is_awaited(const GroupInfo& group, std::uint64_t number) const {
        for (const int r : group.ranks) {
            const Rank& rank = rank_of_world(r);
            for (const Flying& f : rank.flying) {
                if (is_collective(f.node->kind) && f.number <= number &&
                    rank.graph->groups[static_cast<std::size_t>(f.node->group)].name == group.name)
                    return true;
            }
        }
        return false;
    }

    bool wait(Rank& rank, const Node& node) {
        const auto found = std::ranges::find_if(rank.flying, [&](const Flying& f) { return f.node->id == node.of; });
        if (found == rank.flying.end()) {
            if (std::ranges::find(rank.waited, node.of) != rank.waited.end()) return true;
            fault(fmt::format("rank {}: node {} waits for node {}, which is not under way", rank.world, node.id,
                              node.of));
            return false;
        }
        const Flying f = *found;
        if (f.node->kind == Kind::receive) {
            if (!receive(rank, *f.node, f.number, f.position)) return false;
        } else if (is_collective(f.node->kind)) {
            const GroupInfo& group = rank.graph->groups[static_cast<std::size_t>(f.node->group)];
            if (!finish(rank, *f.node, group, shared_.at(group.name), f.number, f.position)) return false;
        }
        rank.flying.erase(found);
        rank.waited.push_back(node.of);
        return true;
    }

    using Channel = std::tuple<std::string, int, int, int>;  // group, from, to, tag
    void send(Rank& rank, const Node& node) {
        const std::string& group = rank.graph->groups[static_cast<std::size_t>(node.group)].name;
        messages_[{group, rank.world, node.peer, node.tag}].sent.push_back(
            rank.memory.read(node.pieces.front().reads.front()));
        if (node.asynchronous) fly(rank, node, 0);
    }
    Messages& messages_to(const Rank& rank, const Node& node) {
        const std::string& group = rank.graph->groups[static_cast<std::size_t>(node.group)].name;
        return messages_[{group, node.peer, rank.world, node.tag}];
    }
    // Messages belong to receives in the order in which these are posted, whichever is waited for first.
    bool post_receive(Rank& rank, const Node& node) {
        if (!rank.begun) rank.number = messages_to(rank, node).posted++;
        rank.begun = true;
        if (node.asynchronous) return fly(rank, node, rank.number);
        return receive(rank, node, rank.number, static_cast<int>(rank.at));
    }
    bool receive(Rank& rank, const Node& node, std::uint64_t number, int position) {
        TUTTI_ASSERT(number < messages_to(rank, node).posted);
        Messages& messages = messages_to(rank, node);
        if (messages.sent.size() <= number) return false;
        const Contents message = std::exchange(messages.sent[number], {});
        const Range& to = node.pieces.front().writes.front();
        const std::uint64_t bytes = size_of(message);
        if (bytes != to.bytes) {
            fault(fmt::format("rank {}: {} expects {} bytes, but {} come", rank.world, describe(*rank.graph, node),
                              to.bytes, bytes));
            return false;
        }
        rank.memory.write(to, message, position);
        return true;
    }

    void copy(Rank& rank, const Node& node) {
        const Piece& p = node.pieces.front();
        rank.memory.write(p.writes.front(), rank.memory.read(p.reads.front()), static_cast<int>(rank.at));
    }

    void compute(Rank& rank, const Node& node) {
        const Piece& p = node.pieces.front();
        std::uint64_t term =
            mixed(mixed(compute_tag, static_cast<std::uint64_t>(rank.world)), static_cast<std::uint64_t>(p.call));
        if (has_rows(node) && !p.writes.empty()) return compute_rows(rank, node, term);
        for (const Range& r : p.reads) {
            const Contents contents = rank.memory.read(r);
            term = hash_of(mixed(term, r.bytes), contents);
        }
        for (std::size_t i = 0; i < p.writes.size(); ++i)
            rank.memory.write(p.writes[i], {{p.writes[i].bytes, {mixed(term, i), 0, -1}}}, static_cast<int>(rank.at));
        if (p.writes.empty()) rank.seen.push_back(term);
    }
    static void compute_rows(Rank& rank, const Node& node, std::uint64_t function) {
        const Piece& p = node.pieces.front();
        std::vector<Contents> reads;
        for (const Range& r : p.reads) reads.push_back(rank.memory.read(r));
        std::vector<std::uint64_t> bytes;
        for (const Range& r : p.writes) bytes.push_back(r.bytes);
        const std::vector<Contents> results = computed_by_rows({function, node.rows, node.whole}, reads, bytes);
        for (std::size_t i = 0; i < results.size(); ++i)
            rank.memory.write(p.writes[i], results[i], static_cast<int>(rank.at));
    }

    const Rank& rank_of_world(int world) const { return ranks_[index_.at(world)]; }

    Senders senders_;
    std::vector<Rank> ranks_;
    std::map<int, std::size_t> index_;  ///< of ranks_, by rank of the world
    std::map<std::string, Shared> shared_;
    std::map<Channel, Messages> messages_;
    std::vector<std::string> faults_;
    bool failed_ = false;
};

/// Compares what two runs leave in one rank's memory.
class Comparison {
 public:
    Comparison(const Rank& wanted, const Rank& got, std::vector<std::string>& faults)
        : wanted_(wanted), got_(got), faults_(faults) {}

    void compare() {
        if (got_.graph->buffers.size() < wanted_.graph->buffers.size() ||
            !std::ranges::equal(wanted_.graph->buffers,
                                std::span(got_.graph->buffers).first(wanted_.graph->buffers.size()))) {
            return fault(fmt::format("rank {}: its buffers are not those of the captured graph", wanted_.world));
        }
        for (std::size_t b = 0; b < wanted_.graph->buffers.size(); ++b) {
            for (const Range& r : readable(b)) compare(r);
        }
        std::vector<std::uint64_t> before = wanted_.seen, after = got_.seen;
        std::ranges::sort(before);
        std::ranges::sort(after);
        if (before != after)
            fault(fmt::format("rank {}: a compute step without results reads other values", wanted_.world));
    }

 private:
    void fault(std::string text) {
        if (faults_.size() < most_faults) faults_.push_back(std::move(text));
    }
    std::vector<Range> readable(std::size_t buffer) const {
        std::vector<Range> dead;
        for (const Range& r : wanted_.graph->temporaries) {
            if (r.buffer == buffer) dead.push_back(r);
        }
        std::ranges::sort(dead, {}, &Range::offset);
        std::vector<Range> live;
        std::uint64_t at = 0;
        const auto index = static_cast<std::uint32_t>(buffer);
        for (const Range& r : dead) {
            if (r.offset > at) live.push_back({index, at, r.offset - at});
            at = std::max(at, r.end());
        }
        if (at < wanted_.graph->buffers[buffer]) live.push_back({index, at, wanted_.graph->buffers[buffer] - at});
        return live;
    }
    void compare(const Range& range) {
        const IntervalMap<Symbol>& after = got_.memory.buffer(range.buffer);
        wanted_.memory.buffer(range.buffer)
            .for_each(range.offset, range.end(), [&](std::uint64_t begin, std::uint64_t end, const Symbol& s) {
                after.for_each(begin, end, [&](std::uint64_t b, std::uint64_t e, const Symbol& t) {
                    if (!(s.from(b - begin) == t))
                        fault(fmt::format(
                            "rank {}: bytes {} to {} of buffer {} hold the result of {}, expected that of {}",
                            wanted_.world, b, e, range.buffer, writer(got_, t), writer(wanted_, s)));
                });
            });
    }
    static std::string writer(const Rank& rank, const Symbol& s) {
        return s.writer < 0 ? "no node" : describe(*rank.graph, rank.graph->nodes[static_cast<std::size_t>(s.writer)]);
    }
    const Rank& wanted_;
    const Rank& got_;
    std::vector<std::string>& faults_;
};

}  // namespace

Proof prove(const std::vector<Graph>& graphs) {
    Run run(graphs, Run::Senders::go_on);
    return {std::move(run.faults())};
}

Proof prove(const std::vector<Graph>& captured, const std::vector<Graph>& optimised) {
    if (captured.size() != optimised.size())
        return {{fmt::format("{} optimised graphs for {} captured ones: expected as many", optimised.size(),
                             captured.size())}};
    // A program that runs although its senders wait has to do so afterwards.
    auto senders = Run::Senders::wait;
    std::optional<Run> before(std::in_place, captured, senders);
    if (!before->faults().empty()) before.emplace(captured, senders = Run::Senders::go_on);
    if (!before->faults().empty()) return {std::move(before->faults())};
    Run after(optimised, senders);
    if (!after.faults().empty()) return {std::move(after.faults())};
    Proof proof;
    for (std::size_t r = 0; r < captured.size(); ++r)
        Comparison(before->ranks()[r], after.ranks()[r], proof.faults).compare();
    return proof;
}

}  // namespace tutti::graph
