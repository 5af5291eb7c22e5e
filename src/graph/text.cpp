// The text form of a graph, written and read.
#include "graph/text.hpp"
#include "core/settings.hpp"
#include "core/text.hpp"
#include "graph/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tutti::graph {
namespace {

std::string in_quotes(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c == '\n' ? ' ' : c;
    }
    return result + '"';
}
std::string text_of(const std::vector<Range>& ranges) {
    std::string text;
    for (const Range& r : ranges) text += fmt::format(" {}+{}:{}", r.buffer, r.offset, r.bytes);
    return text;
}

/// The words of one line.
class Line {
 public:
    Line(std::string_view text, const std::string& origin, int number)
        : text_(text), origin_(origin), number_(number) {}

    [[noreturn]] void refuse(std::string_view expected) const {
        throw InvalidArgument(fmt::format("{}: line {}, column {}: expected {}", origin_, number_, at_ + 1, expected));
    }
    bool done() {
        while (at_ < text_.size() && text_[at_] == ' ') ++at_;
        return at_ == text_.size();
    }
    /// The next word; empty at the end of the line.
    std::string_view word() {
        if (done()) return {};
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != ' ') ++at_;
        return text_.substr(begin, at_ - begin);
    }
    std::string_view peek() {
        const std::size_t before = at_;
        const std::string_view next = word();
        at_ = before;
        return next;
    }
    bool take(std::string_view expected) {
        if (peek() != expected) return false;
        word();
        return true;
    }
    void want(std::string_view expected) {
        if (!take(expected)) refuse(fmt::format("\"{}\"", expected));
    }
    std::string quote() {
        if (done() || text_[at_] != '"') refuse("a text in quotes");
        std::string result;
        for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
            result += text_[at_];
        }
        if (at_ == text_.size()) refuse("a closing quote");
        ++at_;
        return result;
    }
    template <class T>
    T number() {
        return to_number<T>(word());
    }
    template <class T>
    T number_below(T limit) {
        const T value = number<T>();
        if (value >= limit) refuse(fmt::format("a number below {}", limit));
        return value;
    }
    double microseconds() {
        const auto value = number<double>();
        if (!(value >= 0 && value <= cost_us_max)) refuse(fmt::format("microseconds from 0 to {:g}", cost_us_max));
        return value;
    }
    bool next_is_range() { return peek().find('+') != std::string_view::npos; }
    Range range(const std::vector<std::uint64_t>& buffers) {
        const std::string_view text = word();
        const auto plus = text.find('+'), colon = text.find(':');
        if (plus == std::string_view::npos || colon == std::string_view::npos || colon < plus)
            refuse("a range: BUFFER+OFFSET:BYTES");
        const Range r{to_number<std::uint32_t>(text.substr(0, plus)),
                      to_number<std::uint64_t>(text.substr(plus + 1, colon - plus - 1)),
                      to_number<std::uint64_t>(text.substr(colon + 1))};
        if (r.bytes == 0) return r;
        if (r.buffer >= buffers.size()) refuse(fmt::format("a buffer below {}", buffers.size()));
        if (r.bytes > buffers[r.buffer] || r.offset > buffers[r.buffer] - r.bytes)
            refuse(fmt::format("a range within the {} bytes of buffer {}", buffers[r.buffer], r.buffer));
        return r;
    }
    std::vector<Range> ranges(const std::vector<std::uint64_t>& buffers) {
        std::vector<Range> list;
        while (next_is_range()) list.push_back(range(buffers));
        return list;
    }

 private:
    template <class T>
    T to_number(std::string_view text) const {
        const auto value = number_in<T>(text);
        if (!value) refuse("a number");
        return *value;
    }
    std::string_view text_;
    const std::string& origin_;
    int number_;
    std::size_t at_ = 0;
};

Kind kind_of(Line& line, std::string_view name) {
    for (int k = 1; k <= static_cast<int>(Kind::wait); ++k) {
        if (to_string(static_cast<Kind>(k)) == name) return static_cast<Kind>(k);
    }
    line.refuse("the kind of a node (all_reduce, compute, …)");
}

