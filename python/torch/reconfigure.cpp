// ProcessGroupTutti::reconfigure, which c10d's Backend has since PyTorch 2.14 for groups whose ranks change.
//
// The program carries the handles. Ranks that call it with the same handles and uuid meet in the group's store under
// "reconfigure/UUID", as the ranks of any group do (joining.hpp). A uuid serves once: its new rank 0 claims it.
#include "process_group.hpp"

#include "issue.hpp"
#include "joining.hpp"
#include "store.hpp"
#include "without_gil.hpp"

#ifdef C10D_BACKEND_HAS_RECONFIGURE

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <variant>

namespace tutti::torch {
namespace {

struct Member {
    std::uint64_t rank;  // among all
    std::string handle;
    auto operator<=>(const Member&) const = default;
};

constexpr std::string_view beginning = "tutti:";

std::optional<Member> member_of(const std::string& handle) {
    if (!handle.starts_with(beginning)) return std::nullopt;
    const char* const end = handle.data() + handle.size();
    Member member{0, handle};
    const auto [rest, error] = std::from_chars(handle.data() + beginning.size(), end, member.rank);
    if (error != std::errc() || rest == end || *rest != ':') return std::nullopt;
    return member;
}

// The members, by rank in the new group. `problem` says why the handles are wrong.
std::vector<Member> members_of(const c10d::ReconfigureOptions& options, std::string& problem) {
    std::vector<Member> members;
    const auto add = [&](const std::string& handle) {
        const std::optional<Member> member = member_of(handle);
        if (!member) {
            problem = c10::str("handles has \"", handle, "\"; expected what get_reconfigure_handle returns");
        } else if (std::ranges::find(members, member->rank, &Member::rank) != members.end()) {
            problem = c10::str("handles has rank ", member->rank, " twice; expected each rank once");
        } else {
            members.push_back(*member);
        }
    };
    std::visit([&](const auto& handles) { std::ranges::for_each(handles, add); }, options.handles);
    if (std::holds_alternative<std::unordered_set<c10d::ReconfigureHandle>>(options.handles)) {
        std::ranges::sort(members);
    }
    return members;
}

}  // namespace

c10d::ReconfigureHandle ProcessGroupTutti::get_reconfigure_handle() const {
    const auto& members = options_->global_ranks_in_group;
    const auto index = static_cast<std::size_t>(rank_);
    const std::uint64_t rank = members.size() > index ? members[index] : index;
    return c10::str(beginning, rank, ":", generation_, ":", nonce_);
}

WorkPtr ProcessGroupTutti::reconfigure(const c10d::ReconfigureOptions& options) {
    const WithoutGil guard;
    constexpr const char* name = "reconfigure";
    check_not_coalesced(name);
    if (!options.hints.empty() && options_->backend != "gloo") {
        refuse(name, c10::str("hints has \"", options.hints.begin()->first, "\"; expected none"));
    }
    std::string problem;
    const std::vector<Member> members = members_of(options, problem);
    if (!problem.empty()) refuse(name, problem);
    const std::string own = get_reconfigure_handle();
    const auto place = std::ranges::find(members, own, &Member::handle);
    if (place == members.end()) {
        refuse(name, c10::str("this rank's handle \"", own, "\" is not among the ", members.size(),
                              " handles; expected it there"));
    }
    std::vector<std::uint64_t> ranks;
    for (const Member& member : members) ranks.push_back(member.rank);
    const int rank = static_cast<int>(place - members.begin());
    const int size = static_cast<int>(members.size());
    const std::chrono::milliseconds limit = options.timeout.value_or(options_->timeout);
    if (limit <= std::chrono::milliseconds::zero()) {
        refuse(name, c10::str("timeout is ", limit.count(), " ms; expected more than zero"));
    }

    const auto store = c10::make_intrusive<c10d::PrefixStore>(c10::str("reconfigure/", options.uuid), store_);
    if (rank == 0) {
        const std::string claimed =
            translating([&] { return Store(backend_of(store), limit).compare_set("claimed", "", own); });
        if (claimed != own) {
            const std::string why = c10::str("the uuid ", options.uuid, " was already used; expected one that is new");
            say_cannot_join(store, {rank, size, ranks, options_->group_name}, why);
            refuse(name, why);
        }
    }
    ProcessGroup last = join(store, rank, ranks, size, limit);

    std::swap(group_, last);
    pieces_ = std::make_shared<Pieces>();  // the others are the last group's
    const bool had_failed = failures_.first() != c10d::ErrorType::SUCCESS;
    failures_.reset();
    rank_ = rank;
    size_ = size;
    options_->global_ranks_in_group = std::move(ranks);
    generation_ = options.uuid;
    sequence_ = 0;
    messages_ = 0;
    if (Recorder::is_on()) recorded_as_ = Recorder::get().add_group();
    if (last) {
        // Operations under way have a moment to end by themselves, unless they cannot.
        const auto patience = std::chrono::seconds(had_failed ? 0 : 2);
        leave({std::move(last)}, "the group was reconfigured", std::chrono::steady_clock::now() + patience);
    }
    return finished({name, c10d::OpType::UNKNOWN, true, std::chrono::milliseconds::zero(), false}, {{}});
}

}  // namespace tutti::torch

#endif

#ifdef C10D_BACKEND_HAS_WINDOW

namespace tutti::torch {

c10::intrusive_ptr<c10d::Window> ProcessGroupTutti::new_window(const std::optional<at::Tensor>& /*tensor*/) {
    refuse("new_window",
           "tutti has no windows; tutti.torch.empty_symmetric makes tensors that all ranks of a host map");
}

}  // namespace tutti::torch

#endif
