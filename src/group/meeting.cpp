#include "group/meeting.hpp"

#include "core/patience.hpp"
#include "core/rank_list.hpp"
#include "object/codec.hpp"

#include <tutti/error.hpp>
#include <tutti/object.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <utility>

namespace tutti::detail {
namespace {

constexpr std::chrono::milliseconds slice{100};  // before it looks for a circle

// A rank's notice while it waits. The nonce tells one wait from the next.
struct Notice {
    std::uint64_t nonce = 0;
    std::string id;
    std::vector<int> members;
};
TUTTI_OBJECT(Notice, nonce, id, members);

GroupPlace to_place(std::string_view text) {
    GroupPlace place;
    const char* end = text.data() + text.size();
    const auto index = std::from_chars(text.data(), end, place.index);
    if (index.ec == std::errc() && index.ptr != end && *index.ptr == ' ') {
        const auto offset = std::from_chars(index.ptr + 1, end, place.offset);
        if (offset.ec == std::errc() && offset.ptr == end) return place;
    }
    throw DistStoreError(
        fmt::format("new_group: the store says that the group's place is \"{}\": expected two numbers", text),
        {.operation = "new_group"});
}

std::string here_key(const std::string& id, int rank) {
    return fmt::format("{}/here/{}", id, rank);
}
std::string waiting_key(int rank) {
    return fmt::format("waiting/{}", rank);
}
// What became of a meeting, for all who come to it: the first who says so decides.
constexpr std::string_view made = "made", late = "late: ";
std::string outcome_key(const std::string& id) {
    return id + "/outcome";
}

}  // namespace

Meeting::Meeting(World& world, std::vector<int> members, std::uint64_t number, const Deadline& deadline)
    : world_(world),
      store_(PrefixStore("group/" + world.name() + "/meetings", world.setup().store)),
      members_(std::move(members)),
      id_(fmt::format("{}#{}", fmt::join(members_, ","), number)),
      deadline_(deadline) {}

GroupPlace Meeting::take_place(std::uint64_t part_bytes) {
    const std::string key = id_ + "/place";
    if (members_.front() == world_.rank()) {
        const GroupPlace place = world_.groups().next_place_in_store(1, part_bytes);
        store_.set(key, fmt::format("{} {}", place.index, place.offset));
        return place;
    }
    const Patience patience([this] { return fmt::format("rank {} to make the group {}", members_.front(), id_); });
    for (;;) {
        try {
            return to_place(store_.get(key, slice));
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
        look_for_circle();
    }
}

void Meeting::wait_for_all() {
    store_.set(here_key(id_, world_.rank()), "");
    std::vector<std::string> keys;
    for (const int rank : members_) keys.push_back(here_key(id_, rank));
    const Patience patience([this] { return fmt::format("{} to make their group", rank_list(members_)); });
    for (;;) {
        try {
            store_.wait(keys, slice);
            accept(settle(id_, std::string(made)));
            store_.set(waiting_key(world_.rank()), "");
            return;
        } catch (const DistStoreError& error) {
            if (error.code() != ErrorCode::timeout) throw;
        }
        look_for_circle();
    }
}

std::string Meeting::settle(const std::string& id, const std::string& outcome) {
    return store_.compare_set(outcome_key(id), "", outcome);
}

void Meeting::accept(const std::string& outcome) {
    if (outcome == made) return;
    store_.set(waiting_key(world_.rank()), "");
    if (!outcome.starts_with(late)) throw InvalidArgument(outcome);
    throw Timeout(outcome.substr(late.size()),
                  {.operation = "new_group", .group = world_.name(), .rank = world_.rank()});
}

std::vector<int> Meeting::missing(const std::string& id, const std::vector<int>& members) {
    std::vector<int> absent;
    for (const int rank : members) {
        if (!store_.check({here_key(id, rank)})) absent.push_back(rank);
    }
    return absent;
}

Meeting::Waiting Meeting::waiting(int rank) {
    Waiting result;
    if (!store_.check({waiting_key(rank)})) return result;
    result.said = store_.get(waiting_key(rank));
    if (result.said.empty()) return result;
    auto notice = object::decode_string(result.said).get<Notice>();
    result.id = std::move(notice.id);
    result.members = std::move(notice.members);
    return result;
}

// Depth first from `rank`, the last of the path, back to this rank.
bool Meeting::find_circle(int rank, std::vector<std::pair<int, Waiting>>& path) {
    Waiting wait = waiting(rank);
    if (wait.said.empty()) return false;
    const std::vector<int> absent = missing(wait.id, wait.members);
    path.emplace_back(rank, std::move(wait));
    for (const int next : absent) {
        if (next == world_.rank() && path.size() > 1) return true;
        const bool seen = std::ranges::any_of(path, [next](const auto& entry) { return entry.first == next; });
        if (!seen && find_circle(next, path)) return true;
    }
    path.pop_back();
    return false;
}

void Meeting::look_for_circle() {
    if (store_.check({outcome_key(id_)})) return accept(store_.get(outcome_key(id_)));
    if (!store_.check({here_key(id_, world_.rank())})) store_.set(here_key(id_, world_.rank()), "");
    const std::string known = store_.check({waiting_key(world_.rank())}) ? store_.get(waiting_key(world_.rank())) : "";
    if (known.empty()) {
        static std::atomic<std::uint64_t> nonces{0};
        store_.set(waiting_key(world_.rank()), object::encode_string(Notice{++nonces, id_, members_}));
    }
    std::vector<std::pair<int, Waiting>> circle;
    if (find_circle(world_.rank(), circle)) {
        // All of them waited at once if none has stopped meanwhile, and no rank came.
        const bool stands = std::ranges::all_of(
            circle, [this](const auto& entry) { return waiting(entry.first).said == entry.second.said; });
        if (stands) {
            std::string text = "new_group: ranks wait for each other with use_local_synchronization:";
            for (const auto& [rank, wait] : circle)
                text += fmt::format(" rank {} makes the group of [{}];", rank, fmt::join(wait.members, ", "));
            text += " expected one order of overlapping groups on all ranks";
            for (const auto& [rank, wait] : circle) settle(wait.id, text);
            return accept(store_.get(outcome_key(id_)));
        }
    }
    if (!deadline_.expired()) return;
    accept(settle(id_, fmt::format("{}new_group of ranks [{}]: timed out on rank {}; not there: {}", late,
                                   fmt::join(members_, ", "), world_.rank(), fmt::join(missing(id_, members_), ", "))));
}

}  // namespace tutti::detail
