#include "nccl/host_request.hpp"

#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>

namespace tutti::nccl {
namespace {

using Counts = std::vector<std::uint64_t>;

constexpr std::size_t alignment = 64;  // of the parts of a piece's memory

std::uint64_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}
std::uint64_t end_of(const Counts& counts, const Counts& offsets) {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] > 0) end = std::max(end, offsets[i] + counts[i]);
    }
    return end;
}
bool are_equal(const Counts& counts) {
    return std::ranges::adjacent_find(counts, std::ranges::not_equal_to()) == counts.end();
}
std::vector<std::int64_t> as_sizes(const Counts& counts) {
    return {counts.begin(), counts.end()};
}

// Views of a request's host memory.
class Views {
 public:
    explicit Views(const BackendRequest& r) : r_(r), element_(size_of(r.dtype)) {}

    /// Of a function that works in place: the output, with the input in it; on a rank without a result the input, which
    /// is only read then.
    TensorView in_place(int rank) const {
        if (!traits_of(*collective_of(r_.call)).writes(rank, r_.root)) return at(r_.input, 0, r_.count);
        if (r_.input != r_.output && r_.count > 0) std::memcpy(r_.output, r_.input, r_.count * element_);
        return output(r_.count);
    }
    TensorView output(std::uint64_t count) const { return at(r_.output, 0, count); }
    ConstTensorView input(std::uint64_t count) const { return at(r_.input, 0, count); }

    TensorList outputs(const Counts& counts, const Counts& offsets) const {
        TensorList list;
        for (std::size_t i = 0; i < counts.size(); ++i) {
            list.push_back(r_.outputs.empty() ? at(r_.output, offsets[i], counts[i]) : at(r_.outputs[i], 0, counts[i]));
        }
        return list;
    }
    ConstTensorList inputs(const Counts& counts, const Counts& offsets) const {
        ConstTensorList list;
        for (std::size_t i = 0; i < counts.size(); ++i)
            list.push_back(r_.inputs.empty() ? at(r_.input, offsets[i], counts[i]) : at(r_.inputs[i], 0, counts[i]));
        return list;
    }

 private:
    TensorView at(const void* data, std::uint64_t offset, std::uint64_t count) const {
        if (count == 0) return TensorView(nullptr, Extents::of(0), r_.dtype);
        auto* first = static_cast<std::byte*>(const_cast<void*>(data)) + offset * element_;
        return TensorView(first, Extents::of(static_cast<std::int64_t>(count)), r_.dtype);
    }

    const BackendRequest& r_;
    const std::size_t element_;
};

// The beginnings of blocks that lie one after the other.
Counts one_after_the_other(const Counts& counts) {
    Counts offsets(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::uint64_t{0});
    return offsets;
}

}  // namespace

// The functions of one tensor in place, without a root, differ in their name alone; the others have cases of their own.
#define CASE_TensorInPlace(name) \
    case BackendCall::name:      \
        return async::name(views.in_place(group.rank()), {.op = r.op, .group = group, .timeout = r.timeout});
#define CASE_TensorAndRoot(name)
#define CASE_TensorFromTensor(name)
#define CASE_TensorFromList(name)
#define CASE_TensorFromRoot(name)
#define CASE_TensorToRoot(name)
#define CASE_TensorOfRoot(name)
#define CASE_ListFromTensor(name)
#define CASE_ListToRoot(name)
#define CASE_ListFromList(name)
#define CASE_NoTensors(name)
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, ...) CASE_##tensors(name)

