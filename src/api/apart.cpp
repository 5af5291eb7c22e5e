// Calls of one launch whose memory overlaps, the same tensor twice or one's output another's input: each gets copies of
// its own, so that all are read before any is written.
#include "api/collected.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tutti::api {
namespace {

struct Piece {
    Range range;
    std::size_t call;
    bool written;
};

bool is_send(const Operation& o) {
    return !o.is_collective && !o.is_receive;
}

std::vector<Piece> pieces_of(const std::vector<Prepared>& operations) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const Operation& o = *operations[i];
        if (o.reads.first != nullptr) pieces.push_back({o.reads, i, false});
        for (const TensorView& view : o.outputs) {
            if (view.element_count() > 0) pieces.push_back({range_of(view), i, !is_send(o)});
        }
    }
    std::ranges::sort(pieces, {}, [](const Piece& p) { return p.range.first; });
    return pieces;
}

// Which calls touch what another one writes.
std::vector<bool> overlapping(const char* name, const std::vector<Prepared>& operations) {
    std::vector<bool> found(operations.size());
    std::vector<const Piece*> reaching;  // those before that end behind where we are
    const std::vector<Piece> pieces = pieces_of(operations);
    for (const Piece& piece : pieces) {
        std::erase_if(reaching, [&](const Piece* p) { return p->range.second <= piece.range.first; });
        for (const Piece* other : reaching) {
            if (other->call == piece.call || !(other->written || piece.written)) continue;
            const auto [first, second] = std::minmax(other->call, piece.call);
            if (operations[first]->device.type != Device::Type::cpu) {
                throw InvalidArgument(fmt::format(
                    "{}: calls {} and {} overlap on {}, and one of them writes: expected tensors that do not "
                    "overlap",
                    name, first, second, to_string(operations[first]->device)));
            }
            found[first] = found[second] = true;
        }
        reaching.push_back(&piece);
    }
    return found;
}

struct Sizes {
    std::uint64_t input = 0, output = 0;
};
Sizes bytes_of(const algorithm::Request& r) {
    const auto sum = [&](const std::vector<std::uint64_t>& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}) * r.element_bytes;
    };
    const auto own = [&] { return r.counts[static_cast<std::size_t>(r.rank)] * r.element_bytes; };
    switch (r.collective) {
        case Collective::all_gather:
        case Collective::gather: return {own(), sum(r.counts)};
        case Collective::scatter:
        case Collective::reduce_scatter: return {sum(r.counts), own()};
        case Collective::all_to_all: return {sum(r.send_counts), sum(r.receive_counts)};
        default: return {r.count * r.element_bytes, r.count * r.element_bytes};
    }
}

// Memory of the operation's own instead of the program's; null where it is its own already, or there is none.
std::byte* own_memory(Operation& o, const std::byte* memory, std::uint64_t bytes) {
    const auto holds = [&](const Tensor& t) {
        const auto* first = static_cast<const std::byte*>(t.raw_data());
        return memory >= first && memory < first + t.byte_count();
    };
    if (memory == nullptr || bytes == 0 || std::ranges::any_of(o.temporaries, holds)) return nullptr;
    o.temporaries.push_back(empty(uint8, Extents::of(static_cast<std::int64_t>(bytes))));
    return static_cast<std::byte*>(o.temporaries.back().raw_data());
}
void read_apart(Operation& o, std::byte*& input, std::uint64_t bytes) {
    std::byte* own = own_memory(o, input, bytes);
    if (own == nullptr) return;
    std::memcpy(own, input, bytes);
    input = own;
}
std::function<void()> write_apart(Operation& o, std::byte*& output, std::uint64_t bytes, bool is_read) {
    std::byte* own = own_memory(o, output, bytes);
    if (own == nullptr) return {};
    std::byte* result = std::exchange(output, own);
    if (is_read) std::memcpy(own, result, bytes);
    return [own, result, bytes] { std::memcpy(result, own, bytes); };
}

// It reads now, and writes when the caller says so.
std::function<void()> apart(const Prepared& operation) {
    Operation& o = *operation;
    if (o.begin) std::exchange(o.begin, nullptr)();
    std::function<void()> write;
    if (o.is_collective) {
        const Sizes bytes = bytes_of(o.request);
        read_apart(o, o.operands.input, bytes.input);
        write = write_apart(o, o.operands.output, bytes.output,
                            o.request.in_place || o.request.collective == Collective::broadcast);
    } else if (o.is_receive) {
        write = write_apart(o, o.transfer.target, o.transfer.bytes, true);
    } else {
        auto* source = const_cast<std::byte*>(o.transfer.source);
        read_apart(o, source, o.transfer.bytes);
        o.transfer.source = source;
    }
    // `finish` has functions that unpack what is in temporaries.
    return [operation, write = std::move(write), unpack = std::exchange(o.finish, nullptr)] {
        if (write) write();
        if (unpack) unpack();
    };
}

}  // namespace

Range range_of(const ConstTensorView& view) {
    const auto* data = static_cast<const std::byte*>(view.data());
    if (view.contiguous()) return {data, data + view.byte_count()};
    const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
    std::int64_t first = 0, last = 0;
    for (std::size_t i = 0; i < view.shape().size(); ++i) {
        const std::int64_t reach = (view.shape()[i] - 1) * view.strides()[i] * element;
        (reach < 0 ? first : last) += reach;
    }
    return {data + first, data + last + element};
}

std::vector<std::function<void()>> set_apart(const char* name, const std::vector<Prepared>& operations) {
    const std::vector<bool> found = overlapping(name, operations);
    std::vector<std::function<void()>> results;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        if (found[i]) results.push_back(apart(operations[i]));
    }
    return results;
}

}  // namespace tutti::api
