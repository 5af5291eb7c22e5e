// meet() over a real store, by a real process.
#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/patience.hpp"
#include "core/this_host.hpp"
#include "rendezvous/meeting.hpp"
#include "rendezvous/place.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace rendezvous {
namespace {

/// No value: compare_set() with it as the expected one reads, and leaves a key that is not there alone.
constexpr std::string_view nothing = "\x01no value";

void check(const MeetingTerms& terms) {
    const auto refuse = [](const std::string& sentence) {
        throw InvalidArgument("meet: " + sentence, {.operation = "meet"});
    };
    if (!terms.place) refuse("place is no store: expected the one in which the ranks meet");
    if (terms.name.empty()) refuse("name is empty: expected one that tells this meeting from others");
    if (terms.size < 1) refuse(fmt::format("size is {}: expected 1 or more", terms.size));
    if (terms.rank < 0 || terms.rank >= terms.size)
        refuse(fmt::format("rank is {}: expected 0 to {}", terms.rank, terms.size - 1));
    if (terms.timeout <= Milliseconds::zero())
        refuse(fmt::format("timeout is {} ms: expected more than 0", terms.timeout.count()));
    if (!terms.members.empty() && std::cmp_not_equal(terms.members.size(), terms.size))
        refuse(fmt::format("members has {} ranks, and size is {}: expected as many", terms.members.size(), terms.size));
}

// Where this process does not see itself, it cannot tell that another is not there.
bool has_ended(const MeetingProcess& process) {
    if (start_of(::getpid()) == 0) return false;
    return end_of(process.number, Milliseconds(0)) ||
           (process.started != 0 && start_of(process.number) != process.started);
}

}  // namespace

Meeting::Surroundings Meeting::surroundings_of_this_process() {
    return {.own = {.space = fmt::format("{}/{}", host_key(), process_space()),
                    .number = ::getpid(),
                    .started = start_of(::getpid()),
                    .in_words = fmt::format("process {} on {}", ::getpid(), this_host::name())},
            .has_ended = has_ended,
            .random = random_id};
}

StoreAnswer perform(const Store& store, const StoreRequest& request, Milliseconds limit, int bell) {
    TUTTI_ASSERT(!request.keys.empty());
    StoreBackend& backend = *store.backend();
    const std::string& key = request.keys.front();
    switch (request.kind) {
        case StoreRequest::read: {
            std::string value = backend.compare_set(key, nothing, nothing, limit);
            return value == nothing ? StoreAnswer{} : StoreAnswer{{std::move(value)}};
        }
        case StoreRequest::check:
            return backend.check(request.keys, limit) ? StoreAnswer{{std::string()}} : StoreAnswer{};
        case StoreRequest::write: backend.set(key, request.value, limit); return {};
        case StoreRequest::compare_set: return {{backend.compare_set(key, request.expected, request.value, limit)}};
        case StoreRequest::will:
            return backend.set_will(key, request.value, limit) ? StoreAnswer{{std::string()}} : StoreAnswer{};
        case StoreRequest::add: return {{std::to_string(backend.add(key, std::stoll(request.value), limit))}};
        case StoreRequest::append: backend.append(key, request.value, limit); return {};
        case StoreRequest::remove: (void)backend.delete_key(key, limit); return {};
        case StoreRequest::await:
        case StoreRequest::await_one: break;
    }
    try {
        if (request.kind == StoreRequest::await_one) return {{backend.get_with_bell(key, request.patience, bell)}};
        return {backend.multi_get(request.keys, request.patience)};
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        return {};
    }
}

}  // namespace rendezvous

Met meet(const MeetingTerms& terms, const std::string& card) {
    using rendezvous::Meeting;
    rendezvous::check(terms);
    if (terms.size == 1) return {.cards = {card}};
    Meeting meeting(terms, {.card = [&card] { return card; }}, Meeting::surroundings_of_this_process());
    const Patience patience([&] { return meeting.awaited(); });
    return rendezvous::carry_out(terms.place, meeting, meeting.run());
}

void say_cannot_meet(const MeetingTerms& terms, const std::exception& error) noexcept {
    using rendezvous::Meeting;
    try {
        rendezvous::check(terms);
        if (terms.size == 1) return;
        Meeting meeting(terms, {}, Meeting::surroundings_of_this_process());
        (void)rendezvous::carry_out(terms.place, meeting,
                                    meeting.say_failed(error.what(), Meeting::may_leave_busy(error)));
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("a rank cannot tell the others that it does not come: {}", silent.what());
    }
}

}  // namespace tutti
