#include "store/standby.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "store/follower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

namespace tutti::store {
namespace {

using namespace std::chrono_literals;

/// A witness is answered so soon, so that it knows that the server lives.
constexpr auto witness_time = 400ms;
/// A client that has not come from the lost server by then has ended, too.
constexpr auto coming_time = 5s;
/// What Op::follow puts before a request.
constexpr std::size_t follow_bytes = 64;

bool makes_change(Op op) {
    switch (op) {
        case Op::set:
        case Op::add:
        case Op::append:
        case Op::compare_set:
        case Op::delete_key:
        case Op::multi_set:
        case Op::join:
        case Op::post:
        case Op::set_will: return true;
        default: return false;
    }
}

std::int64_t nanoseconds(Instant when) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}
Instant instant(std::uint64_t number) {
    return Instant(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(number)));
}

/// The fields of a body that consists of this many numbers.
template <std::size_t count>
std::optional<std::array<std::uint64_t, count>> numbers_of(std::string_view body) {
    const auto fields = split_fields(body);
    if (!fields || fields->size() != count) return std::nullopt;
    std::array<std::uint64_t, count> numbers{};
    for (std::size_t i = 0; i < count; ++i) {
        const auto number = decode_number((*fields)[i]);
        if (!number) return std::nullopt;
        numbers[i] = *number;
    }
    return numbers;
}

void add_field(std::string& body, std::string_view field) {
    const auto size = encode_number(field.size());
    body.append(size.data(), size.size());
    body += field;
}

std::string text_of(std::initializer_list<std::uint64_t> numbers) {
    std::string text;
    for (const std::uint64_t number : numbers) {
        const auto bytes = encode_number(number);
        text.append(bytes.data(), bytes.size());
    }
    return text;
}

}  // namespace

Standby::Standby(ServerData& data, Loop loop, Follower* follower)
    : data_(data),
      loop_(std::move(loop)),
      follower_(follower),
      succession_(follower != nullptr, times()),
      role_(succession_.role()),
      told_standing_(follower != nullptr ? Standing::waits : Standing::serves) {
    data_.name_workers();
    if (follower_ != nullptr) other_ = follower_->primary();
}

std::string Standby::other_name() const {
    return net::to_string(other_);
}

ClientId Standby::client_of(ConnectionId connection) const {
    const auto found = resumed_.find(connection);
    return found == resumed_.end() ? connection : found->second;
}

bool Standby::handle(ConnectionId from, const FrameHeader& header, std::string_view body) {
    if (from == report_) return hear_standby(header, body);
    if (from == standby_) return false;  // nothing is said there
    switch (header.op) {
        case Op::witness: return hear_witness(from, header, body);
        case Op::resume: return resume(from, header, body);
        case Op::stand_by: return welcome_standby(from, header, body);
        case Op::report: return welcome_report(from, header, body);
        default: break;
    }
    if (!succession_.serves()) {
        const std::string words = fmt::format(
            "this server {} the one at {}, which serves the store",
            succession_.role() == Succession::Role::retired ? "has given way to" : "is the standby of", other_name());
        send_fields(from, header.request, Op::error, {words});
        return true;
    }
    if (makes_change(header.op)) return change(client_of(from), header, body);
    return header.op <= Op::set_will && data_.handle(client_of(from), header, body);
}

bool Standby::change(ClientId client, const FrameHeader& header, std::string_view body) {
    if (body.size() + follow_bytes > max_body_bytes) {
        const std::string words = fmt::format("a request of {} bytes: expected at most {} where a store has a standby",
                                              body.size(), max_body_bytes - follow_bytes);
        const Field field{words};
        answer(client, header.request, Op::error, {&field, 1});
        return true;
    }
    const auto known = clients_.find(client);
    if (header.posts != 0 && known != clients_.end()) {
        const auto& last = known->second;
        if (header.posts == last.change) {  // it has been made, and its answer was lost
            std::vector<Field> fields;
            const auto texts = split_fields(last.answer);
            TUTTI_ASSERT(texts.has_value());
            for (const auto text : *texts) fields.push_back({text});
            answer(client, header.request, last.op, fields);
            return true;
        }
        if (static_cast<std::int32_t>(header.posts - last.change) < 0) return false;
    }
    if (header.op == Op::join) clients_[client].connection = client;
    make_change(client, header.op, header.posts, header.request, body);
    return true;
}

