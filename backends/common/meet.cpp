#include "common/meet.hpp"

#include <tutti/error.hpp>
#include <tutti/meeting.hpp>

namespace tutti::backends {
namespace {

MeetingTerms terms_of(const DistributedBackendOptions& o, const std::string& backend, const std::string& name) {
    return {.place = o.store,
            .name = name,
            .rank = o.group_rank,
            .size = o.group_size,
            .timeout = o.timeout,
            .operation = backend,
            .about = "of group \"" + o.group_id + "\"",
            .once = true};
}

}  // namespace

std::vector<std::string> meet(const DistributedBackendOptions& o, const std::string& backend, const std::string& name,
                              const std::string& card) {
    try {
        return tutti::meet(terms_of(o, backend, name), card).cards;
    } catch (const Timeout& error) {
        throw Timeout(backend + ": rank " + std::to_string(error.context().peer) + " of the " +
                          std::to_string(o.group_size) + " ranks of group \"" + o.group_id + "\" has not come within " +
                          std::to_string(o.timeout.count()) + " ms: expected all",
                      {.rank = o.group_rank, .peer = error.context().peer, .elapsed = o.timeout});
    }
}

void say_cannot_meet(const DistributedBackendOptions& o, const std::string& backend, const std::string& name,
                     const std::exception& error) noexcept {
    try {
        tutti::say_cannot_meet(terms_of(o, backend, name), error);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then they wait until their time is over
    }
}

}  // namespace tutti::backends