GroupInfo read_group(Line& line) {
    GroupInfo g;
    g.name = line.quote();
    line.want("ranks");
    while (!line.done() && line.peek() != "rank") g.ranks.push_back(line.number<int>());
    line.want("rank");
    g.rank = line.number<int>();
    if (g.rank < 0 || g.rank >= static_cast<int>(g.ranks.size())) line.refuse("a rank of the group");
    const auto determinism = settings::determinism_named(line.word());
    if (!determinism) line.refuse("fast, run_to_run or layout_invariant");
    g.determinism = *determinism;
    line.want("latency");
    g.latency_us = line.microseconds();
    line.want("byte");
    g.us_per_byte = line.microseconds();
    g.changed = line.take("changed");
    return g;
}

void write_node(std::string& text, const Node& n) {
    text += fmt::format("node {} {}", n.id, to_string(n.kind));
    if (n.kind == Kind::wait) text += fmt::format(" of {}", n.of);
    if (is_communication(n.kind))
        text += fmt::format(" group {} {} {}", n.group, tutti::to_string(n.dtype), tutti::to_string(n.op));
    if (n.root >= 0) text += fmt::format(" root {}", n.root);
    if (is_message(n.kind)) text += fmt::format(" peer {} tag {}", n.peer, n.tag);
    if (n.asynchronous) text += " asynchronous";
    if (n.opaque) text += " opaque";
    if (n.fixed) text += " fixed";
    if (n.kind == Kind::compute) text += fmt::format(" {} cost {}", in_quotes(n.name), n.cost_us);
    if (n.rows > 0) text += fmt::format(" rows {}", n.rows);
    for (const std::uint32_t read : n.whole) text += fmt::format(" whole {}", read);
    if (!n.site.empty()) text += fmt::format(" at {}", in_quotes(n.site));
    for (const Piece& p : n.pieces) {
        text +=
            fmt::format(" piece {} {:x} reads{} writes{}", p.call, p.fingerprint, text_of(p.reads), text_of(p.writes));
    }
    text += '\n';
}

Piece read_piece(Line& line, const Graph& graph) {
    Piece p;
    p.call = line.number<int>();
    const auto fingerprint = number_in<std::uint64_t>(line.word(), 16);
    if (!fingerprint) line.refuse("a fingerprint in hexadecimal digits");
    p.fingerprint = *fingerprint;
    line.want("reads");
    p.reads = line.ranges(graph.buffers);
    line.want("writes");
    p.writes = line.ranges(graph.buffers);
    return p;
}

Node read_node(Line& line, const Graph& graph) {
    Node n;
    n.id = line.number<int>();
    n.kind = kind_of(line, line.word());
    if (n.kind == Kind::wait) {
        line.want("of");
        n.of = line.number<int>();
    }
    if (is_communication(n.kind)) {
        line.want("group");
        n.group = static_cast<int>(line.number_below<std::uint32_t>(static_cast<std::uint32_t>(graph.groups.size())));
        try {
            n.dtype = dtype_from_string(line.word());
            const std::string op(line.word());
            n.op =
                op == tutti::to_string(ReduceOp::Kind::user) ? ReduceOp::Kind::user : reduce_op_from_string(op).kind();
        } catch (const InvalidArgument& error) {
            line.refuse(error.what());
        }
    }
    if (line.take("root")) n.root = line.number<int>();
    if (line.take("peer")) n.peer = line.number<int>();
    if (line.take("tag")) n.tag = line.number<int>();
    n.asynchronous = line.take("asynchronous");
    n.opaque = line.take("opaque");
    n.fixed = line.take("fixed");
    if (n.kind == Kind::compute) {
        n.name = line.quote();
        line.want("cost");
        n.cost_us = line.microseconds();
        if (line.take("rows")) n.rows = line.number<std::uint64_t>();
        while (line.take("whole")) n.whole.push_back(line.number<std::uint32_t>());
    }
    if (line.take("at")) n.site = line.quote();
    while (line.take("piece")) n.pieces.push_back(read_piece(line, graph));
    return n;
}

