// One collective that does the work of several short ones: their tensors, one after the other, in a temporary.
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "operation/fingerprint.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tutti::api {
namespace {

using Counts = std::vector<std::uint64_t>;

// Operation, dtype, operator and root of a fingerprint; its lower bits are counts.
constexpr int kind_shift = 36;

// Whether it has a number of elements for each rank's block.
bool has_counts(const Operation& o) {
    const CollectiveTraits& traits = traits_of(o.call.collective);
    return traits.has_blocks() && !traits.is_rooted();
}
bool reads_blocks(Collective collective) {
    return traits_of(collective).input == CollectiveTraits::Extent::all_blocks;
}
bool writes_blocks(Collective collective) {
    return traits_of(collective).output == CollectiveTraits::Extent::all_blocks;
}
std::uint64_t element_count(const Operation& o) {
    if (!has_counts(o)) return o.call.count;
    std::uint64_t sum = 0;
    for (int r = 0; r < o.group->ranks().size(); ++r) sum += o.call.count_of(r);
    return sum;
}

std::byte* bytes_in(Operation& whole, std::uint64_t bytes) {
    whole.temporaries.push_back(empty(uint8, Extents::of(static_cast<std::int64_t>(bytes))));
    return static_cast<std::byte*>(whole.temporaries.back().raw_data());
}
void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
}

// Copies the blocks of all ranks from the pieces to the pack, or back: the pack has a rank's blocks side by side.
template <class F>
void for_each_block(const std::vector<PreparedOperation>& pieces, F&& f) {
    TUTTI_ASSERT(!pieces.empty());
    const std::size_t element = size_of(pieces.front()->call.dtype);
    std::vector<std::uint64_t> offsets(pieces.size());
    std::uint64_t packed = 0;
    for (int r = 0; r < pieces.front()->group->ranks().size(); ++r) {
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const std::uint64_t bytes = pieces[i]->call.count_of(r) * element;
            f(*pieces[i], offsets[i], packed, bytes);
            offsets[i] += bytes;
            packed += bytes;
        }
    }
}

// The tensors of this rank alone, one after the other.
template <class F>
void for_each_own(const std::vector<PreparedOperation>& pieces, int rank, F&& f) {
    TUTTI_ASSERT(rank >= 0);
    std::uint64_t packed = 0;
    for (const PreparedOperation& piece : pieces) {
        const std::uint64_t bytes = piece->call.count_of(rank) * size_of(piece->call.dtype);
        f(*piece, packed, bytes);
        packed += bytes;
    }
}

}  // namespace

bool may_be_packed(const Operation& o) {
    const Collective c = o.call.collective;
    return o.is_collective && o.device.type == Device::Type::cpu && o.call.user == nullptr &&
           (c == Collective::all_reduce || c == Collective::broadcast || has_counts(o));
}

std::uint64_t packed_bytes(const Operation& o) {
    return element_count(o) * size_of(o.call.dtype);
}

std::uint64_t kind_of(const Operation& o) {
    TUTTI_ASSERT(o.is_collective);
    return o.call.fingerprint >> kind_shift;
}

