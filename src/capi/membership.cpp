// Groups whose ranks change.
#include "capi/failure.hpp"
#include "capi/handles.hpp"

#include <tutti/newcomers.hpp>

namespace tutti::capi {
namespace {

// Empty for -1.
std::optional<milliseconds> patience_of(const char* f, const char* argument, std::int64_t ms) {
    if (ms == -1) return std::nullopt;
    return time_of(f, argument, ms);
}

std::string room_of(const char* f, const char* argument, const char* name) {
    return name == nullptr ? NewcomersPlace().name : text_of(f, argument, name);
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_group_shrink(tutti_group* group, int64_t timeout_ms, int64_t patience_ms, tutti_group** smaller) {
    return guarded(__func__, [&](const char* f) {
        tutti_group*& result = out(f, "smaller", smaller);
        const ShrinkOptions o{.timeout = time_of(f, "timeout_ms", timeout_ms),
                              .patience = patience_of(f, "patience_ms", patience_ms)};
        result = groups().add(known_group(f, group).shrink(o));
    });
}

tutti_status tutti_group_grow(tutti_group* group, tutti_store* store, const char* name, int count, int64_t timeout_ms,
                              int64_t patience_ms, tutti_group** grown) {
    return guarded(__func__, [&](const char* f) {
        tutti_group*& result = out(f, "grown", grown);
        const GrowOptions o{.place = stores().get(f, "store", store).store,
                            .name = room_of(f, "name", name),
                            .count = number_of(f, "count", count, 0, INT32_MAX),
                            .timeout = time_of(f, "timeout_ms", timeout_ms),
                            .patience = patience_of(f, "patience_ms", patience_ms)};
        result = groups().add(known_group(f, group).grow(o));
    });
}

tutti_status tutti_join(tutti_store* store, const char* name, const char* label, int64_t timeout_ms,
                        tutti_group** group) {
    return guarded(__func__, [&](const char* f) {
        tutti_group*& result = out(f, "group", group);
        JoinOptions o{.place = stores().get(f, "store", store).store, .name = room_of(f, "name", name)};
        if (timeout_ms != 0) o.timeout = time_of(f, "timeout_ms", timeout_ms);
        o.label = text_or_nothing(label);
        result = groups().add(join(o));
    });
}

tutti_status tutti_newcomers_waiting(tutti_store* store, const char* name, int* count) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "count", count);
        result = newcomers_waiting({.place = stores().get(f, "store", store).store, .name = room_of(f, "name", name)});
    });
}

tutti_status tutti_group_adopt(tutti_group* group, const tutti_tensor* tensors, size_t count) {
    return guarded(__func__, [&](const char* f) {
        const TensorList all = tensors_of(f, "tensors", tensors, count);
        known_group(f, group).adopt({all.begin(), all.end()});
    });
}
}  // extern "C"
