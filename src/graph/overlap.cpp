// Overlap: collectives that take long, as predicted, start as soon as their inputs are there and are waited for just
// before the first node that needs them, so that compute steps run meanwhile.
//
// Communication keeps its order: a collective overtakes compute steps alone. The bytes under way stay below a bound, as
// far as the program does not start more before it waits: a wait never moves before a call that the program makes
// first, which another rank may need to go on.
#include "core/assert.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace tutti::graph {
namespace {

class Overlap {
 public:
    Overlap(const Graph& graph, const Settings& settings) : given_(graph), options_(settings.options), graph_(graph) {
        find_waits();
        forget_waits();
        before_ = predecessors(graph_);
        chain();
        flying_.resize(graph_.nodes.size());
        next_id_ = next_id(graph_);
    }

    Result run() {
        const std::size_t n = graph_.nodes.size();
        std::vector<int> left(n);
        std::vector<std::vector<int>> after(n);
        for (std::size_t i = 0; i < n; ++i) {
            left[i] = static_cast<int>(before_[i].size());
            for (const int p : before_[i]) after[static_cast<std::size_t>(p)].push_back(static_cast<int>(i));
            if (left[i] == 0) ready_.insert(static_cast<int>(i));
        }
        while (!ready_.empty()) {
            const int i = next();
            ready_.erase(i);
            emit(i);
            for (const int a : after[static_cast<std::size_t>(i)]) {
                if (--left[static_cast<std::size_t>(a)] == 0) ready_.insert(a);
            }
        }
        while (!under_way_.empty()) wait_for(under_way_.front());
        TUTTI_ASSERT(under_way_.empty() && in_flight_ == 0);
        TUTTI_ASSERT(std::ranges::all_of(left, [](int count) { return count == 0; }));
        Result result{given_, {}};
        result.graph.nodes = without_empty_waits(result.text);
        if (result.text.empty()) result.graph = given_;
        return result;
    }

 private:
    bool is_candidate(const Node& n) const {
        return is_collective(n.kind) && n.kind != Kind::barrier &&
               (n.asynchronous || predicted_us(given_, n) >= options_.overlap_us);
    }

    void find_waits() {
        const std::vector<bool> could = could_block(given_);
        for (std::size_t i = 0; i < given_.nodes.size(); ++i) {
            const Node& n = given_.nodes[i];
            positions_[n.id] = static_cast<int>(i);
            if (n.kind == Kind::wait) waited_at_.try_emplace(n.of, static_cast<int>(i));
            if (!n.asynchronous || could[i]) any_time_.insert(n.id);
        }
    }
    /// Before the next call that is made at a node.
    bool may_wait_before(int next, int i) const {
        return any_time_.contains(node(i).id) || waited_at_.at(node(i).id) < positions_.at(node(next).id);
    }

    // Waits for collectives are placed anew; those for messages stay where they are.
    void forget_waits() {
        std::set<int> ids;
        for (Node& n : graph_.nodes) {
            if (!is_candidate(n)) continue;
            ids.insert(n.id);
            n.asynchronous = true;
        }
        std::erase_if(graph_.nodes, [&](const Node& n) { return n.kind == Kind::wait && ids.contains(n.of); });
        for (Node& n : graph_.nodes) candidates_.push_back(ids.contains(n.id));
    }

    // What other ranks see keeps its order.
    void chain() {
        int last = -1;
        for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
            const Kind kind = node(i).kind;
            if (!is_communication(kind) && kind != Kind::wait) continue;
            std::vector<int>& before = before_[static_cast<std::size_t>(i)];
            if (last >= 0 && std::ranges::find(before, last) == before.end()) {
                before.push_back(last);
                follows_only_.insert({last, i});
            }
            last = i;
        }
    }

