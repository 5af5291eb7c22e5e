#include "launch/store_hosts.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/text.hpp"
#include "security/secret.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;
using Role = store::Succession::Role;

constexpr const char* servers_key = "launch/servers";
constexpr const char* wanted_key = "launch/wanted";
constexpr const char* failed = "failed";
constexpr auto copy_time = 10s;    // until a new standby has the contents
constexpr auto answer_time = 12s;  // until the launcher that was asked has answered
constexpr auto pause_time = 5s;    // after one that could not

std::string answer_key(int number) {
    return fmt::format("launch/standby/{}", number);
}

}  // namespace

StoreHosts::StoreHosts(Options options, store::TcpServer* own, const AbortFlag& leaving)
    : options_(std::move(options)), own_(own), leaving_(leaving) {
    TUTTI_ASSERT(!options_.id.empty() && !options_.host.empty() && options_.server.port != 0);
}

bool StoreHosts::are_in(Store& store) {
    return store.check({servers_key});
}

bool StoreHosts::serves() const {
    return server() != nullptr && (server()->role() == Role::alone || server()->role() == Role::paired);
}

bool StoreHosts::has_standby() const {
    return server() != nullptr && server()->role() == Role::paired;
}

void StoreHosts::expect_end() {
    if (server() != nullptr) server()->expect_end();
}

// ---- Another launcher's part

void StoreHosts::look(Store& store) {
    if (own_ != nullptr || serves()) return;
    const std::string text = store.get(servers_key);
    std::istringstream in(text);
    std::string primary;
    Servers said;
    in >> said.id >> primary >> said.standby;
    const auto address = net::to_address(primary);
    if (!address)
        throw DistStoreError(fmt::format(
            "tutti run: the store says of its servers: \"{}\": expected a launcher, HOST:PORT and HOST:PORT", text));
    if (first_id_.empty()) first_id_ = said.id;
    // The way that this node has taken is as good as the name by which the server calls itself.
    said.primary = said.id == first_id_ ? options_.server : *address;
    servers_ = std::move(said);
    if (standby_ && standby_->role() == Role::retired) standby_.reset();
    if (!store.check({wanted_key})) return;
    int number = 0;
    std::string id;
    std::istringstream(store.get(wanted_key)) >> number >> id;
    if (id != options_.id || number == std::exchange(made_, number)) return;
    store.set(answer_key(number), make_standby());
}

std::string StoreHosts::make_standby() {
    const auto secret = security::Secret::from_text(options_.secret);
    const bool is_given = security::Secret::from_environment().has_value();
    standby_.reset();
    try {
        standby_ = std::make_unique<store::TcpServer>(listener(), secret, !is_given, servers_.primary,
                                                      Deadline::after(copy_time), &leaving_);
        const std::string place = net::to_string({options_.host, standby_->port()});
        TUTTI_INFO("tutti run: this node keeps the standby of the job's store, at {}", place);
        return place;
    } catch (const DistError& error) {
        if (!leaving_.raised()) TUTTI_WARN("tutti run: no standby of the job's store on this node: {}", error.what());
        return failed;
    }
}

// At the port of the store, which is known to those who may come later, but on a host where another one has it.
UniqueFd StoreHosts::listener() const {
    const std::string where = security::Secret::from_environment() ? "" : options_.host;
    try {
        return net::listen_tcp(where, options_.server.port);
    } catch (const DistNetworkError&) {
        return net::listen_tcp(where, 0);
    }
}

// ---- The part of the launcher that serves

void StoreHosts::publish(Store& store) {
    TUTTI_ASSERT(serves());
    const net::Address here = own_ != nullptr ? options_.server : net::Address{options_.host, standby_->port()};
    servers_ = {.id = options_.id, .primary = here};
    if (store.check({wanted_key})) std::istringstream(store.get(wanted_key)) >> number_;
    say(store);
}

void StoreHosts::say(Store& store) const {
    store.set(servers_key, fmt::format("{} {} {}", servers_.id, net::to_string(servers_.primary), servers_.standby));
}

void StoreHosts::give_up(Instant next) {
    asked_.clear();
    next_ = next;
    ++failures_;
}

void StoreHosts::keep_standby(Store& store, const std::vector<std::string>& others) {
    TUTTI_ASSERT(servers_.id == options_.id);
    const bool paired = has_standby();
    const bool is_answered = servers_.standby.empty() && !asked_.empty() && store.check({answer_key(number_)});
    const std::string answer = is_answered ? store.get(answer_key(number_)) : std::string();
    if (paired && net::to_address(answer)) {
        servers_.standby = answer;
        failures_ = 0;
        say(store);
    }
    if (paired) return;
    if (!servers_.standby.empty()) {
        servers_.standby.clear();
        lost_ = std::exchange(asked_, {});
        say(store);
    }
    const Instant now = tutti::Clock::now();
    if (!asked_.empty()) {
        if (std::ranges::find(others, asked_) == others.end())
            give_up(now);
        else if (answer == failed || now >= asked_at_ + answer_time)
            give_up(now + pause_time);
        else
            return;
    }
    if (others.empty() || now < next_) return;
    // One that was cut off counts as living for some time.
    const auto choice = [&](std::size_t turn) { return others[turn % others.size()]; };
    asked_ = choice(failures_) != lost_ ? choice(failures_) : choice(failures_ + 1);
    asked_at_ = now;
    store.set(wanted_key, fmt::format("{} {}", ++number_, asked_));
}

bool StoreHosts::waits_for_standby() const {
    return !asked_.empty() && failures_ == 0 && servers_.standby.empty();
}

}  // namespace tutti::launch
