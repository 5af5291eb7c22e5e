#include "api/detail.hpp"

#include "api/arguments.hpp"
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "operation/fingerprint.hpp"
#include "record/call_site.hpp"
#include "record/source_lines.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>

#include <execinfo.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tutti::api {
namespace {

using group::Fingerprint;

/// The call that a rank is about to make.
struct Announcement {
    std::string name;
    std::string device;                       ///< "cpu", "cuda"
    std::vector<std::uint64_t> fingerprints;  ///< of one collective, or of several that go together
    std::vector<std::int64_t> shape;
    std::int64_t count = -1;                      ///< elements of that shape; -1: there is none to compare
    std::vector<std::uint64_t> blocks;            ///< by rank, where they differ
    std::vector<std::uint64_t> sent, received{};  ///< all_to_all: the blocks for each rank and from it
};
TUTTI_OBJECT(Announcement, name, device, fingerprints, shape, count, blocks, sent, received);

// As PyTorch names them, whose messages these are.
std::string type_of(const std::string& name) {
#define TUTTI_COLLECTIVE_FUNCTION(ours, collective, tensors, options, torch, ...) \
    if (name == #ours) return #torch;
#include <tutti/collectives.def>
    return name;
}

void log_stack(const char* name) {
    if (env::get("TORCH_SHOW_CPP_STACKTRACES") != "1") return;
    std::array<void*, 64> frames{};
    const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
    record::SourceLines lines(std::chrono::milliseconds(500));
    std::string text = fmt::format("{} differs from what another rank calls; called from:", name);
    for (int i = 1; i < depth; ++i)
        text += fmt::format("\n  #{} {}", i, record::describe_call_site(frames[static_cast<std::size_t>(i)], &lines));
    TUTTI_ERROR("{}", text);
}

std::string describe(const Announcement& one) {
    std::string text = type_of(one.name);
    if (one.count >= 0) text += fmt::format(" of shape [{}]", fmt::join(one.shape, ", "));
    std::vector<std::string> calls;
    for (const std::uint64_t fingerprint : one.fingerprints) calls.push_back(Fingerprint::describe(fingerprint));
    if (calls != std::vector{one.name}) text += fmt::format(" ({})", fmt::join(calls, "; "));
    if (!one.blocks.empty()) text += fmt::format(", blocks of {}", one.blocks);
    if (one.device != "cpu") text += fmt::format(" on {}", one.device);
    return text;
}

/// The announcements of all ranks of a group, in which one rank makes `own`.
class Comparison {
 public:
    Comparison(const Group& group, std::vector<Announcement> all)
        : group_(group), own_(all[static_cast<std::size_t>(group.rank())]), all_(std::move(all)) {
        TUTTI_ASSERT(all_.size() == static_cast<std::size_t>(group.size()));
    }

    void run() const {
        for (std::size_t r = 1; r < all_.size(); ++r) {
            if (all_[r].name != all_[0].name) differ(r, type_of(all_[0].name), type_of(all_[r].name));
            if (all_[r].count != all_[0].count && all_[r].count >= 0 && all_[0].count >= 0) shapes_differ(r);
            if (all_[r].fingerprints != all_[0].fingerprints || all_[r].blocks != all_[0].blocks ||
                all_[r].device != all_[0].device)
                differ(r, describe(all_[0]), describe(all_[r]));
        }
        for (std::size_t from = 0; from < all_.size(); ++from) {
            for (std::size_t to = 0; to < all_[from].sent.size(); ++to) check_pair(from, to);
        }
    }

 private:
    int global(std::size_t rank) const { return group_.ranks().global(static_cast<int>(rank)); }
    [[noreturn]] void fail(std::size_t peer, const std::string& text) const {
        log_stack(own_.name.c_str());
        std::string sides;
        for (std::size_t r = 0; r < all_.size(); ++r)
            sides += fmt::format("\n  rank {}: {}", global(r), describe(all_[r]));
        throw CollectiveMismatch(text + sides, {.operation = own_.name,
                                                .group = group_.name(),
                                                .rank = group_.ranks().own_global(),
                                                .peer = global(peer)});
    }
    [[noreturn]] void differ(std::size_t peer, const std::string& first, const std::string& other) const {
        fail(peer, fmt::format("Detected mismatch between collectives on ranks. Rank {} is running collective: {}, but "
                               "rank {} is running collective: {}.",
                               global(0), first, global(peer), other));
    }
    [[noreturn]] void shapes_differ(std::size_t peer) const {
        fail(peer, fmt::format("Error when verifying shape tensors for collective {} on rank {}. This likely indicates "
                               "that input shapes into the collective are mismatched across ranks. Got shapes:  {}\n"
                               "[ torch.LongTensor{{{}}} ]",
                               type_of(own_.name), group_.ranks().own_global(), fmt::join(own_.shape, "\n "),
                               own_.shape.size()));
    }
    void check_pair(std::size_t from, std::size_t to) const {
        TUTTI_ASSERT(to < all_.size() && all_[from].sent.size() == all_.size());
        TUTTI_ASSERT(all_[to].received.size() == all_.size());
        const std::uint64_t sent = all_[from].sent[to], expected = all_[to].received[from];
        if (sent == expected) return;
        fail(to,
             fmt::format("Detected mismatch between collectives on ranks. {}: rank {} sends {} elements to rank {}, "
                         "which expects {}.",
                         type_of(own_.name), global(from), sent, global(to), expected));
    }

    const Group& group_;
    const Announcement own_;
    const std::vector<Announcement> all_;
};

void compare(Group& group, milliseconds timeout, const Announcement& own) {
    TUTTI_ASSERT(group.size() > 0);
    const ProcessGroup handle(group.shared_from_this());
    monitored_barrier({.group = handle, .timeout = timeout, .wait_all_ranks = true});
    Comparison(group, all_gather_object(own, {.group = handle, .timeout = timeout})).run();
}

// What can be read from any call.
Announcement announcement_of(const char* name, const engine::CollectiveCall& call, int ranks) {
    Announcement own{
        .name = name, .device = {}, .fingerprints = {call.fingerprint}, .shape = {}, .blocks = {}, .sent = {}};
    TUTTI_ASSERT(ranks > 0);
    own.blocks.assign(call.counts.begin(), call.counts.end());
    const CollectiveTraits::Extent input = traits_of(call.collective).input;
    if (input == CollectiveTraits::Extent::exchanged) {
        for (int peer = 0; peer < ranks; ++peer) {
            own.sent.push_back(call.sent_to(peer) / size_of(call.dtype));
            own.received.push_back(call.received_from(peer) / size_of(call.dtype));
        }
    } else if (input != CollectiveTraits::Extent::nothing && call.block_bytes != engine::CollectiveCall::different) {
        own.count = static_cast<std::int64_t>(call.count);
        own.shape = {own.count};
    }
    return own;
}

// The one tensor that has the elements that are counted, if there is one.
const ConstTensorView* counted(const Call& call, ConstTensorView& room) {
    const bool gathers = traits_of(call.collective).output == CollectiveTraits::Extent::all_blocks;
    if (gathers || call.target == nullptr) return call.source;
    return &(room = *call.target);
}

}  // namespace

void verify(const Call& call) {
    TUTTI_ASSERT(call.group != nullptr);
    if (call_recorder != nullptr) return;  // nothing is called yet
    Announcement own = announcement_of(call.name, call, call.group->size());
    ConstTensorView room;
    const ConstTensorView* const tensor = counted(call, room);
    if (own.count >= 0 && tensor != nullptr) own.shape.assign(tensor->shape().begin(), tensor->shape().end());
    const auto device_of = [&] {
        if (call.source != nullptr) return call.source->device().type;
        if (call.target != nullptr) return call.target->device().type;
        if (call.sources != nullptr) return call.sources->front().device().type;
        return call.targets != nullptr ? call.targets->front().device().type : Device::Type::cpu;
    };
    own.device = name_of(device_of());
    compare(*call.group, call.timeout, own);
}

void verify(const char* name, std::span<const PreparedOperation> operations) {
    TUTTI_ASSERT(!operations.empty());
    if (call_recorder != nullptr) return;
    Operation& first = *operations.front();
    Announcement own = announcement_of(name, first.call, detail::group_of(first).size());
    own.device = name_of(first.device.type);
    for (const PreparedOperation& later : operations.subspan(1)) own.fingerprints.push_back(later->call.fingerprint);
    compare(detail::group_of(first), first.timeout, own);
}

}  // namespace tutti::api
