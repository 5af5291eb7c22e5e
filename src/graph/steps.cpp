#include "graph/steps.hpp"

#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "graph/accesses.hpp"
#include "graph/value.hpp"
#include "operation/fingerprint.hpp"
#include "record/call_site.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace tutti::graph {
namespace {

using tutti::detail::Operation;

void run_moves(const std::vector<Move>& moves) {
    TUTTI_ASSERT(
        std::ranges::all_of(moves, [](const Move& m) { return m.bytes > 0 && m.to != nullptr && m.from != nullptr; }));
    for (const Move& m : moves) std::memmove(m.to, m.from, m.bytes);
}

// Moves whose both sides adjoin are one.
void add(std::vector<Move>& moves, std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes == 0 || to == from) return;
    if (!moves.empty()) {
        Move& last = moves.back();
        if (last.to + last.bytes == to && last.from + last.bytes == from) {
            last.bytes += bytes;
            return;
        }
    }
    moves.push_back({to, from, bytes});
}

class Builder {
 public:
    Builder(const Graph& graph, const Bindings& bindings, std::byte* arena)
        : graph_(graph), calls_(*graph.calls), bindings_(bindings), arena_(arena), begun_(graph.groups.size()) {
        TUTTI_ASSERT(graph.calls != nullptr);
        TUTTI_ASSERT(graph.arena < 0 || arena != nullptr);
    }

    std::vector<Step> steps() {
        std::vector<Step> steps;
        steps.reserve(graph_.nodes.size());
        std::map<int, std::size_t> started;  // by id
        for (const Node& node : graph_.nodes) {
            if (node.asynchronous) started[node.id] = steps.size();
            Step step = step_of(node);
            if (node.kind == Kind::wait) {
                const auto found = started.find(node.of);
                if (found == started.end())
                    throw InvalidArgument(fmt::format(
                        "instantiate: node {} waits for node {}, which is not asynchronous", node.id, node.of));
                step.started = found->second;
            }
            steps.push_back(std::move(step));
        }
        TUTTI_ASSERT(steps.size() == graph_.nodes.size());
        return steps;
    }

 private:
    std::byte* place(const Range& range) const {
        TUTTI_ASSERT(range.bytes == 0 || range.buffer < graph_.buffers.size());
        if (range.bytes == 0) return nullptr;
        if (static_cast<int>(range.buffer) == graph_.arena) return arena_ + range.offset;
        return bindings_.place(calls_.address(range), range.bytes);
    }

    Step step_of(const Node& node) {
        Step step;
        switch (node.kind) {
            case Kind::wait: step.kind = Step::Kind::wait; break;
            case Kind::copy: {
                const Range &from = node.pieces.front().reads.front(), &to = node.pieces.front().writes.front();
                add(step.after, place(to), place(from), to.bytes);
                break;
            }
            case Kind::compute: set_function(step, node); break;
            default:
                step.site = record::kept_call_site(node.site);
                step.kind = node.asynchronous ? Step::Kind::start : Step::Kind::call;
                step.plan = api::plan_of(operation_of(step, node));
        }
        return step;
    }