Work start_on_host_group(const ProcessGroup& host_group, const BackendRequest& r) {
    const Views views(r);
    const auto size = static_cast<std::size_t>(host_group.size());
    const bool is_root = r.root == host_group.rank();
    const auto& group = host_group;
    const Counts even(size, r.count);
    switch (r.call) {
#include <tutti/collectives.def>
        case BackendCall::broadcast:
            return async::broadcast(views.output(r.count), {.group = group, .group_src = r.root, .timeout = r.timeout});
        case BackendCall::reduce:
            return async::reduce(views.in_place(group.rank()),
                                 {.op = r.op, .group = group, .group_dst = r.root, .timeout = r.timeout});
        case BackendCall::all_gather: {
            const ConstTensorView mine = views.input(r.counts[static_cast<std::size_t>(group.rank())]);
            if (!r.outputs.empty())
                return async::all_gather(views.outputs(r.counts, {}), mine, {.group = group, .timeout = r.timeout});
            const TensorView all = views.output(total(r.counts));
            if (are_equal(r.counts))
                return async::all_gather_into_tensor(all, mine, {.group = group, .timeout = r.timeout});
            return async::all_gather_v(
                all, mine, {.output_split_sizes = as_sizes(r.counts), .group = group, .timeout = r.timeout});
        }
        case BackendCall::gather:
            return async::gather(views.input(r.count),
                                 is_root ? views.outputs(even, one_after_the_other(even)) : TensorList{},
                                 {.group = group, .group_dst = r.root, .timeout = r.timeout});
        case BackendCall::scatter:
            return async::scatter(views.output(r.count),
                                  is_root ? views.inputs(even, one_after_the_other(even)) : ConstTensorList{},
                                  {.group = group, .group_src = r.root, .timeout = r.timeout});
        case BackendCall::reduce_scatter: {
            const TensorView mine = views.output(r.counts[static_cast<std::size_t>(group.rank())]);
            if (!r.inputs.empty())
                return async::reduce_scatter(mine, views.inputs(r.counts, {}),
                                             {.op = r.op, .group = group, .timeout = r.timeout});
            const ConstTensorView all = views.input(total(r.counts));
            if (are_equal(r.counts))
                return async::reduce_scatter_tensor(mine, all, {.op = r.op, .group = group, .timeout = r.timeout});
            return async::reduce_scatter_v(
                mine, all, {.input_split_sizes = as_sizes(r.counts), .op = r.op, .group = group, .timeout = r.timeout});
        }
        case BackendCall::all_to_all:
            if (!r.inputs.empty() || !r.outputs.empty())
                return async::all_to_all(views.outputs(r.receive_counts, r.receive_offsets),
                                         views.inputs(r.send_counts, r.send_offsets),
                                         {.group = group, .timeout = r.timeout});
            return async::all_to_all_v(views.output(end_of(r.receive_counts, r.receive_offsets)),
                                       views.input(end_of(r.send_counts, r.send_offsets)),
                                       {.send_counts = as_sizes(r.send_counts),
                                        .send_offsets = as_sizes(r.send_offsets),
                                        .receive_counts = as_sizes(r.receive_counts),
                                        .receive_offsets = as_sizes(r.receive_offsets),
                                        .group = group,
                                        .timeout = r.timeout});
        case BackendCall::gather_v:
            return async::gather_v(views.input(r.send_counts[static_cast<std::size_t>(r.root)]),
                                   views.output(end_of(r.receive_counts, r.receive_offsets)),
                                   {.receive_counts = as_sizes(r.receive_counts),
                                    .receive_offsets = as_sizes(r.receive_offsets),
                                    .group = group,
                                    .group_dst = r.root,
                                    .timeout = r.timeout});
        case BackendCall::scatter_v:
            return async::scatter_v(views.output(r.receive_counts[static_cast<std::size_t>(r.root)]),
                                    views.input(end_of(r.send_counts, r.send_offsets)),
                                    {.send_counts = as_sizes(r.send_counts),
                                     .send_offsets = as_sizes(r.send_offsets),
                                     .group = group,
                                     .group_src = r.root,
                                     .timeout = r.timeout});
        case BackendCall::barrier: return async::barrier({.group = group, .timeout = r.timeout});
        case BackendCall::send:
        case BackendCall::receive: break;
    }
    throw InternalError("by host: " + std::string(to_string(r.call)) + " is not a collective");
}

void Piece::place(std::byte* memory) noexcept {
    request.input = input_at == nowhere ? nullptr : memory + input_at;
    request.output = output_at == nowhere ? nullptr : memory + output_at;
}

class Cutter {
 public:
    Cutter(const BackendRequest& request, int rank, int size, std::size_t piece_bytes)
        : r_(request),
          rank_(static_cast<std::size_t>(rank)),
          size_(static_cast<std::size_t>(size)),
          is_root_(request.root == rank),
          element_(size_of(request.dtype)),
          piece_bytes_(piece_bytes) {}

    std::vector<Piece> cut() const {
        switch (r_.call) {
            case BackendCall::all_gather:
            case BackendCall::reduce_scatter: return blocks(r_.counts);
            case BackendCall::gather:
            case BackendCall::scatter: return blocks(Counts(size_, r_.count));
            case BackendCall::gather_v:
            case BackendCall::scatter_v:
            case BackendCall::all_to_all: return {exchange()};
            case BackendCall::barrier: return {like_whole()};
            default: return each(r_.count, r_.count, [&](auto first, auto count) { return flat(first, count); });
        }
    }

