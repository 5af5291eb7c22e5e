// Stores.
#include "capi/failure.hpp"
#include "capi/handles.hpp"
#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace tutti::capi {
namespace {

constexpr int most_users = 1 << 20;

struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

// Memory for tutti_free(), with a zero byte behind the text.
Memory copy_of(const std::string& text) {
    Memory memory(std::malloc(text.size() + 1));
    if (!memory) throw std::bad_alloc();
    std::memcpy(memory.get(), text.c_str(), text.size() + 1);
    TUTTI_ASSERT(memory != nullptr);
    return memory;
}

Store store_of(const char* f, tutti_store* store) {
    return stores().get(f, "store", store).store;
}

Milliseconds limit_of(const char* f, std::int64_t timeout_ms) {
    const Milliseconds given = time_of(f, "timeout_ms", timeout_ms);
    TUTTI_ASSERT(given.count() >= 0);
    return given.count() > 0 ? given : default_store_timeout;
}

void give(const std::string& text, void** value, std::size_t* bytes) {
    TUTTI_ASSERT(value != nullptr);
    *value = copy_of(text).release();
    if (bytes != nullptr) *bytes = text.size();
}

TCPStoreOptions read(const char* f, const tutti_tcp_store_options* given) {
    const tutti_tcp_store_options o = options_of(f, "tutti_tcp_store_options", given, TUTTI_TCP_STORE_OPTIONS_INIT);
    const auto yes = [f](const char* name, std::int32_t value) { return number_of(f, name, value, 0, 1) == 1; };
    TCPStoreOptions options;
    if (o.host != nullptr) options.host = o.host;
    options.port = static_cast<std::uint16_t>(number_of(f, "options.port", o.port, 0, 65535));
    if (number_of(f, "options.world_size", o.world_size, 0, most_users) > 0) options.world_size = o.world_size;
    options.is_master = yes("options.is_master", o.is_master);
    options.wait_for_workers = yes("options.wait_for_workers", o.wait_for_workers);
    options.multi_tenant = yes("options.multi_tenant", o.multi_tenant);
    options.master_listen_fd = number_of(f, "options.master_listen_fd", o.master_listen_fd, -1, INT32_MAX);
    if (o.timeout_ms != 0) options.timeout = time_of(f, "options.timeout_ms", o.timeout_ms);
    if (o.secret != nullptr) options.secret = o.secret;
    options.with_standby = yes("options.with_standby", o.with_standby);
    options.is_standby = yes("options.is_standby", o.is_standby);
    return options;
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_store_tcp(const tutti_tcp_store_options* options, tutti_store** store) {
    return guarded(__func__, [&](const char* f) {
        tutti_store*& result = out(f, "store", store);
        const TCPStore made(read(f, options));
        result = stores().add({made, made.port()});
    });
}

tutti_status tutti_store_file(const char* path, int world_size, int64_t timeout_ms, tutti_store** store) {
    return guarded(__func__, [&](const char* f) {
        tutti_store*& result = out(f, "store", store);
        const int users = number_of(f, "world_size", world_size, 0, most_users);
        result = stores().add({FileStore(text_of(f, "path", path), users > 0 ? users : -1, limit_of(f, timeout_ms))});
    });
}

tutti_status tutti_store_hash(int64_t timeout_ms, tutti_store** store) {
    return guarded(__func__,
                   [&](const char* f) { out(f, "store", store) = stores().add({HashStore(limit_of(f, timeout_ms))}); });
}

tutti_status tutti_store_prefix(const char* prefix, tutti_store* underlying, tutti_store** store) {
    return guarded(__func__, [&](const char* f) {
        tutti_store*& result = out(f, "store", store);
        result =
            stores().add({PrefixStore(text_of(f, "prefix", prefix), stores().get(f, "underlying", underlying).store)});
    });
}

tutti_status tutti_store_free(tutti_store* store) {
    if (store == nullptr) return TUTTI_OK;
    return guarded(__func__, [&](const char* f) { stores().take(f, "store", store); });
}

tutti_status tutti_store_port(tutti_store* store, int* port) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "port", port);
        const StoreEntry entry = stores().get(f, "store", store);
        if (!entry.port) {
            throw InvalidArgument(fmt::format("{}: store: {}: expected a TCP store", f, entry.store.describe()));
        }
        result = *entry.port;
    });
}

tutti_status tutti_store_set_timeout(tutti_store* store, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) { store_of(f, store).set_timeout(limit_of(f, timeout_ms)); });
}

tutti_status tutti_store_timeout(tutti_store* store, int64_t* timeout_ms) {
    return guarded(__func__,
                   [&](const char* f) { out(f, "timeout_ms", timeout_ms) = store_of(f, store).timeout().count(); });
}

