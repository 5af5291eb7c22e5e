// Buckets: collectives of one group, kind, dtype, operator and root that do not need each other become one call, up to
// the smallest size with 90 % of the bandwidth.
//
// A window collects them in the program's order, while steps that need one of them step back behind it. It closes
// before other communication that needs one of them, at messages, and, when it is full, at the next compute step: data
// that could go should not wait. Closed, it is cut into buckets in the order in which their results are needed. All of
// them run where the window closed; with Settings::in_place each runs where its last call was.
#include "core/assert.hpp"
#include "graph/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tutti::graph {
namespace {

using Key = std::tuple<int, Kind, DType, ReduceOp::Kind, int>;
Key key_of(const Node& n) {
    return {n.group, n.kind, n.dtype, combines(n.kind) ? n.op : ReduceOp::Kind::sum, n.root};
}

struct Window {
    Key key;
    std::vector<int> members;  ///< positions
    std::uint64_t bytes = 0;
    std::vector<bool> needs;  ///< by position: a member, or needs one
};

class Buckets {
 public:
    Buckets(const Graph& graph, const Settings& settings)
        : graph_(graph),
          settings_(settings),
          before_(predecessors(graph)),
          could_block_(could_block(graph)),
          needed_at_(graph.nodes.size(), static_cast<int>(graph.nodes.size())) {
        for (int i = static_cast<int>(before_.size()) - 1; i >= 0; --i) {
            for (const int p : before_[static_cast<std::size_t>(i)]) needed_at_[static_cast<std::size_t>(p)] = i;
        }
    }

    Result run() {
        for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) visit(i);
        while (!windows_.empty()) close(0);
        Result result{graph_, std::move(text_)};
        result.graph.nodes.clear();
        for (std::size_t i = 0; i < nodes_.size(); ++i) {
            const Node& n = nodes_[i];
            const bool is_over = n.kind == Kind::wait && std::ranges::find(over_, n.of) != over_.end();
            if (!is_over && !left_.contains(i)) result.graph.nodes.push_back(n);
        }
        return result;
    }

