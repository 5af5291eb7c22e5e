#include "joining.hpp"

#include "store.hpp"

#include <c10/util/hash.h>

#include <tutti/error.hpp>
#include <tutti/meeting.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace tutti::torch {
namespace {

constexpr std::size_t longest_list = 48;

bool knows_members(const Joining& joining) {
    return joining.members.size() == static_cast<std::size_t>(joining.size);
}

// Ranks whose number in the group is that among all meet under one name, and hear whose size is another one.
bool are_first_of_all(const Joining& joining) {
    for (std::size_t i = 0; knows_members(joining) && i < joining.members.size(); ++i) {
        if (joining.members[i] != i) return false;
    }
    return true;
}

// "3 ranks" or "ranks [4, 5]".
std::string description(const Joining& joining) {
    if (are_first_of_all(joining)) return c10::str(joining.size, " ranks");
    std::string list;
    for (const std::uint64_t rank : joining.members) list += c10::str(list.empty() ? "" : ", ", rank);
    return "ranks [" + list + "]";
}

std::string name_of(const Joining& joining) {
    if (are_first_of_all(joining)) return "all";
    const std::string list = description(joining);
    return list.size() <= longest_list ? list : list.substr(0, longest_list) + "… " + c10::sha1(list).str();
}

MeetingTerms terms_of(const Joining& joining, const Store& place) {
    const std::string group = joining.name.empty() ? "" : " (group \"" + joining.name + "\")";
    MeetingTerms terms{.place = place,
                       .name = name_of(joining),
                       .rank = joining.rank,
                       .size = joining.size,
                       .timeout = joining.limit,
                       .words = "says " + description(joining),
                       .operation = "init",
                       .about = "of " + description(joining) + group};
    if (knows_members(joining)) terms.members.assign(joining.members.begin(), joining.members.end());
    return terms;
}

Store place_in(const std::shared_ptr<StoreBackend>& backend, Milliseconds limit) {
    return PrefixStore("tutti", Store(backend, limit));
}

// The others may have given up before this rank came: then it waits for them to come again.
Met meet_in_time(MeetingTerms terms) {
    const auto end = std::chrono::steady_clock::now() + terms.timeout;
    for (;;) {
        bool has_waited = false;
        terms.check = [&] { has_waited = true; };
        try {
            return meet(terms, "");
        } catch (const Timeout&) {
            terms.timeout = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
            if (has_waited || terms.timeout <= Milliseconds::zero()) throw;
        }
    }
}

}  // namespace

ProcessGroup join(const c10::intrusive_ptr<c10d::Store>& store, const Joining& joining,
                  const std::function<ProcessGroup(const Store&)>& make) {
    try {
        const auto backend = backend_of(store);
        const Store place = place_in(backend, joining.limit);
        const MeetingTerms terms = terms_of(joining, place);
        const Met met = meet_in_time(terms);
        ProcessGroup group = make(PrefixStore(c10::str(terms.name, "/", met.attempt), place));
        leave_connection_to_program(*backend);
        return group;
    } catch (const InvalidArgument& error) {  // of several ranks' arguments, each of which may be right
        throw DistBackendError(error.what(), error.context());
    } catch (const DistError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        throw DistStoreError(c10::str(error.what(), " (timeout after ", joining.limit.count(), "ms)"), error.context(),
                             ErrorCode::timeout);
    }
}

void say_cannot_join(const c10::intrusive_ptr<c10d::Store>& store, Joining joining, const std::string& why) noexcept {
    try {
        joining.size = std::max(joining.size, joining.rank + 1);  // it may be what is wrong
        joining.limit = std::max(joining.limit, Milliseconds(1));
        say_cannot_meet(terms_of(joining, place_in(backend_of(store), joining.limit)), std::runtime_error(why));
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): they wait until their time is over
    }
}

}  // namespace tutti::torch