// Both servers make the same changes in the same order. One that the data refuse is refused by both.
void Standby::make_change(ClientId client, Op op, std::uint32_t number, std::uint64_t request, std::string_view body) {
    follow(client, op, number, body);
    switch (op) {
        case Op::leave:
            succession_.left(client, seq_);
            clients_.erase(client);
            data_.forget(client);
            return;
        case Op::last_answer: {
            const auto fields = split_fields(body);
            TUTTI_ASSERT(fields && fields->size() == 2 && (*fields)[0].size() == 1);
            Client& known = clients_[client];
            known.change = number;
            known.op = static_cast<Op>((*fields)[0][0]);
            known.answer = (*fields)[1];
            succession_.came(client, seq_);
            return;
        }
        default: break;
    }
    if (op == Op::join) {
        (void)clients_[client];
        succession_.came(client, seq_);
    }
    changing_ = client;
    changing_request_ = request;
    changing_counts_ = number != 0 && clients_.contains(client);
    if (changing_counts_) clients_[client].change = number;
    const bool good = data_.handle(client, {op, request, body.size()}, body);
    changing_ = 0;
    changing_counts_ = false;
    if (!good && succession_.serves()) loop_.close(clients_.contains(client) ? clients_[client].connection : client);
}

void Standby::follow(ClientId client, Op op, std::uint32_t number, std::string_view body) {
    ++seq_;
    if (!succession_.has_standby()) return;
    const std::string what = text_of({client, static_cast<std::uint64_t>(op), number});
    send_fields(standby_, seq_, Op::follow, {what, body});
}

void Standby::send_fields(ConnectionId to, std::uint64_t request, Op op,
                          std::initializer_list<std::string_view> fields) {
    std::vector<Field> made;
    for (const auto field : fields) made.push_back({field});
    loop_.send(to, request, op, made);
}

void Standby::answer(ConnectionId client, std::uint64_t request, Op op, std::span<const Field> fields) {
    const auto known = clients_.find(client);
    if (changing_counts_ && client == changing_ && request == changing_request_) {
        known->second.op = op;
        known->second.answer.clear();
        for (const Field& field : fields) add_field(known->second.answer, field.bytes);
    }
    if (!succession_.serves()) return;
    const ConnectionId to = known == clients_.end() ? client : known->second.connection;
    if (to == 0) return;
    if (held_.empty() && succession_.may_answer(seq_, Clock::now())) return loop_.send(to, request, op, fields);
    Held& held = held_.emplace_back(Held{seq_, to, request, op, {}});
    for (const Field& field : fields) {
        if (field.value != nullptr)
            held.fields.emplace_back(std::string(), *field.value);
        else
            held.fields.emplace_back(field.bytes, nullptr);
    }
}

void Standby::release() {
    std::vector<Field> fields;
    while (!held_.empty() && succession_.may_answer(held_.front().seq, Clock::now())) {
        const Held held = std::move(held_.front());
        held_.pop_front();
        fields.clear();
        for (const auto& [bytes, value] : held.fields)
            fields.push_back(value ? Field{*value, &value} : Field{std::string_view(bytes)});
        loop_.send(held.to, held.request, held.op, fields);
    }
}

// ---- Clients

bool Standby::hear_witness(ConnectionId from, const FrameHeader& header, std::string_view body) {
    const auto numbers = numbers_of<3>(body);
    if (!numbers) return false;
    const auto [client, vote, seen] = *numbers;
    const Instant now = Clock::now();
    if (vote != 0) succession_.vote(client, vote, now);
    notice();
    const Witness witness{from, header.request, now + witness_time};
    if (seen != version_)
        tell(witness);
    else
        witnesses_.push_back(witness);
    return true;
}

