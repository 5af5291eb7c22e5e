#include "rendezvous/attempt.hpp"

#include "core/log.hpp"
#include "core/text.hpp"
#include "rendezvous/table.hpp"

#include <tutti/error.hpp>

#include <cstdint>
#include <utility>

namespace tutti::rendezvous {
namespace {

constexpr const char* newest_key = "newest";

std::uint64_t to_number(const std::string& text) {
    if (const auto number = number_in<std::uint64_t>(text)) return *number;
    throw DistStoreError("init: the number of the newest world in the store is \"" + text + "\": expected a number",
                         {.operation = "init"});
}

}  // namespace

Attempt::Attempt(Store store, std::string name, Worlds worlds)
    : whole_(std::move(store)), name_(std::move(name)), worlds_(worlds) {
    if (worlds == Worlds::one) store_ = whole_;
    if (whole_) place_ = PrefixStore("world/" + name_, whole_);
}

const Store& Attempt::store() {
    if (!store_) be(place_.compare_set(newest_key, "", "1"));
    return store_;
}

Store Attempt::meeting() {
    return PrefixStore("group/" + name_, store());
}

void Attempt::next() {
    be(place_.compare_set(newest_key, number_, std::to_string(to_number(number_) + 1)));
}

void Attempt::be(const std::string& number) {
    (void)to_number(number);
    number_ = number;
    entered_ = false;
    store_ = PrefixStore(number_, place_);
}

void Attempt::say_failed(int rank, int world_size, const std::exception& error) noexcept {
    if (!whole_) return;
    try {
        while (!rendezvous::say_failed(meeting(), rank, world_size, error, entered_) && may_have_next()) next();
    } catch (const std::exception& silent) {
        TUTTI_DEBUG("rank {} cannot tell the others that it does not join: {}", rank, silent.what());
    }
}

}  // namespace tutti::rendezvous