    void set_function(Step& step, const Node& node) const {
        TUTTI_ASSERT(node.kind == Kind::compute && node.pieces.size() == 1);
        const detail::CapturedCall& call = calls_.calls[static_cast<std::size_t>(node.pieces.front().call)];
        step.kind = Step::Kind::compute;
        step.function = &call;
        const auto moved = [&](const ConstTensorView& view, const Range& range) {
            if (view.element_count() == 0) return static_cast<std::byte*>(const_cast<void*>(view.data()));
            std::byte* const at = place(range);
            if (at != view.data() && !call.takes_views) {
                throw InvalidArgument(fmt::format(
                    "Executable.bind: {} uses the buffer: expected a function that takes its views, which could move",
                    describe(graph_, node)));
            }
            return at;
        };
        const Piece& p = node.pieces.front();
        TUTTI_ASSERT(p.reads.size() == call.reads.size() && p.writes.size() == call.writes.size());
        for (std::size_t i = 0; i < call.reads.size(); ++i) {
            const ConstTensorView& view = call.reads[i];
            step.reads.emplace_back(moved(view, p.reads[i]), shape_of(node, call, view, p.reads[i]), view.dtype());
        }
        for (std::size_t i = 0; i < call.writes.size(); ++i) {
            const TensorView& view = call.writes[i];
            step.writes.emplace_back(moved(view, p.writes[i]), shape_of(node, call, view, p.writes[i]), view.dtype());
        }
    }
    // Of a chunk as many rows, or elements, as it has.
    static Extents shape_of(const Node& node, const detail::CapturedCall& call, const ConstTensorView& view,
                            const Range& range) {
        if (range.bytes == view.byte_count()) return view.shape();
        if (call.elementwise) return Extents::of(static_cast<std::int64_t>(range.bytes / size_of(view.dtype())));
        std::vector<std::int64_t> shape(view.shape().begin(), view.shape().end());
        shape.front() = static_cast<std::int64_t>(node.rows);
        return shape;
    }

    api::PreparedOperation operation_of(Step& step, const Node& node) {
        TUTTI_ASSERT(is_communication(node.kind) && !node.pieces.empty());
        std::vector<api::PreparedOperation> parts;
        for (const Piece& p : node.pieces) parts.push_back(model_of(node, p));
        api::PreparedOperation whole = parts.front();
        if (parts.size() > 1) {
            whole = api::pack(parts);
            whole->begin = whole->finish = nullptr;
            set_moves(step, node, *whole);
        } else if (is_made_by_a_pass(node, node.pieces.front())) {
            move_into_place(step, node, *whole);
        }
        mark(node, *whole);
        whole->caller_goes_on = node.asynchronous;
        return whole;
    }

    // Of another kind than the captured one, or a chunk of it.
    bool is_made_by_a_pass(const Node& node, const Piece& piece) const {
        const Operation& captured = *calls_.calls[static_cast<std::size_t>(piece.call)].model;
        if (!captured.is_collective || node.opaque) return false;
        const engine::CollectiveCall& call = captured.call;
        if (static_cast<Kind>(call.collective) != node.kind) return true;
        const auto is_of = [&](const std::vector<Range>& ranges, std::uint64_t count) {
            return ranges.front().bytes == count * size_of(call.dtype);
        };
        if (!may_run_in_chunks(node.kind)) return false;
        using Extent = CollectiveTraits::Extent;
        const CollectiveTraits& traits = traits_of(node.kind);
        if (traits.output == Extent::whole) return !is_of(piece.writes, call.count);
        return !is_of(traits.output == Extent::own_block ? piece.writes : piece.reads,
                      call.count_of(captured.group->ranks().rank()));
    }

    // Its buffers are those of move_into_place().
    api::PreparedOperation made_by_a_pass(const Node& node, const Piece& piece) const {
        const Operation& captured = *calls_.calls[static_cast<std::size_t>(piece.call)].model;
        const ProcessGroup group(tutti::detail::group_of(captured).shared_from_this());
        const auto empty_for = [&](const std::vector<Range>& ranges) {
            return empty(node.dtype, Extents::of(static_cast<std::int64_t>(bytes_of(ranges) / size_of(node.dtype))));
        };
        const Tensor in = empty_for(piece.reads), out = empty_for(piece.writes);
        const AllReduceOptions options{.op = ReduceOp(node.op), .group = group, .timeout = captured.timeout};
        switch (node.kind) {
            case Kind::all_reduce: {
                const Range& r = piece.writes.front();
                return api::prepare(api::describe::all_reduce, TensorView(place(r), out.shape(), node.dtype), options);
            }
            case Kind::reduce_scatter:
                return api::prepare(api::describe::reduce_scatter_tensor, out.view(), in.view(), options);
            case Kind::all_gather:
                return api::prepare(api::describe::all_gather_into_tensor, out.view(), in.view(),
                                    {.group = group, .timeout = captured.timeout});
            default:
                throw InternalError(
                    fmt::format("instantiate: nobody makes {} of {}", describe(graph_, node), captured.name));
        }
    }
    static std::uint64_t bytes_of(const std::vector<Range>& ranges) {
        std::uint64_t bytes = 0;
        for (const Range& r : ranges) bytes += r.bytes;
        return bytes;
    }
    static bool adjoin(const std::vector<Range>& ranges) {
        for (std::size_t i = 1; i < ranges.size(); ++i) {
            if (ranges[i].buffer != ranges[i - 1].buffer || ranges[i].offset != ranges[i - 1].end()) return false;
        }
        return true;
    }

