#include "rendezvous/meeting_records.hpp"

#include "security/secret.hpp"

#include <tutti/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace tutti::rendezvous {
namespace {

// 0.1 of 0.1.7.
std::string_view minor_of(std::string_view version) noexcept {
    const std::size_t first = version.find('.');
    return {version.data(), std::min(version.size(), version.find('.', first + 1))};
}

}  // namespace

std::uint64_t random_id() {
    std::uint64_t id = 0;
    security::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    return id;
}

std::string encode_record(Object value) {
    return object::encode_string(Object(Object::List{Object(version()), std::move(value)}));
}

bool can_work_together(std::string_view version, std::string_view other) noexcept {
    return minor_of(version) == minor_of(other);
}

std::optional<std::string> other_version(std::string_view bytes, int rank) {
    try {
        const Object all = object::decode_string(bytes);
        const std::string& theirs = all.as_list().at(0).as_string();
        if (can_work_together(theirs, version())) return std::nullopt;
        return fmt::format(
            "rank {} runs tutti {}, and this rank tutti {}: expected the same version on all ranks, up to its last "
            "number",
            rank, theirs, version());
    } catch (const std::exception&) {
        return std::nullopt;  // it does not say; decoding it gives the error
    }
}

void raise_unreadable(const std::string& operation, const std::string& what, const ObjectError& error) {
    throw DistStoreError(
        fmt::format("{}: {} in the store cannot be read: {}; does every process run the same version of tutti?",
                    operation, what, error.what()),
        {.operation = operation});
}

}  // namespace tutti::rendezvous
