#include "store/server_data.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <utility>

namespace tutti::store {
namespace {

Value text(std::string value) {
    return std::make_shared<const std::string>(std::move(value));
}

Value number(std::uint64_t value) {
    const auto bytes = encode_number(value);
    return text(std::string(bytes.data(), bytes.size()));
}

}  // namespace

bool ServerData::handle(ConnectionId from, const FrameHeader& header, std::string_view body) {
    const auto fields = split_fields(body);
    if (!fields) return false;
    try {
        return perform(from, header, *fields);
    } catch (const DistError& error) {
        answer_(from, header.request, Op::error, {text(error.what())});
        return true;
    }
}

bool ServerData::perform(ConnectionId from, const FrameHeader& header, const Fields& fields) {
    const auto request = header.request;
    const auto flag = [](bool value) { return number(value ? 1 : 0); };
    const auto keys = [&] { return std::vector<std::string>(fields.begin(), fields.end()); };
    switch (header.op) {
        case Op::set:
        case Op::multi_set:
            if (fields.size() % 2 != 0 || (header.op == Op::set && fields.size() != 2)) return false;
            for (std::size_t i = 0; i < fields.size(); i += 2) map_.set(fields[i], std::string(fields[i + 1]));
            reply(from, request);
            for (std::size_t i = 0; i < fields.size(); i += 2) came(fields[i]);
            return true;
        case Op::append:
            if (fields.size() != 2) return false;
            map_.append(fields[0], fields[1]);
            reply(from, request);
            came(fields[0]);
            return true;
        case Op::add: {
            const auto amount = fields.size() == 2 ? decode_number(fields[1]) : std::nullopt;
            if (!amount) return false;
            reply(from, request,
                  {number(static_cast<std::uint64_t>(map_.add(fields[0], static_cast<std::int64_t>(*amount))))});
            came(fields[0]);
            return true;
        }
        case Op::compare_set:
            if (fields.size() != 3) return false;
            reply(from, request, {text(map_.compare_set(fields[0], fields[1], fields[2]))});
            came(fields[0]);
            return true;
        case Op::delete_key:
            if (fields.size() != 1) return false;
            reply(from, request, {flag(map_.erase(fields[0]))});
            return true;
        case Op::check:
            reply(from, request, {flag(std::ranges::all_of(fields, [&](auto key) { return map_.contains(key); }))});
            return true;
        case Op::num_keys:
            // One more than the user's: the number of workers is kept as if under a key of its own.
            reply(from, request, {number(map_.size() + 1)});
            return true;
        case Op::get:
        case Op::wait: wait_for_keys({from, request, header.op == Op::get, keys()}); return true;
        case Op::join:
            ++workers_;
            reply(from, request, {number(workers_)});
            worker_came();
            return true;
        case Op::await_workers: {
            const auto count = fields.size() == 1 ? decode_number(fields[0]) : std::nullopt;
            if (!count) return false;
            worker_waiters_.push_back({from, request, *count});
            worker_came();
            return true;
        }
        case Op::count_workers: reply(from, request, {number(workers_)}); return true;
        case Op::cancel: cancel(from, request); return true;
        case Op::ok:
        case Op::error: return false;
    }
    return false;
}

const std::string* ServerData::missing(const Waiter& waiter) const {
    const auto found = std::ranges::find_if(waiter.keys, [&](const auto& key) { return !map_.contains(key); });
    return found == waiter.keys.end() ? nullptr : &*found;
}

void ServerData::wait_for_keys(Waiter waiter) {
    if (const std::string* key = missing(waiter)) {
        waiters_.emplace(std::string(*key), std::move(waiter));
    } else {
        answer_waiter(waiter);
    }
}

void ServerData::answer_waiter(const Waiter& waiter) {
    std::vector<Value> values;
    if (waiter.wants_values) {
        values.reserve(waiter.keys.size());
        for (const auto& key : waiter.keys) values.push_back(map_.find(key));
    }
    reply(waiter.connection, waiter.request, std::move(values));
}

void ServerData::came(std::string_view key) {
    if (waiters_.empty() || !map_.contains(key)) return;
    const auto [first, last] = waiters_.equal_range(std::string(key));
    std::vector<Waiter> woken;
    for (auto at = first; at != last; ++at) woken.push_back(std::move(at->second));
    waiters_.erase(first, last);
    for (auto& waiter : woken) wait_for_keys(std::move(waiter));
}

void ServerData::worker_came() {
    std::erase_if(worker_waiters_, [this](const WorkerWaiter& waiter) {
        if (workers_ < waiter.count) return false;
        reply(waiter.connection, waiter.request);
        return true;
    });
}

void ServerData::cancel(ConnectionId from, std::uint64_t request) {
    std::erase_if(waiters_, [&](const auto& entry) {
        return entry.second.connection == from && entry.second.request == request;
    });
    std::erase_if(worker_waiters_, [&](const auto& w) { return w.connection == from && w.request == request; });
}

void ServerData::forget(ConnectionId connection) {
    std::erase_if(waiters_, [&](const auto& entry) { return entry.second.connection == connection; });
    std::erase_if(worker_waiters_, [&](const auto& waiter) { return waiter.connection == connection; });
}

}  // namespace tutti::store
