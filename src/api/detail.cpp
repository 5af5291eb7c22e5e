#include "api/detail.hpp"

#include "api/arguments.hpp"
#include "api/coalescing_internal.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
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
#include <vector>

namespace tutti::api {
namespace {

/// The call that a rank is about to make.
struct Announcement {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t count = -1;  // -1: nothing to compare
};
TUTTI_OBJECT(Announcement, name, shape, count);

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

std::string sides(const std::vector<Announcement>& all) {
    std::string text;
    for (std::size_t r = 0; r < all.size(); ++r) {
        text += fmt::format("\n  rank {}: {}", r, type_of(all[r].name));
        if (all[r].count >= 0) text += fmt::format(" of shape [{}]", fmt::join(all[r].shape, ", "));
    }
    return text;
}

}  // namespace

void verify(const char* name, const Compared& mine) {
    if (call_recorder != nullptr) return;  // nothing is called yet
    const std::shared_ptr<Group> group = group_of(mine.group, name);
    const ProcessGroup handle(group);
    monitored_barrier({.group = handle, .timeout = mine.timeout, .wait_all_ranks = true});
    Announcement own{name, {}, -1};
    if (mine.tensor) {
        own.shape.assign(mine.tensor->shape().begin(), mine.tensor->shape().end());
        own.count = mine.tensor->element_count();
    }
    const std::vector<Announcement> all = all_gather_object(own, {.group = handle, .timeout = mine.timeout});
    for (std::size_t r = 0; r < all.size(); ++r) {
        const ErrorContext context{
            .operation = name, .group = group->name(), .rank = group->rank(), .peer = static_cast<int>(r)};
        if (all[r].name != all[0].name) {
            log_stack(name);
            throw CollectiveMismatch(
                fmt::format("Detected mismatch between collectives on ranks. Rank 0 is running collective: {}, but "
                            "rank {} is running collective: {}.{}",
                            type_of(all[0].name), r, type_of(all[r].name), sides(all)),
                context);
        }
        if (all[r].count != all[0].count) {
            log_stack(name);
            throw CollectiveMismatch(
                fmt::format("Error when verifying shape tensors for collective {} on rank {}. This likely indicates "
                            "that input shapes into the collective are mismatched across ranks. Got shapes:  {}\n"
                            "[ torch.LongTensor{{{}}} ]{}",
                            type_of(name), group->rank(), fmt::join(own.shape, "\n "), own.shape.size(), sides(all)),
                context);
        }
    }
}

}  // namespace tutti::api
