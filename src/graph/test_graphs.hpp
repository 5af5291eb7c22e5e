// Graphs for tests, written down call by call, without ranks that run.
#pragma once

#include "graph/passes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::graph::test {

/// One rank's program in a group of `size` ranks.
class Program {
 public:
    Program(int rank, int size, Determinism determinism = Determinism::fast) : rank_(rank), size_(size) {
        GroupInfo group{
            .name = "world", .rank = rank, .determinism = determinism, .latency_us = 10, .us_per_byte = 0.01};
        for (int r = 0; r < size; ++r) group.ranks.push_back(r);
        graph_.groups.push_back(group);
    }

    Range buffer(std::uint64_t bytes) {
        graph_.buffers.push_back(bytes);
        return {static_cast<std::uint32_t>(graph_.buffers.size() - 1), 0, bytes};
    }
    static Range part(const Range& whole, std::uint64_t offset, std::uint64_t bytes) {
        return {whole.buffer, whole.offset + offset, bytes};
    }
    /// Equal blocks, one for each rank.
    std::vector<Range> blocks(const Range& whole) const {
        std::vector<Range> list;
        const std::uint64_t each = whole.bytes / static_cast<std::uint64_t>(size_);
        for (int r = 0; r < size_; ++r) list.push_back(part(whole, each * static_cast<std::uint64_t>(r), each));
        return list;
    }
    void temporary(const Range& range) { graph_.temporaries.push_back(range); }

    int compute(const std::vector<Range>& reads, const std::vector<Range>& writes, double cost_us = 1) {
        Node& n = add(Kind::compute, reads, writes);
        n.name = "step " + std::to_string(n.id);
        n.cost_us = cost_us;
        return n.id;
    }
    int all_reduce(const Range& range, ReduceOp op = ReduceOp::sum, DType dtype = float32) {
        return collective(Kind::all_reduce, {range}, {range}, dtype, op);
    }
    int broadcast(const Range& range, int root) {
        const bool is_root = rank_ == root;
        return collective(Kind::broadcast, is_root ? std::vector{range} : std::vector<Range>(),
                          is_root ? std::vector<Range>() : std::vector{range}, float32, ReduceOp::sum, root);
    }
    int all_gather(const Range& own, const Range& whole) {
        return collective(Kind::all_gather, {own}, blocks(whole), float32, ReduceOp::sum);
    }
    int reduce_scatter(const Range& whole, const Range& own, ReduceOp op = ReduceOp::sum, DType dtype = float32) {
        return collective(Kind::reduce_scatter, blocks(whole), {own}, dtype, op);
    }
    int all_to_all(const Range& from, const Range& to) {
        return collective(Kind::all_to_all, blocks(from), blocks(to), float32, ReduceOp::sum);
    }
    int barrier() { return collective(Kind::barrier, {}, {}, uint8, ReduceOp::sum); }
    int send(const Range& range, int peer, int tag = 0) {
        Node& n = add(Kind::send, {range}, {});
        n.group = 0;
        n.peer = peer;
        n.tag = tag;
        return n.id;
    }
    int receive(const Range& range, int peer, int tag = 0) {
        Node& n = add(Kind::receive, {}, {range});
        n.group = 0;
        n.peer = peer;
        n.tag = tag;
        return n.id;
    }
    int reduce(const Range& range, int root, ReduceOp op = ReduceOp::sum) {
        const bool is_root = rank_ == root;
        return collective(Kind::reduce, {range}, is_root ? std::vector{range} : std::vector<Range>(), float32, op,
                          root);
    }
    int scan(const Range& range) { return collective(Kind::scan, {range}, {range}, float32, ReduceOp::sum); }
    int exscan(const Range& range) {
        const std::vector<Range> written = rank_ == 0 ? std::vector<Range>() : std::vector{range};
        return collective(Kind::exscan, {range}, written, float32, ReduceOp::sum);
    }
    /// Lets the compute step `id` run in chunks of `count` rows.
    void rows(int id, std::uint64_t count, std::vector<std::uint32_t> whole = {}) {
        graph_.nodes[static_cast<std::size_t>(id)].rows = count;
        graph_.nodes[static_cast<std::size_t>(id)].whole = std::move(whole);
    }
    /// Marks node `id`: its buffers cannot be replaced.
    void fix(int id) { graph_.nodes[static_cast<std::size_t>(id)].fixed = true; }
    /// Makes node `id` asynchronous; call wait(id) later.
    void start(int id) { graph_.nodes[static_cast<std::size_t>(id)].asynchronous = true; }
    void wait(int id) {
        Node n;
        n.kind = Kind::wait;
        n.id = static_cast<int>(graph_.nodes.size());
        n.of = id;
        graph_.nodes.push_back(n);
    }

    int rank() const { return rank_; }
    int size() const { return size_; }
    const Graph& graph() const { return graph_; }

 private:
    Node& add(Kind kind, const std::vector<Range>& reads, const std::vector<Range>& writes) {
        Node n;
        n.kind = kind;
        n.id = static_cast<int>(graph_.nodes.size());
        n.site = "line " + std::to_string(n.id);
        n.pieces.push_back({reads, writes, static_cast<std::uint64_t>(kind), calls_++});
        graph_.nodes.push_back(n);
        return graph_.nodes.back();
    }
    int collective(Kind kind, const std::vector<Range>& reads, const std::vector<Range>& writes, DType dtype,
                   ReduceOp op, int root = -1) {
        Node& n = add(kind, reads, writes);
        n.group = 0;
        n.dtype = dtype;
        n.op = op.kind();
        n.root = root;
        return n.id;
    }

    int rank_, size_;
    Graph graph_;
    int calls_ = 0;
};

/// The graphs of all ranks; calls program(Program&) for each rank.
template <class F>
std::vector<Graph> graphs_of(int size, F&& program, Determinism determinism = Determinism::fast) {
    std::vector<Graph> graphs;
    for (int r = 0; r < size; ++r) {
        Program p(r, size, determinism);
        program(p);
        graphs.push_back(p.graph());
    }
    return graphs;
}

inline Settings settings_of(const Graph& graph, OptimiseOptions options = {}) {
    return {std::move(options), ordinals(graph), {}, {}};
}
inline std::vector<Kind> kinds_of(const Graph& graph) {
    std::vector<Kind> kinds;
    for (const Node& n : graph.nodes) kinds.push_back(n.kind);
    return kinds;
}
inline std::vector<Graph> graphs_in(const std::vector<Optimised>& results) {
    std::vector<Graph> graphs;
    for (const Optimised& o : results) graphs.push_back(o.graph);
    return graphs;
}
/// Runs a pass over all ranks' graphs.
inline std::vector<Graph> each(const std::vector<Graph>& graphs, Result (*pass)(const Graph&, const Settings&),
                               const OptimiseOptions& options = {}) {
    std::vector<Graph> results;
    for (const Graph& g : graphs) {
        results.push_back(pass(g, settings_of(g, options)).graph);
        mark_changed_groups(g, results.back());
    }
    return results;
}
inline ::testing::AssertionResult says(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "\"" << part << "\" is not in:\n" << text;
}
inline std::string faults_of(const Proof& proof) {
    std::string text;
    for (const std::string& fault : proof.faults) text += fault + "\n";
    return text;
}

}  // namespace tutti::graph::test
