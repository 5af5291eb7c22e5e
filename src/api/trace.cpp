// The recorder's public side.
#include <tutti/trace.hpp>

#include "api/arguments.hpp"
#include "record/dump_writer.hpp"
#include "record/public_call.hpp"
#include "record/stacks.hpp"

#include <utility>

namespace tutti {

std::vector<std::string> dump_trace(const std::string& folder, const std::string& reason) {
    std::vector<std::string> files;
    for (const auto& file : record::dump_all(folder, reason)) files.push_back(file.string());
    return files;
}

std::vector<std::string> dump_flight_recorder(const std::string& folder) {
    std::vector<std::string> files;
    for (const auto& file : record::dump_flight(folder)) files.push_back(file.string());
    return files;
}

GroupCounters group_counters(const ProcessGroup& group) {
    const record::Counters c = api::group_of(group, "group_counters")->recorder().counters();
    return {.issued = c.issued,
            .completed = c.completed,
            .failed = c.failed,
            .bytes = c.bytes,
            .seconds = c.seconds,
            .waited_s = c.waited_s};
}

std::string prometheus_text() {
    return record::prometheus_text();
}

OperationHookScope::OperationHookScope(OperationHooks hooks)
    : id_(record::add_hooks({std::move(hooks.before), std::move(hooks.after)})) {}
OperationHookScope::~OperationHookScope() {
    record::remove_hooks(id_);
}

CallSiteScope::CallSiteScope(const char* place) noexcept : outer_(record::given_call_site) {
    if (place != nullptr) record::given_call_site = record::call_site_at(place);
}
CallSiteScope::~CallSiteScope() {
    record::given_call_site = outer_;
}

void set_stack_source(std::function<std::string(std::chrono::milliseconds limit)> source) {
    record::set_stack_source(std::move(source));
}

}  // namespace tutti
