#include "store/failover_client.hpp"

#include "core/assert.hpp"
#include "core/fork_guard.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"
#include "store/messages.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds failover_limit{10000};
/// Where no standby is known.
constexpr std::chrono::milliseconds alone_limit{1000};
/// A server that has not answered a witness for so long is lost for it.
constexpr auto witness_limit = 1200ms;
constexpr auto connect_limit = 700ms;
/// The witness stays so long at a server that does not serve, and at one that is in doubt about its standby.
constexpr std::chrono::milliseconds waits_limit{1500}, doubts_limit{6000};
constexpr auto retry = 20ms;

bool has_number(Op op) {
    return op == Op::set || op == Op::multi_set || op == Op::add || op == Op::append || op == Op::compare_set ||
           op == Op::delete_key || op == Op::set_will;
}

}  // namespace

FailoverClient::FailoverClient(TcpClient& first, ClientId id, const net::Address& server,
                               const security::Secret& secret, std::string name,
                               const std::optional<net::Address>& standby)
    : id_(id),
      secret_(secret),
      name_(std::move(name)),
      generation_(fork_guard::generation()),
      client_(std::shared_ptr<void>(), &first),
      at_{server, net::to_string(server)},
      primary_(at_),
      serving_(at_),
      served_(Clock::now()) {
    if (standby) standby_ = Place{*standby, net::to_string(*standby)};
    thread_ = std::make_unique<std::thread>(
        thread::start({"tutti-witness", "watching the servers of a TCPStore"}, [this] { watch(); }));
    // A process that has a store knows the standby, if there is one.
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, connect_limit, [this] { return told_; });
}

// A forked child does not have the witness, and its locks may be held for ever.
bool FailoverClient::is_forked() const {
    return fork_guard::generation() != generation_;
}

FailoverClient::~FailoverClient() {
    if (is_forked()) {
        (void)thread_.release();
        return;
    }
    leaving_.raise("the store is closed");
    {
        const std::lock_guard lock(mutex_);
        if (witness_) witness_->give_up("the store is closed");
        news_.notify_all();
    }
    thread_->join();
}

std::string FailoverClient::call(Op op, std::span<const std::string_view> fields, const Deadline& deadline,
                                 const AbortFlag* abort) {
    if (is_forked()) [[unlikely]]
        return client_->call(op, fields, deadline, abort);  // which says so
    if (!has_number(op)) return call_until_answered(op, fields, deadline, abort, 0);
    std::unique_lock lock(mutex_);
    while (changing_) {
        lock.unlock();
        check_wait(deadline, abort, "store request");
        lock.lock();
        if (changing_) changed_.wait_for(lock, std::min<Clock::duration>(deadline.remaining(), wait_slice));
    }
    changing_ = true;
    if (++change_ == 0) ++change_;
    const std::uint32_t change = change_;
    lock.unlock();
    struct Done {
        FailoverClient& client;
        ~Done() {
            const std::lock_guard guard(client.mutex_);
            client.changing_ = false;
            client.changed_.notify_one();
        }
    };
    const Done done{*this};
    return call_until_answered(op, fields, deadline, abort, change);
}

std::string FailoverClient::call_until_answered(Op op, std::span<const std::string_view> fields,
                                                const Deadline& deadline, const AbortFlag* abort,
                                                std::uint32_t change) {
    std::optional<Instant> since;
    for (;;) {
        const Shared client = current();
        try {
            return client->call(op, fields, deadline, abort, change);
        } catch (const DistStoreError&) {
            if (client->cause().empty()) throw;
        }
        if (!since) since = Clock::now();
        replace(client, *since, deadline, abort);
    }
}

FailoverClient::Shared FailoverClient::current() {
    const std::lock_guard lock(mutex_);
    return client_;
}

void FailoverClient::throw_lost(Clock::duration time, const std::string& why) {
    std::string servers, remedy;
    {
        const std::lock_guard lock(mutex_);
        servers = standby_ ? fmt::format("neither the server at {} nor its standby at {} serves", primary_->name,
                                         standby_->name)
                           : fmt::format("the server at {} is gone, and had no standby when it went", primary_->name);
    }
    throw DistStoreError(
        fmt::format("{}: {} ({}; tried for {}): the store's keys and counters are lost for this process", name_,
                    servers, why, show_duration(time)),
        {.operation = "Store", .hint = "look at what ended the servers' processes, or cut the network to them"});
}