 private:
    // Pieces have equal length, so that two ranks that disagree about the length disagree in a piece that both have.
    template <class Make>
    std::vector<Piece> each(std::uint64_t length, std::uint64_t elements_in_all, Make make) const {
        const std::uint64_t wanted = (elements_in_all * element_ + piece_bytes_ - 1) / piece_bytes_;
        const std::uint64_t number = std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(length, 1));
        const std::uint64_t step = std::max<std::uint64_t>((length + number - 1) / number, 1);
        std::vector<Piece> pieces;
        for (std::uint64_t first = 0; first == 0 || first < length; first += step)
            pieces.push_back(make(first, std::min(step, length - first)));
        return pieces;
    }

    Piece like_whole() const {
        Piece piece;
        piece.request.call = r_.call;
        piece.request.name = r_.name;
        piece.request.sequence = r_.sequence;
        piece.request.dtype = r_.dtype;
        piece.request.op = r_.op;
        piece.request.in_rank_order = r_.in_rank_order;
        piece.request.root = r_.root;
        piece.request.timeout = r_.timeout;
        return piece;
    }

    Piece flat(std::uint64_t first, std::uint64_t count) const {
        Piece piece = like_whole();
        piece.request.count = count;
        piece.bytes = count * element_;
        const bool gives = r_.call != BackendCall::broadcast || is_root_;
        const bool gets = traits_of(*collective_of(r_.call)).writes(static_cast<int>(rank_), r_.root) &&
                          (r_.call != BackendCall::broadcast || !is_root_);
        const void* given = r_.call == BackendCall::broadcast ? r_.output : r_.input;
        if (gives) add(piece.in, given, first, 0, count);
        if (gets) add(piece.out, r_.output, first, 0, count);
        if (r_.call != BackendCall::broadcast) piece.input_at = 0;
        if (gets || r_.call == BackendCall::broadcast) piece.output_at = 0;
        return piece;
    }

    // One block of each rank on one side (`many`, which gather and scatter have on the root alone), and this rank's own
    // on the other.
    std::vector<Piece> blocks(const Counts& counts) const {
        const std::uint64_t largest = *std::ranges::max_element(counts);
        return each(largest, total(counts) + largest,
                    [&](auto first, auto count) { return part_of_blocks(counts, first, count); });
    }
    Piece part_of_blocks(const Counts& counts, std::uint64_t first, std::uint64_t longest) const {
        const bool gathers = r_.call == BackendCall::all_gather || r_.call == BackendCall::gather;
        const bool has_root = r_.call == BackendCall::gather || r_.call == BackendCall::scatter;
        const Counts offsets = one_after_the_other(counts);
        Piece piece = like_whole();
        std::vector<Piece::Copy>& many = gathers ? piece.out : piece.in;
        std::vector<Piece::Copy>& own = gathers ? piece.in : piece.out;
        Counts parts(size_);
        std::size_t at = 0;
        for (std::size_t i = 0; i < size_; ++i) {
            parts[i] = counts[i] > first ? std::min(longest, counts[i] - first) : 0;
            if (has_root && !is_root_) continue;
            if (gathers)
                add_block(many, r_.outputs, r_.output, i, offsets[i], first, at, parts[i]);
            else
                add_block(many, r_.inputs, r_.input, i, offsets[i], first, at, parts[i]);
            at += parts[i] * element_;
        }
        const std::size_t own_at = aligned(at);
        add(own, gathers ? r_.input : r_.output, first, own_at, parts[rank_]);
        piece.bytes = own_at + parts[rank_] * element_;
        const std::size_t many_at = has_root && !is_root_ ? Piece::nowhere : 0;
        piece.input_at = gathers ? own_at : many_at;
        piece.output_at = gathers ? many_at : own_at;
        if (has_root)
            piece.request.count = parts[rank_];
        else
            piece.request.counts = std::move(parts);
        return piece;
    }

    Piece exchange() const {
        Piece piece = like_whole();
        BackendRequest& host = piece.request;
        host.send_counts = r_.send_counts;
        host.receive_counts = r_.receive_counts;
        host.send_offsets = one_after_the_other(r_.send_counts);
        host.receive_offsets = one_after_the_other(r_.receive_counts);
        piece.input_at = 0;
        piece.output_at = aligned(total(r_.send_counts) * element_);
        piece.bytes = piece.output_at + total(r_.receive_counts) * element_;
        for (std::size_t i = 0; i < size_; ++i) {
            const std::uint64_t from = r_.inputs.empty() ? r_.send_offsets[i] : 0;
            const std::uint64_t to = r_.outputs.empty() ? r_.receive_offsets[i] : 0;
            add_block(piece.in, r_.inputs, r_.input, i, from, 0, host.send_offsets[i] * element_, r_.send_counts[i]);
            add_block(piece.out, r_.outputs, r_.output, i, to, 0, piece.output_at + host.receive_offsets[i] * element_,
                      r_.receive_counts[i]);
        }
        return piece;
    }

    // The address of block `i`: in the list, or else `offset` elements behind `whole`.
    template <class Pointer, class List>
    void add_block(std::vector<Piece::Copy>& copies, const List& list, Pointer whole, std::size_t i,
                   std::uint64_t offset, std::uint64_t first, std::size_t at, std::uint64_t count) const {
        if (list.empty())
            add(copies, whole, offset + first, at, count);
        else
            add(copies, list[i], first, at, count);
    }
    void add(std::vector<Piece::Copy>& copies, const void* data, std::uint64_t first, std::size_t at,
             std::uint64_t count) const {
        if (count == 0) return;
        auto* device = static_cast<std::byte*>(const_cast<void*>(data)) + first * element_;
        const std::size_t bytes = count * element_;
        if (!copies.empty()) {
            Piece::Copy& last = copies.back();
            if (last.device + last.bytes == device && last.at + last.bytes == at) {
                last.bytes += bytes;
                return;
            }
        }
        copies.push_back({device, at, bytes});
    }
    static std::size_t aligned(std::size_t at) { return (at + alignment - 1) / alignment * alignment; }

    const BackendRequest& r_;
    const std::size_t rank_, size_;
    const bool is_root_;
    const std::size_t element_, piece_bytes_;
};

std::vector<Piece> cut(const BackendRequest& request, int rank, int size, std::size_t piece_bytes) {
    return Cutter(request, rank, size, piece_bytes).cut();
}

}  // namespace tutti::nccl