PreparedOperation pack(const std::vector<PreparedOperation>& pieces) {
    TUTTI_ASSERT(!pieces.empty());
    const Operation& first = *pieces.front();
    const Collective collective = first.call.collective;
    const int rank = first.group->ranks().rank();
    auto whole = std::make_shared<Operation>();
    whole->name = first.name;
    whole->timeout = first.timeout;
    whole->group = first.group;
    whole->is_symmetric = first.is_symmetric;
    engine::CollectiveCall call = first.call;
    Counts counts(static_cast<std::size_t>(first.group->ranks().size()));
    std::uint64_t total = 0, count = 0;
    Counts said{pieces.size()};
    for (const PreparedOperation& piece : pieces) {
        TUTTI_ASSERT(kind_of(*piece) == kind_of(first) && piece->group == first.group);
        total += packed_bytes(*piece);
        said.push_back(piece->call.fingerprint);
        whole->timeout = std::max(whole->timeout, piece->timeout);
        count += piece->call.count;
        for (std::size_t r = 0; r < counts.size(); ++r) counts[r] += piece->call.count_of(static_cast<int>(r));
        whole->outputs.insert(whole->outputs.end(), piece->outputs.begin(), piece->outputs.end());
    }
    const std::uint64_t kind = kind_of(first);
    call.fingerprint = group::Fingerprint::pack(static_cast<int>(kind >> 23), static_cast<DType>((kind >> 18) & 31),
                                                static_cast<ReduceOp::Kind>((kind >> 14) & 15),
                                                static_cast<int>(kind & 16383) - 1, said);

    TUTTI_ASSERT(said.size() == pieces.size() + 1);
    std::byte* all = bytes_in(*whole, total);
    std::byte* own = all;
    if (has_counts(first)) {
        own = bytes_in(*whole, counts[static_cast<std::size_t>(rank)] * size_of(call.dtype));
        call.set_counts(counts);
        call.input = reads_blocks(collective) ? all : own;
        call.output = writes_blocks(collective) ? all : own;
    } else {
        call.in_place = true;
        call.set_count(count);
        call.input = call.output = all;
    }
    whole->set_call(call);
    const bool reads = collective != Collective::broadcast || rank == call.root;
    whole->begin = [pieces, all, own, collective, rank, reads] {
        for (const PreparedOperation& piece : pieces) {
            if (piece->begin) piece->begin();
        }
        if (reads_blocks(collective)) {
            for_each_block(pieces, [all](Operation& piece, std::uint64_t at, std::uint64_t packed, std::uint64_t n) {
                copy_bytes(all + packed, piece.call.input + at, n);
            });
        } else if (reads) {
            for_each_own(pieces, rank, [own](Operation& piece, std::uint64_t packed, std::uint64_t n) {
                copy_bytes(own + packed, piece.call.input, n);
            });
        }
    };
    whole->finish = [pieces, all, own, collective, rank] {
        if (writes_blocks(collective)) {
            for_each_block(pieces, [all](Operation& piece, std::uint64_t at, std::uint64_t packed, std::uint64_t n) {
                copy_bytes(piece.call.output + at, all + packed, n);
            });
        } else {
            for_each_own(pieces, rank, [own](Operation& piece, std::uint64_t packed, std::uint64_t n) {
                copy_bytes(piece.call.output, own + packed, n);
            });
        }
        for (const PreparedOperation& piece : pieces) {
            if (piece->finish) piece->finish();
        }
    };
    TUTTI_ASSERT(whole->timeout.count() > 0 && whole->call.fingerprint != 0);
    return whole;
}

PreparedOperation pack_all_reduce(const TensorList& tensors, const AllReduceOptions& o, std::uint64_t short_bytes,
                                  std::uint64_t pack_bytes) {
    if (tensors.size() < 2 || o.op.kind() == ReduceOp::Kind::premul_sum) return nullptr;
    const DType dtype = tensors.front().dtype();
    if (!is_supported(o.op.kind(), dtype)) return nullptr;
    constexpr int operation = static_cast<int>(Collective::all_reduce);
    std::int64_t total = 0;
    Counts said{tensors.size()};
    for (const TensorView& tensor : tensors) {
        const bool plain = tensor.dtype() == dtype && tensor.contiguous() && tensor.device().type == Device::Type::cpu;
        if (!plain || tensor.byte_count() > short_bytes) return nullptr;
        const std::int64_t count = tensor.element_count();
        total += count;
        said.push_back(group::Fingerprint::pack(operation, dtype, o.op.kind(), -1, static_cast<std::uint64_t>(count)));
    }
    if (total == 0 || static_cast<std::uint64_t>(total) * size_of(dtype) > pack_bytes) return nullptr;
    TUTTI_ASSERT(said.size() == tensors.size() + 1);
    const Tensor all = empty(dtype, Extents::of(total));
    PreparedOperation whole = prepare(describe::all_reduce, all.view(), o);
    whole->call.fingerprint = group::Fingerprint::pack(operation, dtype, o.op.kind(), -1, said);
    whole->outputs = tensors;
    whole->temporaries.push_back(all);
    whole->begin = [tensors, all] {
        std::byte* at = static_cast<std::byte*>(all.raw_data());
        for (const TensorView& tensor : tensors) {
            copy_bytes(at, static_cast<const std::byte*>(tensor.data()), tensor.byte_count());
            at += tensor.byte_count();
        }
    };
    whole->finish = [tensors, all] {
        const std::byte* at = static_cast<const std::byte*>(all.raw_data());
        for (const TensorView& tensor : tensors) {
            copy_bytes(static_cast<std::byte*>(tensor.data()), at, tensor.byte_count());
            at += tensor.byte_count();
        }
    };
    TUTTI_ASSERT(whole->call.count == static_cast<std::uint64_t>(total));
    return whole;
}

}  // namespace tutti::api