/// A node's blocks are as many as its kind says.
void check_blocks(Line& line, const Graph& graph, const Node& n) {
    if (n.kind != Kind::wait && n.kind != Kind::barrier && n.pieces.empty()) line.refuse("a piece");
    if (n.kind == Kind::copy || is_message(n.kind)) {
        const Piece& p = n.pieces.front();
        const bool gives = n.kind == Kind::receive || !p.reads.empty(),
                   takes = n.kind == Kind::send || !p.writes.empty();
        if (n.pieces.size() != 1 || !gives || !takes)
            line.refuse(fmt::format("one piece with the range that {} reads or writes", to_string(n.kind)));
        if (n.kind == Kind::copy && p.reads.front().bytes != p.writes.front().bytes)
            line.refuse("a copy to a range of as many bytes");
    }
    if (n.rows > 0 && !has_rows(n)) line.refuse(fmt::format("one piece whose ranges have {} equal rows", n.rows));
    if (!is_collective(n.kind) || n.opaque) return;
    const GroupInfo& group = graph.groups[static_cast<std::size_t>(n.group)];
    const std::size_t all = group.ranks.size();
    if (n.root >= static_cast<int>(all)) line.refuse(fmt::format("a root below {}", all));
    const CollectiveTraits& traits = traits_of(n.kind);
    if (traits.is_rooted() && n.root < 0) line.refuse("a root");
    const auto blocks = [&](CollectiveTraits::Extent extent) -> std::size_t {
        using Extent = CollectiveTraits::Extent;
        if (extent == Extent::nothing) return 0;
        return extent == Extent::all_blocks || extent == Extent::exchanged ? all : 1;
    };
    const bool keeps = n.kind == Kind::broadcast && n.root == group.rank;  // the root's buffer stays as it is
    const std::size_t reads = traits.reads(group.rank, n.root) ? blocks(traits.input) : 0;
    const std::size_t writes = traits.writes(group.rank, n.root) && !keeps ? blocks(traits.output) : 0;
    for (const Piece& p : n.pieces) {
        if (p.reads.size() != reads || p.writes.size() != writes)
            line.refuse(
                fmt::format("a piece of {} with {} ranges to read and {} to write", to_string(n.kind), reads, writes));
    }
}

}  // namespace

std::string Graph::to_text() const {
    std::string text = "tutti graph 1\n";
    for (const GroupInfo& g : groups) {
        text += fmt::format("group {} ranks", in_quotes(g.name));
        for (const int rank : g.ranks) text += fmt::format(" {}", rank);
        text += fmt::format(" rank {} {} latency {} byte {}{}\n", g.rank, settings::name_of(g.determinism),
                            g.latency_us, g.us_per_byte, g.changed ? " changed" : "");
    }
    for (std::size_t b = 0; b < buffers.size(); ++b)
        text += fmt::format("buffer {}{}\n", buffers[b], static_cast<int>(b) == arena ? " arena" : "");
    for (const Range& r : temporaries) text += "temporary" + text_of({r}) + '\n';
    for (const Node& n : nodes) write_node(text, n);
    return text;
}

Graph Graph::from_text(std::string_view text) {
    return read_graph(text, "Graph.from_text", 1);
}

Graph read_graph(std::string_view text, const std::string& origin, int first_line) {
    Graph graph;
    for (int number = first_line; !text.empty(); ++number) {
        Line line(take_line(text), origin, number);
        if (number == first_line) {
            line.want("tutti");
            line.want("graph");
            line.want("1");
        } else if (line.take("group")) {
            graph.groups.push_back(read_group(line));
        } else if (line.take("buffer")) {
            graph.buffers.push_back(line.number<std::uint64_t>());
            if (line.take("arena")) graph.arena = static_cast<int>(graph.buffers.size()) - 1;
        } else if (line.take("temporary")) {
            graph.temporaries.push_back(line.range(graph.buffers));
        } else if (line.take("node")) {
            graph.nodes.push_back(read_node(line, graph));
            check_blocks(line, graph, graph.nodes.back());
        } else if (!line.done()) {
            line.refuse("group, buffer, temporary or node");
        }
        if (!line.done()) line.refuse("the end of the line");
    }
    return graph;
}

std::vector<Graph> read_graphs(std::string_view text, const std::string& origin) {
    constexpr std::string_view next_graph = "\ntutti graph ";
    std::vector<Graph> graphs;
    int line = 1;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(next_graph), text.size());
        graphs.push_back(read_graph(text.substr(0, end), origin, line));
        line += static_cast<int>(std::ranges::count(text.substr(0, end), '\n')) + 1;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (graphs.empty()) throw InvalidArgument(origin + ": it is empty: expected the line \"tutti graph 1\"");
    return graphs;
}

}  // namespace tutti::graph