void Standby::tell(const Witness& witness) {
    const bool hosts_standby = succession_.has_standby() && succession_.serves();
    const std::string standby = hosts_standby ? other_name() : std::string();
    const std::string version = text_of({version_}), standing = text_of({static_cast<std::uint64_t>(told_standing_)}),
                      asked = text_of({told_term_}), term = text_of({succession_.term()});
    send_fields(witness.connection, witness.request, Op::ok, {version, standing, asked, standby, term});
}

// The client's waits and its other requests come again.
bool Standby::resume(ConnectionId from, const FrameHeader& header, std::string_view body) {
    const auto numbers = numbers_of<1>(body);
    if (!numbers) return false;
    const auto known = clients_.find((*numbers)[0]);
    if (!succession_.serves() || known == clients_.end()) {
        if (!succession_.serves()) return send_fields(from, header.request, Op::error, {"it does not serve"}), true;
        return send_fields(from, header.request, Op::ok, {text_of({0})}), true;
    }
    const ConnectionId before = std::exchange(known->second.connection, from);
    resumed_[from] = known->first;
    data_.drop_waits(known->first);
    send_fields(from, header.request, Op::ok, {text_of({1})});
    if (before != 0 && before != from) loop_.close(before);
    return true;
}

void Standby::let_go(ClientId client) {
    if (clients_.contains(client))
        make_change(client, Op::leave, 0, 0, {});
    else
        data_.forget(client);
}

void Standby::gone(ConnectionId connection, bool in_order) {
    std::erase_if(witnesses_, [connection](const Witness& witness) { return witness.connection == connection; });
    if (connection == report_) {
        report_ = 0;
        return lose_other(other_, in_order);
    }
    if (connection == standby_) {  // what it reports tells how it ended, once it does
        standby_ = 0;
        if (report_ == 0) lose_other(other_, false);
        return;
    }
    const ClientId client = client_of(connection);
    resumed_.erase(connection);
    if (!succession_.serves()) return;
    const auto known = clients_.find(client);
    if (known != clients_.end() && known->second.connection != connection) return;  // it has come again
    let_go(client);
}

// ---- The primary

bool Standby::welcome_standby(ConnectionId from, const FrameHeader& header, std::string_view body) {
    const auto numbers = numbers_of<1>(body);
    if (!numbers || (*numbers)[0] == 0 || (*numbers)[0] > std::numeric_limits<std::uint16_t>::max()) return false;
    if (succession_.role() != Succession::Role::alone || succession_.has_standby()) {
        const std::string words = succession_.serves()
                                      ? fmt::format("the store has a standby already, at {}", other_name())
                                      : std::string("this server does not serve the store itself");
        send_fields(from, header.request, Op::error, {words});
        return true;
    }
    standby_ = from;
    report_ = 0;
    other_ = {loop_.host_of(from), static_cast<std::uint16_t>((*numbers)[0])};
    send_fields(from, header.request, Op::ok, {text_of({from})});
    return true;
}

bool Standby::welcome_report(ConnectionId from, const FrameHeader& header, std::string_view body) {
    const auto numbers = numbers_of<1>(body);
    if (!numbers || (*numbers)[0] == 0 || (*numbers)[0] != standby_ || report_ != 0) return false;
    report_ = from;
    send_fields(from, header.request, Op::ok, {});
    return true;
}

