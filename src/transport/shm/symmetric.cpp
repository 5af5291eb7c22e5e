#include "transport/shm/symmetric.hpp"

#include "core/assert.hpp"
#include "transport/shm/memory_file.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace tutti::transport {
namespace {

// The largest page that a machine of this kind has: some kernels for Arm have pages of 64 KB, and the parts have to
// begin with a page to be given back.
constexpr std::size_t symmetric_page = std::size_t{64} << 10;

// At the start of a segment; fresh pages are zero.
struct SegmentHead {
    std::atomic<std::uint32_t> let_go;
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

std::size_t stride_of(std::size_t part_bytes) {
    return (part_bytes + symmetric_page - 1) / symmetric_page * symmetric_page;
}
std::size_t segment_bytes(int ranks, std::size_t part_bytes) {
    TUTTI_ASSERT(ranks > 0);
    std::size_t parts = 0;
    if (part_bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()) / 2 ||
        __builtin_mul_overflow(stride_of(part_bytes), static_cast<std::size_t>(ranks), &parts) ||
        parts > static_cast<std::size_t>(std::numeric_limits<off_t>::max()) - symmetric_page) {
        throw DistBackendError(
            fmt::format("symmetric memory of {} x {} bytes: more than any machine has", ranks, part_bytes));
    }
    return symmetric_page + parts;
}

SegmentHead& head_of(std::byte* base) {
    return *reinterpret_cast<SegmentHead*>(base);
}

}  // namespace

UniqueFd SymmetricSegment::create(int ranks, std::size_t part_bytes) {
    return make_memory_file("tutti-symmetric", segment_bytes(ranks, part_bytes));
}

SymmetricSegment::SymmetricSegment(const UniqueFd& fd, std::uint64_t id, int ranks, int own_rank,
                                   std::size_t part_bytes)
    : id_(id), ranks_(ranks), own_rank_(own_rank), part_bytes_(part_bytes), process_(::getpid()) {
    TUTTI_ASSERT(id >= 1);
    TUTTI_ASSERT(own_rank >= 0 && own_rank < ranks);
    const std::size_t bytes = segment_bytes(ranks, part_bytes);
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes) {
        throw DistBackendError(fmt::format(
            "symmetric memory of {} bytes: expected {}; do all ranks run the same version?", status.st_size, bytes));
    }
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (base == MAP_FAILED) {
        throw DistBackendError(fmt::format("cannot map {} bytes of symmetric memory: {}", bytes, std::strerror(errno)));
    }
    base_ = static_cast<std::byte*>(base);
}

SymmetricSegment::~SymmetricSegment() {
    ::munmap(base_, segment_bytes(ranks_, part_bytes_));
}

std::byte* SymmetricSegment::part(int rank) const noexcept {
    TUTTI_ASSERT(rank >= 0 && rank < ranks_);
    return base_ + symmetric_page + static_cast<std::size_t>(rank) * stride_of(part_bytes_);
}

void SymmetricSegment::let_go() noexcept {
    if (::getpid() != process_) return;
    const auto before = head_of(base_).let_go.fetch_add(1, std::memory_order_acq_rel);
    if (before + 1 == static_cast<std::uint32_t>(ranks_)) {
        ::madvise(part(0), static_cast<std::size_t>(ranks_) * stride_of(part_bytes_), MADV_REMOVE);
    }
}

bool SymmetricSegment::abandoned() const noexcept {
    return head_of(base_).let_go.load(std::memory_order_acquire) == static_cast<std::uint32_t>(ranks_);
}

Place::Place(std::uint64_t segment, std::uint64_t offset) {
    if (segment >> (63 - offset_bits) != 0 || offset >> offset_bits != 0) return;
    TUTTI_ASSERT(segment < std::uint64_t{1} << (63 - offset_bits));
    bits_ = mark | segment << offset_bits | offset;
    TUTTI_ASSERT(this->segment() == segment && this->offset() == offset);
}

void SymmetricMemory::add(std::shared_ptr<SymmetricSegment> segment) {
    TUTTI_ASSERT(segment != nullptr);
    TUTTI_ASSERT(!by_id_.contains(segment->id()));
    for (auto it = by_address_.begin(); it != by_address_.end();) {
        if (it->second->abandoned()) {
            by_id_.erase(it->second->id());
            it = by_address_.erase(it);
        } else {
            ++it;
        }
    }
    by_id_[segment->id()] = segment.get();
    const std::byte* at = segment->own_part();
    by_address_[at] = std::move(segment);
    TUTTI_ASSERT(by_address_.size() == by_id_.size());
}

Place SymmetricMemory::find(const std::byte* at, std::size_t bytes) const {
    auto after = by_address_.upper_bound(at);
    if (at == nullptr || after == by_address_.begin()) return {};
    const auto& [base, segment] = *--after;
    const auto offset = static_cast<std::size_t>(at - base);
    if (offset > segment->part_bytes() || bytes > segment->part_bytes() - offset) return {};
    if (!Place(segment->id(), segment->part_bytes())) return {};  // not all of it can be named
    return {segment->id(), offset};
}

std::byte* SymmetricMemory::address(Place place, int rank, std::size_t bytes) const {
    TUTTI_ASSERT(rank >= 0);
    const auto found = place ? by_id_.find(place.segment()) : by_id_.end();
    if (found == by_id_.end()) return nullptr;
    const SymmetricSegment& segment = *found->second;
    if (place.offset() > segment.part_bytes() || bytes > segment.part_bytes() - place.offset()) return nullptr;
    return segment.part(rank) + place.offset();
}

}  // namespace tutti::transport
