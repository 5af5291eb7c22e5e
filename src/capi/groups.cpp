// Groups, and the default one.
#include "capi/failure.hpp"
#include "capi/handles.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tutti::capi {
namespace {

int rank_of(const char* f, const char* argument, std::int32_t value) {
    return number_of(f, argument, value, -1, INT32_MAX);
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_init_process_group(const tutti_init_options* options) {
    return guarded(__func__, [&](const char* f) {
        const tutti_init_options o = options_of(f, "tutti_init_options", options, TUTTI_INIT_OPTIONS_INIT);
        InitOptions init;
        init.init_method = text_or_nothing(o.init_method);
        if (o.store != nullptr) init.store = stores().get(f, "options.store", o.store).store;
        init.rank = rank_of(f, "options.rank", o.rank);
        init.world_size = rank_of(f, "options.world_size", o.world_size);
        if (o.timeout_ms != 0) init.timeout = time_of(f, "options.timeout_ms", o.timeout_ms);
        init.transport = transport_of(f, o.transport);
        init.determinism = determinism_of(f, o.determinism);
        init_process_group(init);
    });
}

tutti_status tutti_destroy_process_group(tutti_group* group) {
    return guarded(__func__, [&](const char* f) {
        destroy_process_group(group == nullptr ? ProcessGroup() : groups().take(f, "group", group));
    });
}

int tutti_is_initialized(void) {
    return is_initialized() ? 1 : 0;
}

tutti_status tutti_group_create(const tutti_group_options* options, tutti_group** group) {
    return guarded(__func__, [&](const char* f) {
        tutti_group*& result = out(f, "group", group);
        if (options == nullptr) refuse_null(f, "options");
        const tutti_group_options o = options_of(f, "tutti_group_options", options, TUTTI_GROUP_OPTIONS_INIT);
        ProcessGroupOptions make;
        make.store = stores().get(f, "options.store", o.store).store;
        make.rank = o.rank;
        make.world_size = o.world_size;
        if (o.timeout_ms != 0) make.timeout = time_of(f, "options.timeout_ms", o.timeout_ms);
        if (o.name != nullptr) make.name = o.name;
        make.transport = transport_of(f, o.transport);
        make.determinism = determinism_of(f, o.determinism);
        make.listen_host = text_or_nothing(o.listen_host);
        result = groups().add(ProcessGroup(make));
    });
}

tutti_status tutti_default_group(tutti_group** group) {
    return guarded(__func__, [&](const char* f) {
        tutti_group*& result = out(f, "group", group);
        result = groups().add(default_group());
    });
}

tutti_status tutti_set_default_group(tutti_group* group) {
    return guarded(__func__, [&](const char* f) { set_default_group(groups().get(f, "group", group)); });
}

tutti_status tutti_group_free(tutti_group* group) {
    if (group == nullptr) return TUTTI_OK;
    return guarded(__func__, [&](const char* f) { groups().take(f, "group", group); });
}

tutti_status tutti_group_rank(tutti_group* group, int* rank) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "rank", rank);
        result = known_group(f, group).rank();
    });
}

tutti_status tutti_group_size(tutti_group* group, int* size) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "size", size);
        result = known_group(f, group).size();
    });
}

tutti_status tutti_group_name(tutti_group* group, const char** name) {
    return guarded(__func__, [&](const char* f) {
        const char*& result = out(f, "name", name);
        result = known_group(f, group).name().c_str();
    });
}

tutti_status tutti_group_timeout(tutti_group* group, int64_t* timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        std::int64_t& result = out(f, "timeout_ms", timeout_ms);
        result = known_group(f, group).timeout().count();
    });
}

tutti_status tutti_group_set_timeout(tutti_group* group, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        ProcessGroup of = known_group(f, group);
        if (timeout_ms < 1) {
            throw InvalidArgument(fmt::format("{}: timeout_ms: {} ms: expected more than zero", f, timeout_ms));
        }
        of.set_timeout(time_of(f, "timeout_ms", timeout_ms));
    });
}

tutti_status tutti_group_determinism(tutti_group* group, int* determinism) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "determinism", determinism);
        result = static_cast<int>(known_group(f, group).determinism());
    });
}

tutti_status tutti_group_hosts(tutti_group* group, int* hosts, size_t count) {
    return guarded(__func__, [&](const char* f) {
        out(f, "hosts", hosts);
        const std::vector<int> all = known_group(f, group).hosts();
        if (count != all.size()) {
            throw InvalidArgument(
                fmt::format("{}: count: {}: expected {}, the size of the group", f, count, all.size()));
        }
        std::ranges::copy(all, hosts);
    });
}

tutti_status tutti_group_abort(tutti_group* group, const char* reason) {
    return guarded(__func__, [&](const char* f) { known_group(f, group).abort(text_or_nothing(reason)); });
}
}  // extern "C"