bool Standby::hear_standby(const FrameHeader& header, std::string_view body) {
    if (header.op == Op::goes_on) {
        TUTTI_WARN("TCPStore server: the standby at {} has taken over; this server ends its clients' connections",
                   other_name());
        succession_.other_goes_on();
        notice();
        return false;
    }
    if (header.op != Op::have) return false;
    if (!succession_.has_standby()) {  // it is ready
        if (succession_.role() != Succession::Role::alone) return false;
        send_everything();
        return true;
    }
    const auto numbers = numbers_of<3>(body);
    if (!numbers || (*numbers)[0] > seq_) return false;
    const auto [seq, pulse, asked] = *numbers;
    const bool was_alone = succession_.role() == Succession::Role::alone;
    if (succession_.acked(seq, instant(pulse), asked != 0, Clock::now())) begin_term();
    if (was_alone && succession_.role() == Succession::Role::paired)
        TUTTI_INFO("TCPStore server: the standby at {} has the store's contents", other_name());
    release();
    notice();
    return true;
}

void Standby::send_everything() {
    // The contents are changes, too; those that come now follow them.
    succession_.begin_pair(seq_ + 1);
    const std::uint64_t before = seq_;
    data_.save([&](ConnectionId client, Op op, std::span<const std::string_view> fields) {
        std::string body;
        for (const auto field : fields) add_field(body, field);
        const std::string what = text_of({client, static_cast<std::uint64_t>(op), 0});
        send_fields(standby_, before, Op::follow, {what, body});
    });
    for (const auto& [id, client] : clients_) {
        std::string body;
        const char op = static_cast<char>(client.op);
        add_field(body, {&op, 1});
        add_field(body, client.answer);
        const std::string what = text_of({id, static_cast<std::uint64_t>(Op::last_answer), client.change});
        send_fields(standby_, before, Op::follow, {what, body});
    }
    ++seq_;
    const std::string what = text_of({0, static_cast<std::uint64_t>(Op::multi_set), 0});  // of nothing: the end
    send_fields(standby_, seq_, Op::follow, {what, std::string_view()});
    pulsed_ = {};
    look();
}

void Standby::begin_term() {
    const Term term = succession_.new_term(++seq_);
    const std::string text = text_of({term});
    send_fields(standby_, seq_, Op::term, {text});
}

// ---- The standby

void Standby::hear_primary() {
    std::string bytes;
    const Follower::State state = follower_->take(bytes);
    const bool serves = succession_.serves() || succession_.role() == Succession::Role::retired;
    if (!bytes.empty() && !serves) {
        succession_.heard(Clock::now());
        const bool good = frames_.feed(bytes, [this](const FrameHeader& header, const FrameBody& body) {
            return take(header, body.view()) && succession_.role() != Succession::Role::retired;
        });
        if (succession_.role() != Succession::Role::retired) {
            if (!good) TUTTI_WARN("TCPStore standby: the primary sent what is not the protocol of a store");
            std::string body;
            const auto pulse = static_cast<std::uint64_t>(heard_pulse_);
            for (const std::uint64_t number : {seq_, pulse, std::uint64_t{succession_.has_asked() ? 1U : 0U}})
                add_field(body, text_of({number}));
            const auto header = encode({Op::have, 0, body.size()});
            if (good) follower_->send(std::string(header.data(), header.size()) + body);
        }
    }
    if (state != Follower::State::open && !std::exchange(primary_lost_, true) && !serves)
        lose_other(follower_->primary(), state == Follower::State::ended);
}

bool Standby::take(const FrameHeader& header, std::string_view body) {
    switch (header.op) {
        case Op::ok: return true;  // to stand_by
        case Op::pulse: {
            const auto numbers = numbers_of<1>(body);
            if (numbers) heard_pulse_ = static_cast<std::int64_t>((*numbers)[0]);
            return numbers.has_value();
        }
        case Op::term: {
            const auto numbers = numbers_of<1>(body);
            if (!numbers || (*numbers)[0] <= succession_.term()) return false;
            seq_ = header.request;
            succession_.follow((*numbers)[0], Clock::now());
            return true;
        }
        case Op::goes_on:
            TUTTI_WARN("TCPStore standby: the primary at {} goes on without this standby, of which it heard nothing",
                       other_name());
            succession_.other_goes_on();
            return true;
        case Op::follow: {
            const auto fields = split_fields(body);
            if (!fields || fields->size() != 2 || (*fields)[0].size() != 24) return false;
            const std::string_view what = (*fields)[0];
            const auto number = [&](std::size_t at) { return *decode_number(what.substr(8 * at, 8)); };
            make_change(number(0), static_cast<Op>(number(1)), static_cast<std::uint32_t>(number(2)), 0, (*fields)[1]);
            seq_ = header.request;
            return true;
        }
        default: return false;
    }
}

