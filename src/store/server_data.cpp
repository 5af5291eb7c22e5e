#include "store/server_data.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

namespace tutti::store {

bool ServerData::handle(ConnectionId from, const FrameHeader& header, std::string_view body) {
    TUTTI_ASSERT(body.size() == header.body_bytes);
    if (!split_fields(body, request_fields_)) return false;
    try {
        return perform(from, header, request_fields_);
    } catch (const DistError& error) {
        const Field words{error.what()};
        answer_(from, header.request, Op::error, {&words, 1});
        return true;
    }
}

void ServerData::reply_number(ConnectionId to, Request request, std::uint64_t number) {
    const auto bytes = encode_number(number);
    reply(to, request, {bytes.data(), bytes.size()});
}

void ServerData::set_all(const Fields& fields) {
    TUTTI_ASSERT(fields.size() % 2 == 0);
    for (std::size_t i = 0; i < fields.size(); i += 2) map_.set(fields[i], fields[i + 1]);
    for (std::size_t i = 0; i < fields.size(); i += 2) came(fields[i]);
}

// It answers the clients that a change wakes before the one that made it: they have waited longer, and are asleep.
bool ServerData::perform(ConnectionId from, const FrameHeader& header, const Fields& fields) {
    const auto request = header.request;
    switch (header.op) {
        case Op::set:
        case Op::multi_set:
            if (fields.size() % 2 != 0 || (header.op == Op::set && fields.size() != 2)) return false;
            set_all(fields);
            reply(from, request);
            return true;
        case Op::post:
            if (fields.size() % 2 != 0) return false;
            set_all(fields);
            return true;
        case Op::append:
            if (fields.size() != 2) return false;
            map_.append(fields[0], fields[1]);
            came(fields[0]);
            reply(from, request);
            return true;
        case Op::add: {
            const auto amount = fields.size() == 2 ? decode_number(fields[1]) : std::nullopt;
            if (!amount) return false;
            const auto sum = map_.add(fields[0], static_cast<std::int64_t>(*amount));
            came(fields[0]);
            reply_number(from, request, static_cast<std::uint64_t>(sum));
            return true;
        }
        case Op::compare_set: {
            if (fields.size() != 3) return false;
            const std::string result = map_.compare_set(fields[0], fields[1], fields[2]);
            came(fields[0]);
            reply(from, request, result);
            return true;
        }
        case Op::delete_key:
            if (fields.size() != 1) return false;
            reply_number(from, request, map_.erase(fields[0]) ? 1 : 0);
            return true;
        case Op::check:
            reply_number(from, request,
                         std::ranges::all_of(fields, [&](auto key) { return map_.contains(key); }) ? 1 : 0);
            return true;
        case Op::num_keys:
            // One more than the user's: the number of workers counts as a key of its own.
            reply_number(from, request, map_.size() + 1);
            return true;
        case Op::get:
        case Op::wait: wait_for_keys(from, header, fields); return true;
        case Op::join:
            ++workers_;
            worker_came();
            welcome(from, request);
            return true;
        case Op::await_workers: {
            const auto count = fields.size() == 1 ? decode_number(fields[0]) : std::nullopt;
            if (!count) return false;
            worker_waiters_.push_back({from, request, *count});
            worker_came();
            return true;
        }
        case Op::count_workers: reply_number(from, request, workers_); return true;
        case Op::cancel: cancel(from, request); return true;
        case Op::set_will:
            if (fields.size() != 2) return false;
            set_will(from, fields[0], fields[1]);
            reply(from, request);
            return true;
        case Op::workers: {
            const auto count = fields.size() == 1 ? decode_number(fields[0]) : std::nullopt;
            if (!count) return false;
            workers_ = *count;
            return true;
        }
        case Op::post_pipe:  // the loop's affair, or Standby's
        case Op::witness:
        case Op::resume:
        case Op::stand_by:
        case Op::report:
        case Op::follow:
        case Op::term:
        case Op::pulse:
        case Op::have:
        case Op::goes_on:
        case Op::leave:
        case Op::last_answer:
        case Op::ok:
        case Op::error:
        case Op::refused: return false;
    }
    return false;
}

// While keys come one by one, each is looked for twice: as it comes, and once more at the end, as some may have been
// deleted meanwhile.
bool ServerData::lacks_any(Waiter& waiter) const {
    for (std::size_t looks = waiter.keys.size(); looks > 0; --looks) {
        if (!map_.contains(waiter.keys[waiter.missing])) return true;
        waiter.missing = (waiter.missing + 1) % waiter.keys.size();
    }
    return false;
}

void ServerData::wait_for_keys(ConnectionId from, const FrameHeader& header, const Fields& keys) {
    const bool wants_values = header.op == Op::get;
    if (std::ranges::all_of(keys, [&](auto key) { return map_.contains(key); })) {
        answer_waiter(from, header.request, wants_values, keys);
    } else {
        wait_on({from, header.request, wants_values, {keys.begin(), keys.end()}});
    }
}

void ServerData::wait_on(Waiter waiter) {
    if (!lacks_any(waiter)) return answer_waiter(waiter.connection, waiter.request, waiter.wants_values, waiter.keys);
    Waiters& of_key = waiters_[waiter.keys[waiter.missing]];
    of_key.push_back(std::move(waiter));
    by_request_.emplace(std::pair(of_key.back().connection, of_key.back().request), std::prev(of_key.end()));
}

template <class Keys>
void ServerData::answer_waiter(ConnectionId to, Request request, bool wants_values, const Keys& keys) {
    if (!wants_values) return reply(to, request);
    answer_values_.clear();
    answer_fields_.clear();
    for (const auto& key : keys) answer_values_.push_back(map_.find(key));
    TUTTI_ASSERT(answer_values_.size() == keys.size());
    for (const auto& value : answer_values_) answer_fields_.push_back({*value, &value});
    TUTTI_ASSERT(answer_fields_.size() == keys.size());
    answer_(to, request, Op::ok, answer_fields_);
    answer_values_.clear();  // else a later set could not write in place
}

// An answer may end a connection, whose waits are dropped then: those that are on their way here are not among them.
void ServerData::came(std::string_view key) {
    if (waiters_.empty() || !map_.contains(key)) return;
    const auto found = waiters_.find(std::string(key));
    if (found == waiters_.end()) return;
    Waiters woken = std::move(found->second);
    waiters_.erase(found);
    for (auto waiter = woken.begin(); waiter != woken.end(); ++waiter) forget_request(waiter);
    for (Waiter& waiter : woken) wait_on(std::move(waiter));
}

void ServerData::forget_request(Waiters::iterator waiter) {
    const auto [first, last] = by_request_.equal_range({waiter->connection, waiter->request});
    const auto found = std::find_if(first, last, [&](const auto& entry) { return entry.second == waiter; });
    TUTTI_ASSERT(found != last);
    by_request_.erase(found);
}

template <class Range>
void ServerData::drop_waits_in(Range range) {
    for (auto at = range.first; at != range.second; ++at) {
        const auto of_key = waiters_.find(at->second->keys[at->second->missing]);
        TUTTI_ASSERT(of_key != waiters_.end());
        of_key->second.erase(at->second);
        if (of_key->second.empty()) waiters_.erase(of_key);
    }
    by_request_.erase(range.first, range.second);
}

void ServerData::welcome(ConnectionId worker, Request request) {
    const auto number = encode_number(workers_);
    const auto name = encode_number(worker);
    const std::array<Field, 4> fields{Field{{number.data(), number.size()}}, Field{address_},
                                      Field{door_for_ ? door_for_(worker) : std::string_view()},
                                      Field{{name.data(), name.size()}}};
    answer_(worker, request, Op::ok, std::span(fields).first(names_workers_ ? 4 : 3));
}

void ServerData::worker_came() {
    TUTTI_ASSERT(workers_ > 0 || !worker_waiters_.empty());
    std::erase_if(worker_waiters_, [this](const WorkerWaiter& waiter) {
        if (workers_ < waiter.count) return false;
        reply(waiter.connection, waiter.request);
        return true;
    });
}

void ServerData::cancel(ConnectionId from, std::uint64_t request) {
    drop_waits_in(by_request_.equal_range({from, request}));
    std::erase_if(worker_waiters_, [&](const auto& w) { return w.connection == from && w.request == request; });
}

// A will whose key exists is void; a client that joins one world after the other has a few at most.
void ServerData::set_will(ConnectionId from, std::string_view key, std::string_view value) {
    auto& wills = wills_[from];
    std::erase_if(wills, [&](const Will& will) { return will.key == key || map_.contains(will.key); });
    wills.push_back({std::string(key), std::string(value)});
    TUTTI_ASSERT(!wills.empty() && wills.back().key == key);
}

void ServerData::drop_waits(ConnectionId connection) {
    constexpr Request last = std::numeric_limits<Request>::max();
    drop_waits_in(std::pair(by_request_.lower_bound({connection, 0}), by_request_.upper_bound({connection, last})));
    std::erase_if(worker_waiters_, [&](const auto& waiter) { return waiter.connection == connection; });
}

void ServerData::save(const std::function<void(ConnectionId, Op, std::span<const std::string_view>)>& request) const {
    const auto send = [&](ConnectionId from, Op op, std::initializer_list<std::string_view> fields) {
        request(from, op, {fields.begin(), fields.size()});
    };
    const auto bytes = [](const std::array<char, 8>& number) { return std::string_view(number.data(), number.size()); };
    map_.for_each([&](std::string_view key, std::string_view value, const std::optional<std::int64_t>& counter) {
        if (!counter) return send(0, Op::set, {key, value});
        send(0, Op::add, {key, bytes(encode_number(static_cast<std::uint64_t>(*counter)))});
    });
    send(0, Op::workers, {bytes(encode_number(workers_))});
    for (const auto& [client, wills] : wills_) {
        for (const Will& will : wills) send(client, Op::set_will, {will.key, will.value});
    }
}

void ServerData::forget(ConnectionId connection) {
    drop_waits(connection);
    const auto found = wills_.find(connection);
    if (found == wills_.end()) return;
    const std::vector<Will> wills = std::move(found->second);
    wills_.erase(found);
    TUTTI_ASSERT(!wills.empty());
    for (const Will& will : wills) {
        if (map_.contains(will.key)) continue;
        map_.set(will.key, will.value);
        came(will.key);
    }
}

}  // namespace tutti::store
