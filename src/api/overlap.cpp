// Calls of one launch whose memory overlaps, the same tensor twice or one's output another's input: each gets copies of
// its own, so that all are read before any is written.
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"

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

std::vector<Piece> pieces_of(const std::vector<PreparedOperation>& operations) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        const Operation& o = *operations[i];
        if (o.reads.first != nullptr) pieces.push_back({o.reads, i, false});
        for (const TensorView& view : o.outputs) {
            if (view.element_count() > 0) pieces.push_back({range_of(view), i, !is_send(o)});
        }
    }
    TUTTI_ASSERT(std::ranges::all_of(pieces, [](const Piece& p) { return p.range.first <= p.range.second; }));
    std::ranges::sort(pieces, {}, [](const Piece& p) { return p.range.first; });
    return pieces;
}

// Of each call, whether it touches memory that another one writes.
std::vector<bool> overlapping(const char* name, const std::vector<PreparedOperation>& operations) {
    std::vector<bool> found(operations.size());
    std::vector<const Piece*> reaching;  // those before that end behind where we are
    const std::vector<Piece> pieces = pieces_of(operations);
    for (const Piece& piece : pieces) {
        std::erase_if(reaching, [&](const Piece* p) { return p->range.second <= piece.range.first; });
        for (const Piece* other : reaching) {
            if (other->call == piece.call || !(other->written || piece.written)) continue;
            const auto [first, second] = std::minmax(other->call, piece.call);
            TUTTI_ASSERT(second < operations.size());
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

// Parts of a buffer that a call reads or writes.
using Stretches = std::vector<engine::Stretch>;

std::uint64_t end_of(const Stretches& stretches) {
    std::uint64_t end = 0;
    for (const engine::Stretch& s : stretches) end = std::max(end, s.at + s.bytes);
    return end;
}
void copy_stretches(std::byte* to, const std::byte* from, const Stretches& stretches) {
    TUTTI_ASSERT(stretches.empty() || end_of(stretches) == 0 || (to != nullptr && from != nullptr));
    for (const engine::Stretch& s : stretches) std::memcpy(to + s.at, from + s.at, s.bytes);
}

// Memory of the operation's own instead of the program's; null where it is its own already, or there is none.
std::byte* own_memory(Operation& o, const std::byte* memory, std::uint64_t bytes) {
    const auto holds = [&](const Tensor& t) {
        const auto* first = static_cast<const std::byte*>(t.raw_data());
        return memory >= first && memory < first + t.byte_count();
    };
    if (memory == nullptr || bytes == 0 || std::ranges::any_of(o.temporaries, holds)) return nullptr;
    o.temporaries.push_back(empty(uint8, Extents::of(static_cast<std::int64_t>(bytes))));
    TUTTI_ASSERT(o.temporaries.back().byte_count() == bytes);
    return static_cast<std::byte*>(o.temporaries.back().raw_data());
}
void read_apart(Operation& o, const std::byte*& input, const Stretches& stretches) {
    std::byte* own = own_memory(o, input, end_of(stretches));
    if (own == nullptr) return;
    copy_stretches(own, input, stretches);
    input = own;
}
std::function<void()> write_apart(Operation& o, std::byte*& output, Stretches stretches, bool is_read) {
    std::byte* own = own_memory(o, output, end_of(stretches));
    if (own == nullptr) return {};
    std::byte* result = std::exchange(output, own);
    if (is_read) copy_stretches(own, result, stretches);
    return [own, result, stretches = std::move(stretches)] { copy_stretches(result, own, stretches); };
}

// The operation reads now, and writes when the caller says so.
std::function<void()> apart(const PreparedOperation& operation) {
    Operation& o = *operation;
    TUTTI_ASSERT(!o.done());
    if (o.begin) std::exchange(o.begin, nullptr)();
    std::function<void()> write;
    if (o.is_collective) {
        const int rank = o.group->ranks().rank(), ranks = o.group->ranks().size();
        if (!o.call.in_place) read_apart(o, o.call.input, o.call.input_parts(rank, ranks));
        write = write_apart(o, o.call.output, o.call.output_parts(rank, ranks), o.call.in_place);
        if (o.call.in_place) o.call.input = o.call.output;
    } else if (o.is_receive) {
        write = write_apart(o, o.transfer.target, {{0, o.transfer.bytes}}, true);
    } else {
        read_apart(o, o.transfer.source, {{0, o.transfer.bytes}});
    }
    // `finish` has functions that unpack temporaries.
    return [operation, write = std::move(write), unpack = std::exchange(o.finish, nullptr)] {
        if (write) write();
        if (unpack) unpack();
    };
}

}  // namespace

Range range_of(const ConstTensorView& view) {
    const auto* data = static_cast<const std::byte*>(view.data());
    TUTTI_ASSERT(view.data() != nullptr || view.element_count() == 0);
    if (view.contiguous()) return {data, data + view.byte_count()};
    const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
    std::int64_t first = 0, last = 0;
    for (std::size_t i = 0; i < view.shape().size(); ++i) {
        const std::int64_t reach = (view.shape()[i] - 1) * view.strides()[i] * element;
        (reach < 0 ? first : last) += reach;
    }
    TUTTI_ASSERT(first <= 0 && last >= 0);
    return {data + first, data + last + element};
}

std::vector<std::function<void()>> set_apart(const char* name, const std::vector<PreparedOperation>& operations) {
    const std::vector<bool> found = overlapping(name, operations);
    TUTTI_ASSERT(found.size() == operations.size());
    std::vector<std::function<void()>> results;
    for (std::size_t i = 0; i < operations.size(); ++i) {
        if (found[i]) results.push_back(apart(operations[i]));
    }
    return results;
}

}  // namespace tutti::api