    /// Blocks of a call: where they lie now, and where they lay when it was captured.
    struct Ranges {
        const std::vector<Range>& now;
        const std::vector<Bytes>& captured;
    };

    // The captured operation, on today's buffers.
    api::PreparedOperation model_of(const Node& node, const Piece& piece) const {
        if (is_made_by_a_pass(node, piece)) return made_by_a_pass(node, piece);
        const Operation& captured = *calls_.calls[static_cast<std::size_t>(piece.call)].model;
        api::PreparedOperation model = captured.again();
        model->schedule.reset();
        if (node.opaque) {
            check_stays(node, piece);
            return model;
        }
        const Accesses at = accesses_of(captured);
        const auto shift = [&](const Ranges& ranges, auto& pointer) {
            for (std::size_t i = 0; i < ranges.now.size(); ++i) {
                if (ranges.now[i].bytes == 0) continue;
                const std::ptrdiff_t by = place(ranges.now[i]) - ranges.captured[i].at;
                pointer += by;
                check_together(node, ranges, by);
                return;
            }
        };
        const Ranges reads{piece.reads, at.reads}, writes{piece.writes, at.writes};
        if (!model->is_collective) {
            if (model->is_receive)
                shift(writes, model->transfer.target);
            else
                shift(reads, model->transfer.source);
            return model;
        }
        if (captured.call.in_place || captured.call.collective == Collective::all_reduce) {
            shift(piece.writes.empty() ? reads : writes, model->call.output);
            model->call.input = model->call.output;
        } else {
            shift(reads, model->call.input);
            shift(writes, model->call.output);
        }
        return model;
    }

    // Blocks lie at fixed distances from each other.
    void check_together(const Node& node, const Ranges& ranges, std::ptrdiff_t by) const {
        for (std::size_t i = 0; i < ranges.now.size(); ++i) {
            if (ranges.now[i].bytes > 0 && place(ranges.now[i]) - ranges.captured[i].at != by)
                throw InvalidArgument(
                    fmt::format("Executable.bind: {} uses blocks of one tensor, of which some would move: expected the "
                                "whole tensor",
                                describe(graph_, node)));
        }
    }
    void check_stays(const Node& node, const Piece& piece) const {
        for (const auto* list : {&piece.reads, &piece.writes}) {
            for (const Range& r : *list) {
                if (r.bytes > 0 && place(r) != calls_.address(r))
                    throw InvalidArgument(
                        fmt::format("Executable.bind: {} uses tensors that are not in one piece: expected contiguous "
                                    "ones, which could move",
                                    describe(graph_, node)));
            }
        }
    }

    // Around a call that a pass has made. An all_reduce works in place. Of the others, what lies in one piece stays
    // where it is, as far as the result does not lie in the input; the rest moves through scratch.
    void move_into_place(Step& step, const Node& node, Operation& call) {
        TUTTI_ASSERT(node.pieces.size() == 1);
        const std::vector<Range>&reads = node.pieces.front().reads, &writes = node.pieces.front().writes;
        if (node.kind == Kind::all_reduce)
            return add(step.before, place(writes.front()), place(reads.front()), writes.front().bytes);
        const bool copies_in = !adjoin(reads);
        const std::uint64_t bytes_in = copies_in ? bytes_of(reads) : 0;
        step.scratch = empty(uint8, Extents::of(static_cast<std::int64_t>(bytes_in + bytes_of(writes))));
        auto* at = static_cast<std::byte*>(step.scratch.raw_data());
        call.call.input = copies_in ? at : place(reads.front());
        call.call.output = at + bytes_in;
        for (const Range& r : reads) {
            if (!copies_in) break;
            add(step.before, at, place(r), r.bytes);
            at += r.bytes;
        }
        at = call.call.output;
        for (const Range& r : writes) {
            add(step.after, place(r), at, r.bytes);
            at += r.bytes;
        }
    }