    const Node& node(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
    bool is_candidate(int i) const { return candidates_[static_cast<std::size_t>(i)]; }
    bool needs_wait(int i) const {
        return std::ranges::any_of(before_[static_cast<std::size_t>(i)], [&](int p) {
            return flying_[static_cast<std::size_t>(p)] && !follows_only_.contains({p, i});
        });
    }

    int next() const {
        TUTTI_ASSERT(!ready_.empty());
        for (const int i : ready_) {
            if (is_candidate(i) && !needs_wait(i)) return i;
        }
        for (const int i : ready_) {
            if (!needs_wait(i)) return i;
        }
        return *ready_.begin();
    }

    void emit(int i) {
        TUTTI_ASSERT(!flying_[static_cast<std::size_t>(i)]);
        const std::vector<int> before = before_[static_cast<std::size_t>(i)];
        for (const int p : before) {
            if (flying_[static_cast<std::size_t>(p)] && !follows_only_.contains({p, i})) wait_for(p);
        }
        if (is_candidate(i)) {
            const std::uint64_t bytes = bytes_of(node(i));
            const auto may_wait = [&](int other) { return may_wait_before(i, other); };
            while (in_flight_ + bytes > options_.in_flight_bytes) {
                const auto first = std::ranges::find_if(under_way_, may_wait);
                if (first == under_way_.end()) break;
                wait_for(*first);
            }
            flying_[static_cast<std::size_t>(i)] = true;
            under_way_.push_back(i);
            in_flight_ += bytes;
        }
        nodes_.push_back(node(i));
    }

    void wait_for(int i) {
        TUTTI_ASSERT(flying_[static_cast<std::size_t>(i)]);
        TUTTI_ASSERT(in_flight_ >= bytes_of(node(i)));
        flying_[static_cast<std::size_t>(i)] = false;
        std::erase(under_way_, i);
        in_flight_ -= bytes_of(node(i));
        Node wait;
        wait.kind = Kind::wait;
        wait.id = next_id_++;
        wait.of = node(i).id;
        wait.site = node(i).site;
        nodes_.push_back(std::move(wait));
    }

    // Where nothing is computed meanwhile, a call that blocks does the same.
    std::vector<Node> without_empty_waits(std::vector<std::string>& text) const {
        TUTTI_ASSERT(nodes_.size() >= graph_.nodes.size());
        std::map<int, double> computed_at;  // at the start of each
        std::set<int> blocking;
        double computed = 0;
        for (const Node& n : nodes_) {
            if (n.kind == Kind::compute) computed += n.cost_us;
            if (is_collective(n.kind) && n.asynchronous) computed_at[n.id] = computed;
            if (n.kind != Kind::wait || !computed_at.contains(n.of)) continue;
            const double meanwhile = computed - computed_at[n.of];
            if (meanwhile <= 0) {
                if (any_time_.contains(n.of)) blocking.insert(n.of);
                continue;
            }
            const Node& start = *std::ranges::find(given_.nodes, n.of, &Node::id);
            text.push_back(
                fmt::format("{} runs beside {:.1f} us of compute steps", describe(given_, start), meanwhile));
        }
        std::vector<Node> kept;
        for (Node n : nodes_) {
            if (n.kind == Kind::wait && blocking.contains(n.of)) continue;
            if (blocking.contains(n.id)) n.asynchronous = false;
            kept.push_back(std::move(n));
        }
        return kept;
    }

    const Graph& given_;
    const OptimiseOptions& options_;
    std::map<int, int> positions_, waited_at_;  ///< by id, in the given graph; of asynchronous nodes that of the wait
    std::set<int> any_time_;                    ///< ids of nodes that may block
    Graph graph_;                               ///< without the waits that are placed anew
    std::vector<bool> candidates_;
    std::vector<std::vector<int>> before_;
    std::set<std::pair<int, int>> follows_only_;  ///< the order of communication, not of data
    std::set<int> ready_;
    std::vector<bool> flying_;
    std::vector<int> under_way_;
    std::uint64_t in_flight_ = 0;
    std::vector<Node> nodes_;
    int next_id_ = 0;
};

}  // namespace

Result overlap_collectives(const Graph& graph, const Settings& settings) {
    return Overlap(graph, settings).run();
}

}  // namespace tutti::graph
