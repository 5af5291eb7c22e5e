// The value of a graph: groups, nodes and their memory, edges; proofs and the passes' changes.
#include "parts.hpp"

#include <tutti/graph.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

namespace tutti::python {
namespace {

using namespace graph;

std::string_view name_of(Hazard hazard) {
    switch (hazard) {
        case Hazard::read_after_write: return "read_after_write";
        case Hazard::write_after_read: return "write_after_read";
        case Hazard::write_after_write: return "write_after_write";
        case Hazard::wait: return "wait";
    }
    return "";
}

std::string_view name_of(Determinism determinism) {
    switch (determinism) {
        case Determinism::fast: return "fast";
        case Determinism::run_to_run: return "run_to_run";
        case Determinism::layout_invariant: return "layout_invariant";
    }
    return "";
}

void bind_parts(nb::module_& m) {
    nb::class_<Range>(m, "GraphRange", "Bytes of a buffer.")
        .def_ro("buffer", &Range::buffer)
        .def_ro("offset", &Range::offset)
        .def_ro("bytes", &Range::bytes)
        .def("__repr__", [](const Range& r) { return fmt::format("{}+{}:{}", r.buffer, r.offset, r.bytes); });
    nb::class_<Piece>(m, "GraphPiece", "One call: a captured one, or one of those that a pass has put together.")
        .def_ro("reads", &Piece::reads)
        .def_ro("writes", &Piece::writes)
        .def_ro("fingerprint", &Piece::fingerprint, "The part of it that ranks compare.")
        .def_ro("call", &Piece::call, "The number of the captured call, in the program's order.");
    nb::class_<GroupInfo>(m, "GraphGroup", "The ranks of a group, as the graph of one of them knows them.")
        .def_ro("name", &GroupInfo::name)
        .def_ro("ranks", &GroupInfo::ranks, "Ranks of the world, by rank in the group.")
        .def_ro("rank", &GroupInfo::rank, "This one's, in the group.")
        .def_prop_ro(
            "determinism", [](const GroupInfo& g) { return name_of(g.determinism); },
            "fast, run_to_run or layout_invariant.")
        .def_ro("latency_us", &GroupInfo::latency_us, "Predicted for an all_reduce of few bytes.")
        .def_ro("us_per_byte", &GroupInfo::us_per_byte, "Microseconds that each further byte adds.")
        .def_ro("changed", &GroupInfo::changed, "Whether passes have made other collectives of the group's.");
    nb::class_<Node>(m, "GraphNode", "A captured call, a compute step, a wait, or a copy that a pass has made.")
        .def_prop_ro(
            "kind", [](const Node& n) { return to_string(n.kind); },
            "all_reduce and the other collectives, send, receive, compute, copy, wait.")
        .def_ro("id", &Node::id, "Unique in its graph.")
        .def_ro("of", &Node::of, "Of a wait: the id of the node that it waits for; otherwise -1.")
        .def_ro("group", &Node::group, "Of communication: the place in Graph.groups; otherwise -1.")
        .def_prop_ro("dtype", [](const Node& n) { return tutti::to_string(n.dtype); })
        .def_prop_ro("op", [](const Node& n) { return tutti::to_string(n.op); })
        .def_ro("root", &Node::root, "In the group; -1: none.")
        .def_ro("peer", &Node::peer, "Of messages: the rank in the world; otherwise -1.")
        .def_ro("tag", &Node::tag)
        .def_ro("asynchronous", &Node::asynchronous, "Whether a wait follows.")
        .def_ro("opaque", &Node::opaque, "Whether its arrays are not in one piece; passes leave it as it is.")
        .def_ro("cost_us", &Node::cost_us, "Of a compute step, as the program says.")
        .def_ro("name", &Node::name, "Of a compute step.")
        .def_ro("site", &Node::site, "The call site: file, line and function.")
        .def_ro("pieces", &Node::pieces)
        .def("__repr__",
             [](const Node& n) { return fmt::format("<Node {}: {} at {}>", n.id, to_string(n.kind), n.site); });
    nb::class_<Edge>(m, "GraphEdge", "Why one node has to come after another.")
        .def_ro("from_", &Edge::from, "Position in Graph.nodes.")
        .def_ro("to", &Edge::to, "Position in Graph.nodes.")
        .def_prop_ro(
            "hazard", [](const Edge& e) { return name_of(e.hazard); },
            "read_after_write, write_after_read, write_after_write or wait.")
        .def("__repr__", [](const Edge& e) { return fmt::format("{}->{} {}", e.from, e.to, name_of(e.hazard)); });
}

void bind_results(nb::module_& m) {
    nb::class_<Proof>(m, "GraphProof", "What a proof found; true where it holds.")
        .def_ro("faults", &Proof::faults, "A sentence each; empty: it holds.")
        .def("__bool__", [](const Proof& p) { return static_cast<bool>(p); })
        .def("__repr__", [](const Proof& p) { return fmt::format("<Proof of {} faults>", p.faults.size()); });
    nb::class_<Change>(m, "GraphChange", "What one pass did.")
        .def_prop_ro(
            "name", [](const Change& c) { return c.pass; }, "The pass.")
        .def_ro("text", &Change::text, "A sentence each; empty: it found nothing.")
        .def_ro("before_us", &Change::before_us, "The predicted time of a replay before it.")
        .def_ro("after_us", &Change::after_us, "The same after it.")
        .def_ro("before_bytes", &Change::before_bytes, "The most bytes that its buffers hold at a time, before it.")
        .def_ro("after_bytes", &Change::after_bytes, "The same after it.")
        .def_ro("after", &Change::after, "With stages=True the graph after it; otherwise a graph without nodes.");
    nb::class_<Optimised>(m, "OptimisedGraph", "A graph with what the passes did.")
        .def_ro("graph", &Optimised::graph)
        .def_ro("changes", &Optimised::changes)
        .def("to_text", &Optimised::to_text, "The changes in words.");
}

}  // namespace

void bind_graph_values(nb::module_& m) {
    bind_parts(m);
    nb::class_<Graph>(
        m, "Graph",
        "A step of one rank's program, in the order in which it will run: a value, which does not change.\n"
        "It keeps the arrays and functions of its calls alive.")
        .def_ro("groups", &Graph::groups)
        .def_ro("buffers", &Graph::buffers, "Their sizes in bytes.")
        .def_ro("temporaries", &Graph::temporaries, "Nobody reads these after the graph.")
        .def_ro("nodes", &Graph::nodes)
        .def_prop_ro("changed", &Graph::changed, "Whether passes have changed the collectives of one of its groups.")
        .def("edges", &Graph::edges, "Exact, without those that follow from others of the same range.")
        .def("hash", &Graph::hash,
             "Equal in every run and process for equal graphs; addresses and call sites do not count.")
        .def("collectives_hash", &Graph::collectives_hash, nb::arg("group"),
             "Of the collectives on one of its groups, by place, with what passes made of them: ranks whose graphs\n"
             "agree have equal ones.")
        .def("to_text", &Graph::to_text, "A line for each group, buffer and node.")
        .def_static("from_text", &Graph::from_text, nb::arg("text"),
                    "What to_text() wrote: it can be proved and optimised, not run. InvalidArgument with the line.")
        .def("predicted_us", &Graph::predicted_us, "Microseconds that one replay takes, as predicted.")
        .def("peak_bytes", &Graph::peak_bytes, "The most bytes that its buffers hold at a time.")
        .def(
            "__eq__",
            [](const Graph& self, nb::handle other) {
                return nb::isinstance<Graph>(other) && self == nb::cast<const Graph&>(other);
            },
            nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__", [](const Graph& g) { return static_cast<Py_hash_t>(g.hash() >> 1); })
        .def("__repr__", [](const Graph& g) {
            return fmt::format("<Graph of {} nodes, {:.1f} us>", g.nodes.size(), g.predicted_us());
        });
    bind_results(m);
}

}  // namespace tutti::python