    // As api::pack lays the pieces out: one after the other; of blocks, a rank's side by side.
    void set_moves(Step& step, const Node& node, Operation& whole) {
        const bool by_blocks = may_run_in_chunks(node.kind) && traits_of(node.kind).has_blocks();
        if (!by_blocks) {
            std::byte* at = whole.call.output;
            for (const Piece& p : node.pieces) {
                if (!p.reads.empty()) add(step.before, at, place(p.reads.front()), p.reads.front().bytes);
                if (!p.writes.empty()) add(step.after, place(p.writes.front()), at, p.writes.front().bytes);
                at += (p.reads.empty() ? p.writes : p.reads).front().bytes;
            }
            if (step.before.size() == 1 && node.kind == Kind::all_reduce) {  // they lie like that already
                whole.call.output = const_cast<std::byte*>(step.before.front().from);
                whole.call.input = whole.call.output;
                step.before.clear();
                step.after.clear();
            }
            return;
        }
        const bool gathers = node.kind == Kind::all_gather;
        std::byte* own = gathers ? const_cast<std::byte*>(whole.call.input) : whole.call.output;
        for (const Piece& p : node.pieces) {
            const Range& r = gathers ? p.reads.front() : p.writes.front();
            if (gathers)
                add(step.before, own, place(r), r.bytes);
            else
                add(step.after, place(r), own, r.bytes);
            own += r.bytes;
        }
        std::byte* all = gathers ? whole.call.output : const_cast<std::byte*>(whole.call.input);
        const std::size_t ranks = graph_.groups[static_cast<std::size_t>(node.group)].ranks.size();
        for (std::size_t block = 0; block < ranks; ++block) {
            for (const Piece& p : node.pieces) {
                const Range& r = (gathers ? p.writes : p.reads)[block];
                if (gathers)
                    add(step.after, place(r), all, r.bytes);
                else
                    add(step.before, all, place(r), r.bytes);
                all += r.bytes;
            }
        }
    }

    // The first collective of each group tells the others what passes made of this graph.
    void mark(const Node& node, Operation& operation) {
        if (!is_collective(node.kind)) return;
        const auto group = static_cast<std::size_t>(node.group);
        if (begun_[group] || !graph_.groups[group].changed) return;
        begun_[group] = true;
        operation.call.fingerprint =
            group::Fingerprint::pack_graph(operation.call.fingerprint, graph_.collectives_hash(group));
    }

    const Graph& graph_;
    const detail::CapturedCalls& calls_;
    const Bindings& bindings_;
    std::byte* arena_;
    std::vector<bool> begun_;
};

}  // namespace

void Step::run(std::vector<Step>& all) {
    TUTTI_ASSERT(kind != Kind::compute || function != nullptr);
    TUTTI_ASSERT(kind != Kind::wait || started < all.size());
    switch (kind) {
        case Kind::compute: return function->run(reads, writes);
        case Kind::copy: return run_moves(after);
        case Kind::call:
            run_moves(before);
            plan.run();
            return run_moves(after);
        case Kind::start:
            run_moves(before);
            work = plan.start();
            return;
        case Kind::wait: {
            Step& begun = all[started];
            std::exchange(begun.work, {}).wait();
            return run_moves(begun.after);
        }
    }
}

std::vector<Step> steps_of(const Graph& graph, const Bindings& bindings, std::byte* arena) {
    return Builder(graph, bindings, arena).steps();
}

}  // namespace tutti::graph