 private:
    const Node& node(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

    bool may_join(int i) const {
        const Node& n = node(i);
        const bool kind = may_run_in_chunks(n.kind) || n.kind == Kind::broadcast;
        if (settings_.in_place && n.asynchronous && !could_block_[static_cast<std::size_t>(i)]) return false;
        if (!kind || n.opaque || n.pieces.size() != 1 || settings_.keeps(graph_, n)) return false;
        if (n.kind == Kind::all_reduce && n.pieces.front().reads != n.pieces.front().writes) return false;
        return may_be_combined_otherwise(graph_, n) && bytes_of(n) < limit(n);
    }
    std::uint64_t limit(const Node& n) const {
        return settings_.bucket_bytes(graph_.groups[static_cast<std::size_t>(n.group)]);
    }

    static bool needs(const Window& w, const std::vector<int>& before) {
        return std::ranges::any_of(before, [&](int p) { return w.needs[static_cast<std::size_t>(p)]; });
    }

    void visit(int i) {
        const Node& n = node(i);
        const std::vector<int>& before = before_[static_cast<std::size_t>(i)];
        for (std::size_t w = 0; w < windows_.size();) {
            const bool needed = needs(windows_[w], before);
            const bool full = windows_[w].bytes >= limit(node(windows_[w].members.front()));
            const bool closes = is_message(n.kind) || (is_collective(n.kind) && needed) ||
                                (n.kind == Kind::compute && full) || n.kind == Kind::barrier;
            if (closes)
                close(w);
            else
                ++w;
        }
        if (may_join(i)) return join(i);
        bool later = false;
        for (Window& w : windows_) {
            if (!needs(w, before)) continue;
            w.needs[static_cast<std::size_t>(i)] = true;
            later = true;
        }
        // What it needs may have stepped back for a window that it does not need itself.
        if (later || std::ranges::any_of(before, [&](int p) { return is_deferred(p); })) return deferred_.push_back(i);
        nodes_.push_back(n);
    }
    bool is_deferred(int i) const { return std::ranges::binary_search(deferred_, i); }

    void join(int i) {
        const Node& n = node(i);
        // Deferred steps that it needs hold nothing of its own window: they only wait for others.
        auto window = std::ranges::find(windows_, key_of(n), &Window::key);
        if (window == windows_.end()) {
            windows_.push_back({key_of(n), {}, 0, std::vector<bool>(graph_.nodes.size())});
            window = std::prev(windows_.end());
        }
        window->members.push_back(i);
        window->bytes += bytes_of(n);
        window->needs[static_cast<std::size_t>(i)] = true;
        if (!settings_.in_place) return;
        places_[i] = nodes_.size();
        nodes_.push_back(n);
    }

    /// Behind all others, or at the place of the last of its members.
    void put(const Node& made, const std::vector<int>& members) {
        if (!settings_.in_place) return nodes_.push_back(made);
        std::set<std::size_t> at;
        for (const int i : members) at.insert(places_.at(i));
        nodes_[*at.rbegin()] = made;
        left_.insert(at.begin(), std::prev(at.end()));
    }

    void close(std::size_t index) {
        Window window = std::move(windows_[index]);
        windows_.erase(windows_.begin() + static_cast<std::ptrdiff_t>(index));
        std::ranges::stable_sort(window.members, {}, [&](int i) { return needed_at_[static_cast<std::size_t>(i)]; });
        const std::uint64_t most = limit(node(window.members.front()));
        std::vector<int> bucket;
        std::uint64_t bytes = 0;
        for (const int i : window.members) {
            if (!bucket.empty() && bytes + bytes_of(node(i)) > most) {
                emit(std::exchange(bucket, {}));
                bytes = 0;
            }
            bucket.push_back(i);
            bytes += bytes_of(node(i));
        }
        emit(bucket);
        std::vector<int> still;
        for (const int i : deferred_) {
            const bool waits =
                std::ranges::any_of(windows_, [&](const Window& w) { return w.needs[static_cast<std::size_t>(i)]; }) ||
                std::ranges::any_of(before_[static_cast<std::size_t>(i)],
                                    [&](int p) { return std::ranges::binary_search(still, p); });
            if (waits)
                still.push_back(i);
            else
                nodes_.push_back(node(i));
        }
        deferred_ = std::move(still);
    }

    void emit(const std::vector<int>& members) {
        Node whole = node(members.front());
        if (members.size() == 1) return put(whole, members);
        std::vector<std::string> parts;
        whole.asynchronous = false;
        for (const int i : members) {
            const Node& n = node(i);
            if (i != members.front()) {
                whole.pieces.push_back(n.pieces.front());
                if (n.site != node(members.front()).site && !n.site.empty() && parts.size() < 3)
                    parts.push_back(n.site);
            }
            if (n.asynchronous) over_.push_back(n.id);
        }
        for (const std::string& site : parts) whole.site += ", " + site;
        text_.push_back(fmt::format("{} calls became one: {}", members.size(), describe(graph_, whole)));
        put(whole, members);
    }

    const Graph& graph_;
    const Settings& settings_;
    std::vector<std::vector<int>> before_;
    std::vector<bool> could_block_;  ///< by position
    std::vector<int> needed_at_;     ///< by position, that of the first node that needs it
    std::vector<Window> windows_;
    std::vector<int> deferred_;  ///< ascending
    std::vector<int> over_;      ///< ids of asynchronous nodes that are done when their bucket is
    std::vector<Node> nodes_;
    std::map<int, std::size_t> places_;  ///< in place: of members, in nodes_
    std::set<std::size_t> left_;         ///< places of members that run at another's
    std::vector<std::string> text_;
};

}  // namespace

Ordinal Settings::ordinal_of(const Graph& graph, const Node& node) const {
    TUTTI_ASSERT(node.pieces.front().call >= 0);
    TUTTI_ASSERT(static_cast<std::size_t>(node.pieces.front().call) < ordinals.size());
    return {graph.groups[static_cast<std::size_t>(node.group)].name,
            ordinals[static_cast<std::size_t>(node.pieces.front().call)]};
}

bool Settings::keeps(const Graph& graph, const Node& node) const {
    if (keep.empty() || !is_collective(node.kind)) return false;
    const std::string& group = graph.groups[static_cast<std::size_t>(node.group)].name;
    return std::ranges::any_of(node.pieces, [&](const Piece& p) {
        return p.call >= 0 && keep.contains({group, ordinals[static_cast<std::size_t>(p.call)]});
    });
}

// 90 % of the bandwidth b has a message of p/(1-p) · latency · b bytes, with p = 0.9.
std::uint64_t Settings::bucket_bytes(const GroupInfo& group) const {
    if (options.bucket_bytes) return *options.bucket_bytes;
    constexpr double most = 64 << 20;
    if (group.us_per_byte <= 0) return static_cast<std::uint64_t>(most);
    return static_cast<std::uint64_t>(std::min(most, 9 * group.latency_us / group.us_per_byte));
}

Result make_buckets(const Graph& graph, const Settings& settings) {
    return Buckets(graph, settings).run();
}

}  // namespace tutti::graph