// One thread connects; the others wait for it.
void FailoverClient::replace(const Shared& broken, Instant since, const Deadline& deadline, const AbortFlag* abort) {
    std::string why = broken->cause();
    std::unique_lock lock(mutex_);
    for (;;) {
        if (client_ != broken) return;
        const Clock::duration time = Clock::now() - (serving_ ? since : std::min(served_, since));
        const auto patience = standby_ ? failover_limit : alone_limit;
        lock.unlock();
        if (time >= patience) throw_lost(time, why);
        check_wait(deadline, abort, "store request");
        lock.lock();
        if (replacing_ || !serving_) {
            news_.wait_for(lock, wait_slice);
            continue;
        }
        const Place goal = *serving_;
        const std::uint64_t count = news_count_;
        replacing_ = true;
        lock.unlock();
        Shared made;
        bool refused = false;
        try {
            const Deadline limit = Deadline::after(std::min<Clock::duration>(connect_limit, deadline.remaining()));
            made = std::make_shared<TcpClient>(goal.address, secret_, name_, limit, abort, net::Refusal::no_longer);
            const auto raw = encode_number(id_);
            const std::string_view id(raw.data(), raw.size());
            const std::string answer = made->call(Op::resume, {&id, 1}, limit, abort);
            refused = answer.size() != 16 || answer[field_header_bytes] != 1;
        } catch (const DistError& error) {
            if (error.code() == ErrorCode::aborted || error.code() == ErrorCode::interrupted) {
                lock.lock();
                replacing_ = false;
                throw;
            }
            why = error.what();
            made.reset();
        }
        lock.lock();
        replacing_ = false;
        if (made && !refused) {
            client_ = made;
            at_ = goal;
        }
        news_.notify_all();
        if (refused) {
            throw DistStoreError(fmt::format(
                "{}: the connection was lost ({}), and the server at {} has taken this process for one that has ended",
                name_, broken->cause(), goal.name));
        }
        if (!made && news_count_ == count) news_.wait_for(lock, retry);
    }
}

// ---- The witness

std::optional<FailoverClient::Place> FailoverClient::place(int index) {
    const std::lock_guard lock(mutex_);
    return index == 0 ? primary_ : standby_;
}

void FailoverClient::watch() {
    for (int index = 0; !leaving_.raised(); index = 1 - index) {
        const auto here = place(index);
        if (!here) continue;
        try {
            watch_at(*here, place(1 - index).has_value());
        } catch (const std::exception& error) {
            TUTTI_DEBUG("{}: the witness has lost the server at {}: {}", name_, here->name, error.what());
        }
        {
            std::unique_lock lock(mutex_);
            witness_.reset();
            if (leaving_.raised()) return;
            if (serving_ && serving_->name == here->name) {
                serving_.reset();
                ++news_count_;
            }
            // A server that is silent leaves its clients' calls waiting.
            if (!serving_ && Clock::now() >= served_ + failover_limit)
                client_->give_up("no server has answered for long");
            news_.wait_for(lock, retry);
        }
    }
}

void FailoverClient::watch_at(const Place& here, bool other_known) {
    auto made = std::make_shared<TcpClient>(here.address, secret_, name_, Deadline::after(connect_limit), &leaving_,
                                            net::Refusal::no_longer);
    {
        const std::lock_guard lock(mutex_);
        if (leaving_.raised()) return;
        witness_ = made;
    }
    std::uint64_t seen = 0, vote = 0, voted = 0;
    Instant well = Clock::now();
    while (!leaving_.raised()) {
        const std::array<std::array<char, 8>, 3> raw{encode_number(id_), encode_number(vote), encode_number(seen)};
        const std::array<std::string_view, 3> fields{
            std::string_view(raw[0].data(), 8), std::string_view(raw[1].data(), 8), std::string_view(raw[2].data(), 8)};
        const std::string body = made->call(Op::witness, fields, Deadline::after(witness_limit), &leaving_);
        const auto answer = split_fields(body);
        if (!answer || answer->size() != 5)
            throw DistStoreError("the server answered a witness with something else than its standing");
        const auto number = [&](std::size_t i) { return decode_number((*answer)[i]).value_or(0); };
        seen = number(0);
        const auto standing = static_cast<Standing>(number(1));
        const Term term = number(2);
        if (standing == Standing::serves) ballot_.know(number(4));
        vote = term != 0 && ballot_.grant(here.name, term) ? term : 0;
        if (learn(here, standing, std::string((*answer)[3]))) come(here);
        if (vote != std::exchange(voted, vote)) seen = 0;  // says so at once
        const Instant now = Clock::now();
        if (standing == Standing::serves) well = now;
        if (other_known && now > well + (standing == Standing::doubts ? doubts_limit : waits_limit)) return;
        other_known = place(0).has_value() && place(1).has_value();
    }
}

// Also for a process that calls nothing, which has not ended.
void FailoverClient::come(const Place& here) {
    Shared client;
    {
        const std::lock_guard lock(mutex_);
        client = client_;
        if (at_.name == here.name) return;
    }
    try {
        replace(client, Clock::now(), Deadline::after(connect_limit), &leaving_);
    } catch (const DistError& error) {
        TUTTI_DEBUG("{}: {}", name_, error.what());  // the next call tries again, and says so
    }
}

bool FailoverClient::learn(const Place& from, Standing standing, const std::string& standby) {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(told_, true)) news_.notify_all();
    if (standing == Standing::waits) return false;
    if (standing == Standing::serves) served_ = Clock::now();
    if (standing == Standing::serves && (!serving_ || serving_->name != from.name)) {
        serving_ = from;
        ++news_count_;
        if (at_.name != from.name) client_->give_up("another server serves the store");
        news_.notify_all();
    }
    const bool elsewhere = standing == Standing::serves && at_.name != from.name;
    const auto address = net::to_address(standby);
    if (!address || (standby_ && standby_->name == standby)) return elsewhere;
    primary_ = from;
    standby_ = Place{*address, standby};
    return elsewhere;
}

}  // namespace tutti::store