// ---- Both

void Standby::lose_other(const net::Address& other, bool in_order) {
    if (succession_.role() == Succession::Role::retired) return;
    const auto before = succession_.role();
    if (before == Succession::Role::alone) {
        succession_.other_ended(false, in_order, Clock::now());
        return notice();
    }
    const bool gone = nobody_listens(other);
    succession_.other_ended(gone, in_order, Clock::now());
    notice();
    if (succession_.role() == before && !expects_end_)
        TUTTI_WARN("TCPStore server: the connection to the {} at {} has ended, {}; the clients are asked who goes on",
                   follower_ == nullptr ? "standby" : "primary", net::to_string(other),
                   gone ? "not in order" : "though somebody listens there");
}

/// Acts on what has changed.
void Standby::notice() {
    using Role = Succession::Role;
    const Instant now = Clock::now();
    const Role before = role_, role = succession_.role();
    role_ = role;
    if (role == Role::alone && (before == Role::paired || before == Role::following)) {
        const auto word = encode({Op::goes_on, 0, 0});
        if (before == Role::following) {
            follower_->send({word.data(), word.size()});
            came_to_power_ = now;
            if (!expects_end_)
                TUTTI_WARN("TCPStore standby: the primary at {} is lost; this server serves the store now",
                           other_name());
        } else {
            if (standby_ != 0) loop_.send_last(std::exchange(standby_, 0), Op::goes_on);
            report_ = 0;
            if (!expects_end_)
                TUTTI_WARN("TCPStore server: the standby at {} is lost; the store goes on without one", other_name());
            release();
        }
    }
    const Standing standing = !succession_.serves()     ? Standing::waits
                              : succession_.doubts(now) ? Standing::doubts
                                                        : Standing::serves;
    const Term asked = succession_.asks(now) ? succession_.term() : 0;
    if (standing == told_standing_ && asked == told_term_ && role == before) return;
    told_standing_ = standing;
    told_term_ = asked;
    ++version_;
    for (const Witness& witness : std::exchange(witnesses_, {})) tell(witness);
    if (role == Role::retired && before != role) {
        held_.clear();
        std::vector<ConnectionId> connections;
        for (const auto& [id, client] : clients_) connections.push_back(client.connection);
        for (const ConnectionId connection : connections) {
            if (connection != 0) loop_.close(connection);
        }
    }
}

void Standby::look() {
    const Instant now = Clock::now();
    if (follower_ != nullptr) hear_primary();
    if (succession_.has_standby() && standby_ != 0 && report_ != 0 && now >= pulsed_ + times().pulse / 2) {
        pulsed_ = now;
        const std::string time = text_of({static_cast<std::uint64_t>(nanoseconds(now))});
        send_fields(standby_, 0, Op::pulse, {time});
    }
    if (came_to_power_ && now >= *came_to_power_ + coming_time) {
        came_to_power_.reset();
        std::vector<ClientId> missing;
        for (const auto& [id, client] : clients_) {
            if (client.connection == 0) missing.push_back(id);
        }
        for (const ClientId client : missing) let_go(client);
    }
    notice();
    const auto due = [now](const Witness& witness) { return now >= witness.until; };
    for (const Witness& witness : witnesses_) {
        if (due(witness)) tell(witness);
    }
    std::erase_if(witnesses_, due);
}

}  // namespace tutti::store
