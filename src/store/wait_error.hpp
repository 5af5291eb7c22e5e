// The error of a wait for keys that did not come; the same for all stores.
#pragma once

#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string>

namespace tutti::store {

inline DistStoreError timeout_error(const char* operation, std::span<const std::string> keys, const std::string& store,
                                    Milliseconds waited) {
    return DistStoreError(fmt::format("{} of \"{}\": not all keys were set in {} within {} ms", operation,
                                      fmt::join(keys, "\", \""), store, waited.count()),
                          {.operation = operation, .elapsed = waited}, ErrorCode::timeout);
}

}  // namespace tutti::store
