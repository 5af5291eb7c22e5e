#include "graph/bindings.hpp"

#include "core/assert.hpp"
#include "graph/value.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tutti::graph {

Bindings::Bindings(const Graph& graph) {
    TUTTI_ASSERT(graph.calls != nullptr);
    TUTTI_ASSERT(graph.calls->buffers.size() <= graph.buffers.size());
    const std::vector<std::byte*>& begins = graph.calls->buffers;
    for (std::size_t b = 0; b < begins.size(); ++b) buffers_.push_back({begins[b], begins[b] + graph.buffers[b]});
    const auto mark = [&](const std::vector<Range>& ranges, bool writes) {
        for (const Range& r : ranges) {
            if (r.buffer >= buffers_.size()) continue;  // the arena
            buffers_[r.buffer].used = true;
            buffers_[r.buffer].written = buffers_[r.buffer].written || writes;
        }
    };
    for (const Node& n : graph.nodes) {
        mark(reads_of(n), false);
        mark(writes_of(n), true);
    }
    std::ranges::sort(buffers_, {}, &Buffer::begin);
}

void Bindings::move(std::span<const Binding> bindings) {
    TUTTI_ASSERT(std::ranges::none_of(moved_, &Moved::in_this_call));
    const std::vector<Moved> before = moved_;
    for (const auto& [captured, replacement] : bindings) {
        if (captured.element_count() > 0) move(captured, replacement, before);
    }
    for (Moved& m : moved_) m.in_this_call = false;
    check_apart();
}

// A tensor is named by where it is now; only if nothing is there, by where it was captured.
void Bindings::move(const ConstTensorView& captured, const TensorView& replacement, const std::vector<Moved>& before) {
    TUTTI_ASSERT(captured.byte_count() == replacement.byte_count());
    TUTTI_ASSERT(before.size() <= moved_.size());
    const auto* const at = static_cast<const std::byte*>(captured.data());
    const std::uint64_t bytes = captured.byte_count();
    auto* const now = static_cast<std::byte*>(replacement.data());
    bool found = false;
    const auto move_to_now = [&](Moved& m) {
        if (m.in_this_call)
            throw InvalidArgument(
                fmt::format("Executable.bind: two bindings name one tensor, captured is {} at {}: "
                            "expected one for each",
                            captured.to_string(), captured.data()));
        m.now = now;
        m.in_this_call = found = true;
    };
    for (std::size_t i = 0; i < before.size(); ++i) {
        if (before[i].now == at && before[i].bytes == bytes) move_to_now(moved_[i]);
    }
    const auto overlaps = [&](const Moved& m) { return at < m.end() && m.begin < at + bytes; };
    const auto known = std::ranges::find_if(moved_, overlaps);
    const bool is_same = known != moved_.end() && known->begin == at && known->bytes == bytes;
    const bool has_moved = known != moved_.end();
    const bool is_captured =
        std::ranges::any_of(buffers_, [&](const Buffer& b) { return at < b.end && b.begin < at + bytes; });
    if (is_captured && !has_moved) {
        moved_.push_back({at, bytes, now, true});
        return;
    }
    if (found) return;
    if (is_same) return move_to_now(*known);
    if (has_moved)
        throw InvalidArgument(
            fmt::format("Executable.bind: captured is {} at {}, of which a part has been bound already: expected the "
                        "same tensor, or its replacement",
                        captured.to_string(), captured.data()));
    throw InvalidArgument(
        fmt::format("Executable.bind: captured is {} at {}, which no node of the graph uses: expected a tensor of the "
                    "capture, or the replacement of one",
                    captured.to_string(), captured.data()));
}

// The order of nodes is right for the memory of the capture: what one writes, and another uses, was in one place there.
void Bindings::check_apart() const {
    TUTTI_ASSERT(std::ranges::is_sorted(buffers_, {}, &Buffer::begin));
    struct Part {
        const std::byte* begin;
        const std::byte* end;
        bool written;
    };
    std::vector<Part> parts;
    for (const Buffer& b : buffers_) {
        if (!b.used) continue;
        std::vector<Moved> within;
        for (const Moved& m : moved_) {
            if (m.begin < b.end && b.begin < m.end()) within.push_back(m);
        }
        std::ranges::sort(within, {}, &Moved::begin);
        const std::byte* at = b.begin;
        for (const Moved& m : within) {
            const std::byte *begin = std::max(b.begin, m.begin), *end = std::min(b.end, m.end());
            TUTTI_ASSERT(begin < end);
            if (at < begin) parts.push_back({at, begin, b.written});
            parts.push_back({m.now + (begin - m.begin), m.now + (end - m.begin), b.written});
            at = end;
        }
        if (at < b.end) parts.push_back({at, b.end, b.written});
    }
    std::ranges::sort(parts, {}, &Part::begin);
    const std::byte *end = nullptr, *written_end = nullptr;
    for (const Part& p : parts) {
        if (p.begin < (p.written ? end : written_end))
            throw InvalidArgument(
                fmt::format("Executable.bind: memory at {} would stand for two tensors of the graph, of which it "
                            "writes one: expected replacements of their own (a list of bindings moves several at once)",
                            static_cast<const void*>(p.begin)));
        end = std::max(end, p.end);
        if (p.written) written_end = std::max(written_end, p.end);
    }
}

std::byte* Bindings::place(const std::byte* at, std::uint64_t bytes) const {
    TUTTI_ASSERT(bytes > 0);
    for (const Moved& m : moved_) {
        if (at >= m.end() || m.begin >= at + bytes) continue;
        if (at < m.begin || at + bytes > m.end())
            throw InvalidArgument(fmt::format(
                "Executable.bind: a node's tensor of {} bytes lies in the bound one only in part: expected a "
                "bound tensor that holds it",
                bytes));
        return m.now + (at - m.begin);
    }
    return const_cast<std::byte*>(at);
}

}  // namespace tutti::graph