tutti_status tutti_store_abort(tutti_store* store, const char* reason) {
    return guarded(__func__, [&](const char* f) { store_of(f, store).abort(text_or_nothing(reason)); });
}

tutti_status tutti_store_set(tutti_store* store, const char* key, const void* value, size_t bytes) {
    return guarded(__func__, [&](const char* f) {
        store_of(f, store).set(text_of(f, "key", key), bytes_of(f, "value", value, bytes));
    });
}

tutti_status tutti_store_get(tutti_store* store, const char* key, int64_t timeout_ms, void** value, size_t* bytes) {
    return guarded(__func__, [&](const char* f) {
        out(f, "value", value);
        Store from = store_of(f, store);
        const Milliseconds timeout = time_of(f, "timeout_ms", timeout_ms);
        const std::string name = text_of(f, "key", key);
        give(timeout.count() > 0 ? from.get(name, timeout) : from.get(name), value, bytes);
    });
}

tutti_status tutti_store_add(tutti_store* store, const char* key, int64_t amount, int64_t* result) {
    return guarded(__func__, [&](const char* f) {
        const std::int64_t sum = store_of(f, store).add(text_of(f, "key", key), amount);
        if (result != nullptr) *result = sum;
    });
}

tutti_status tutti_store_append(tutti_store* store, const char* key, const void* value, size_t bytes) {
    return guarded(__func__, [&](const char* f) {
        store_of(f, store).append(text_of(f, "key", key), bytes_of(f, "value", value, bytes));
    });
}

tutti_status tutti_store_compare_set(tutti_store* store, const char* key, const void* expected, size_t expected_bytes,
                                     const void* desired, size_t desired_bytes, void** value, size_t* bytes) {
    return guarded(__func__, [&](const char* f) {
        out(f, "value", value);
        give(store_of(f, store).compare_set(text_of(f, "key", key), bytes_of(f, "expected", expected, expected_bytes),
                                            bytes_of(f, "desired", desired, desired_bytes)),
             value, bytes);
    });
}

tutti_status tutti_store_check(tutti_store* store, const char* const* keys, size_t count, int* exist) {
    return guarded(__func__, [&](const char* f) {
        int& result = out(f, "exist", exist);
        result = store_of(f, store).check(texts_of(f, "keys", keys, count)) ? 1 : 0;
    });
}

tutti_status tutti_store_wait(tutti_store* store, const char* const* keys, size_t count, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        Store at = store_of(f, store);
        const std::vector<std::string> names = texts_of(f, "keys", keys, count);
        const Milliseconds timeout = time_of(f, "timeout_ms", timeout_ms);
        if (timeout.count() > 0)
            at.wait(names, timeout);
        else
            at.wait(names);
    });
}

tutti_status tutti_store_delete_key(tutti_store* store, const char* key, int* existed) {
    return guarded(__func__, [&](const char* f) {
        const bool was_there = store_of(f, store).delete_key(text_of(f, "key", key));
        if (existed != nullptr) *existed = was_there ? 1 : 0;
    });
}

tutti_status tutti_store_num_keys(tutti_store* store, int64_t* count) {
    return guarded(__func__, [&](const char* f) {
        std::int64_t& result = out(f, "count", count);
        result = store_of(f, store).num_keys();
    });
}

tutti_status tutti_store_multi_get(tutti_store* store, const char* const* keys, size_t count, void** values,
                                   size_t* bytes) {
    return guarded(__func__, [&](const char* f) {
        Store from = store_of(f, store);
        const std::vector<std::string> names = texts_of(f, "keys", keys, count);
        if (values == nullptr && count > 0) refuse_null(f, "values");
        const std::vector<std::string> found = from.multi_get(names);
        std::vector<Memory> copies;  // all, before any is given away
        TUTTI_ASSERT(found.size() == count);
        for (const std::string& text : found) copies.push_back(copy_of(text));
        for (std::size_t i = 0; i < count; ++i) {
            values[i] = copies[i].release();
            if (bytes != nullptr) bytes[i] = found[i].size();
        }
    });
}

tutti_status tutti_store_multi_set(tutti_store* store, const char* const* keys, const void* const* values,
                                   const size_t* bytes, size_t count) {
    return guarded(__func__, [&](const char* f) {
        Store to = store_of(f, store);
        const std::vector<std::string> names = texts_of(f, "keys", keys, count);
        if (count > 0 && values == nullptr) refuse_null(f, "values");
        if (count > 0 && bytes == nullptr) refuse_null(f, "bytes");
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < count; ++i) {
            texts.emplace_back(bytes_of(f, fmt::format("values[{}]", i).c_str(), values[i], bytes[i]));
        }
        TUTTI_ASSERT(texts.size() == names.size());
        to.multi_set(names, texts);
    });
}
}  // extern "C"
