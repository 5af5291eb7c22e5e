#include "scale/simulated_meeting.hpp"

#include "core/assert.hpp"
#include "core/rank_list.hpp"
#include "rendezvous/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

namespace tutti::bench {
namespace {

using rendezvous::Meeting;
using rendezvous::StoreRequest;
using rendezvous::StoreTalk;
using store::Op;

constexpr std::string_view stand_in = "stands for the table of all cards";
/// As rendezvous::perform() reads: see there.
constexpr std::string_view nothing = "\x01no value";

double seconds(Clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

struct SimulatedMeeting::Event {
    enum Kind { come, request, answer, patience_over };
    Instant when;
    std::uint64_t number = 0;
    Kind kind = come;
    std::uint64_t rank = 0, request_number = 0;
    Op op{};
    std::string body{};
    std::vector<std::string> fields{};
    bool operator<(const Event& other) const { return when != other.when ? when > other.when : number > other.number; }
};

struct SimulatedMeeting::Rank {
    std::uint64_t number = 0;
    std::unique_ptr<Meeting> meeting{};
    std::optional<StoreTalk<Met>> talk{};
    rendezvous::TalkLine line{};
    std::uint64_t request = 0, requests = 0;
    std::string card{};
};

SimulatedMeeting::SimulatedMeeting(Kind kind, int ranks, int ranks_per_host, Costs costs)
    : kind_(kind),
      ranks_per_host_(ranks_per_host),
      costs_(costs),
      data_([this](auto to, auto request, Op, auto fields) { take_answer(to, request, fields); }) {
    TUTTI_ASSERT(ranks > 1 && ranks_per_host > 0);
    Clock::simulate(&now_);
    for (int rank = 0; rank < ranks; ++rank) {
        ranks_.push_back(std::make_unique<Rank>());
        ranks_.back()->number = static_cast<std::uint64_t>(rank);
        add({.when = now_ + costs_.within * rank / ranks, .kind = Event::come, .rank = ranks_.back()->number});
    }
}

SimulatedMeeting::~SimulatedMeeting() {
    Clock::simulate(nullptr);
}

// ---- The ranks

MeetingTerms SimulatedMeeting::terms_of(int rank) const {
    const int size = static_cast<int>(ranks_.size());
    MeetingTerms terms{.place = {},
                       .name = "world/default_pg",
                       .rank = rank,
                       .size = size,
                       .timeout = std::chrono::hours(1),
                       .operation = "init",
                       .about = fmt::format("of {} ranks", size)};
    if (kind_ == Kind::world) return terms;
    terms.members.resize(ranks_.size());
    std::iota(terms.members.begin(), terms.members.end(), 0);
    terms.name = fmt::format("group/default_pg/meetings/{}:{:016x}#0", size, 1);
    terms.about = "of " + rank_list(terms.members);
    terms.words = "makes the group of " + rank_list(terms.members);
    terms.operation = "new_group";
    terms.once = true;
    return terms;
}

std::string SimulatedMeeting::card_of(int rank) const {
    if (kind_ == Kind::group) return rank == 0 ? "1 65536" : "";
    const int host = rank / ranks_per_host_;
    rendezvous::Card card;
    card.listen_host = fmt::format("10.{}.{}.{}", host >> 16, host >> 8 & 255, host & 255);
    card.listen_port = static_cast<std::uint16_t>(32'768 + rank % 28'000);
    card.local_endpoint = fmt::format("tutti/lifelines/{}/{:016x}", 20'000 + rank, 0x9e3779b97f4a7c15ULL * (rank + 1U));
    card.host_key = fmt::format("6e2a4c1f-7d0b-4a38-9f55-{:012x}/4026531839/4026531840/1000", host);
    card.host_name = fmt::format("node{:05}", host);
    card.process = 20'000 + rank;
    card.process_space = 4'026'531'836;
    card.pulse_port = static_cast<std::uint16_t>(32'768 + rank % 27'000);
    card.place_to_try = 0x7f0000000000 + 4096ULL * static_cast<unsigned>(rank);
    return encode(card);
}

std::string SimulatedMeeting::conclude(const std::vector<std::string>& cards) {
    rendezvous::Table table{.world = 0x0123456789abcdef, .secret = std::string(64, 's')};
    for (const std::string& card : cards)
        table.cards.push_back(rendezvous::decode_card(card, static_cast<int>(table.cards.size())));
    figures_.outcome_bytes = static_cast<double>(encode(table).size());
    return std::string(stand_in);
}

void SimulatedMeeting::ask(Rank& rank) {
    if (rank.talk->is_over()) {
        (void)rank.talk->result();
        ++figures_.met;
        return;
    }
    const StoreRequest& wanted = rank.line.request;
    const std::string& key = wanted.keys.front();
    ++rank.request;
    ++rank.requests;
    const auto ask_for = [&](Op op, std::initializer_list<std::string_view> fields) {
        send(rank, op, rank.request, {fields.begin(), fields.size()});
    };
    switch (wanted.kind) {
        case StoreRequest::read: return ask_for(Op::compare_set, {key, nothing, nothing});
        case StoreRequest::check: {
            const std::vector<std::string_view> keys(wanted.keys.begin(), wanted.keys.end());
            return send(rank, Op::check, rank.request, keys);
        }
        case StoreRequest::write: return ask_for(Op::set, {key, wanted.value});
        case StoreRequest::compare_set: return ask_for(Op::compare_set, {key, wanted.expected, wanted.value});
        case StoreRequest::will: return ask_for(Op::set_will, {key, wanted.value});
        case StoreRequest::await:
        case StoreRequest::await_one: {
            const std::vector<std::string_view> keys(wanted.keys.begin(), wanted.keys.end());
            send(rank, Op::get, rank.request, keys);
            return add({.when = now_ + wanted.patience,
                        .kind = Event::patience_over,
                        .rank = rank.number,
                        .request_number = rank.request});
        }
        case StoreRequest::add:
        case StoreRequest::append:
        case StoreRequest::remove: TUTTI_ASSERT(false);
    }
}

void SimulatedMeeting::go_on(Rank& rank, std::vector<std::string> fields) {
    const StoreRequest& asked = rank.line.request;
    const bool is_read = asked.kind == StoreRequest::read, is_check = asked.kind == StoreRequest::check;
    const bool is_none = (is_read && fields.at(0) == nothing) || (is_check && store::decode_number(fields.at(0)) == 0U);
    rank.line.answer = {};
    if (asked.kind == StoreRequest::will)
        rank.line.answer.values = {""};
    else if (!is_none)
        rank.line.answer.values = std::move(fields);
    StoreTalk<Met>::go_on(rank.line);
    ask(rank);
}

// ---- The store and the way there

void SimulatedMeeting::add(Event event) {
    event.number = next_event_++;
    events_.push_back(std::move(event));
    std::push_heap(events_.begin(), events_.end());
}

// When so many bytes more are through.
Instant SimulatedMeeting::carry(Instant& busy, std::size_t bytes) const {
    const auto time = std::chrono::duration<double, std::nano>(static_cast<double>(bytes) * 8 / costs_.gbit);
    return busy = std::max(busy, now_) + std::chrono::duration_cast<Clock::duration>(time);
}

void SimulatedMeeting::send(Rank& rank, Op op, std::uint64_t request, std::span<const std::string_view> fields) {
    std::string body;
    for (const std::string_view field : fields) {
        const auto size = store::encode_number(field.size());
        body.append(size.data(), size.size()).append(field);
    }
    ++figures_.requests;
    const std::size_t bytes = store::header_bytes + body.size();
    figures_.bytes_in += static_cast<double>(bytes);
    add({.when = carry(in_busy_, bytes) + costs_.latency,
         .kind = Event::request,
         .rank = rank.number,
         .request_number = request,
         .op = op,
         .body = std::move(body)});
}

void SimulatedMeeting::take_answer(std::uint64_t to, std::uint64_t request, std::span<const store::Field> fields) {
    Event event{.when = {}, .kind = Event::answer, .rank = to, .request_number = request};
    std::size_t bytes = store::header_bytes;
    for (const store::Field& field : fields) {
        const bool has_table = field.bytes.find(stand_in) != std::string_view::npos;
        bytes += store::field_header_bytes + field.bytes.size();
        if (has_table) bytes += static_cast<std::size_t>(figures_.outcome_bytes);
        event.fields.emplace_back(field.bytes);
    }
    figures_.bytes_out += static_cast<double>(bytes);
    if (kind_ == Kind::group && to != 0)
        figures_.outcome_bytes = std::max(figures_.outcome_bytes, static_cast<double>(bytes));
    server_busy_ += costs_.message;
    event.when = std::max(server_busy_, carry(out_busy_, bytes)) + costs_.latency;
    add(std::move(event));
}

void SimulatedMeeting::handle(Event& event) {
    Rank& rank = this->rank(event.rank);
    switch (event.kind) {
        case Event::come: {
            const int number = static_cast<int>(rank.number);
            Meeting::Caller caller{.card = [this, number] { return card_of(number); }};
            if (kind_ == Kind::world) caller.conclude = [this](const auto& cards) { return conclude(cards); };
            rank.meeting = std::make_unique<Meeting>(
                terms_of(number), std::move(caller),
                Meeting::Surroundings{.own = {.space = fmt::format("host{}", number / ranks_per_host_),
                                              .number = number + 1,
                                              .started = 1,
                                              .in_words = fmt::format("process {} on node{:05}", 20'000 + number,
                                                                      number / ranks_per_host_)},
                                      .has_ended = [](const rendezvous::MeetingProcess&) { return false; },
                                      .random = [this] { return 0x9e3779b97f4a7c15ULL * ++next_event_; }});
            rank.talk.emplace(rank.meeting->run());
            rank.talk->start(rank.line);
            return ask(rank);
        }
        case Event::request: {
            server_busy_ = std::max(server_busy_, now_) + costs_.message;
            const auto begun = std::chrono::steady_clock::now();
            const bool is_good =
                data_.handle(event.rank, {event.op, event.request_number, event.body.size()}, event.body);
            figures_.store_cpu_s += seconds(std::chrono::steady_clock::now() - begun);
            TUTTI_ASSERT(is_good);
            return;
        }
        case Event::answer:
            if (event.request_number != rank.request) return;  // too late
            return go_on(rank, std::move(event.fields));
        case Event::patience_over:
            if (event.request_number != rank.request || rank.talk->is_over()) return;
            send(rank, Op::cancel, event.request_number, {});
            ++rank.request;  // no answer to that one counts any more
            rank.line.answer = {};
            StoreTalk<Met>::go_on(rank.line);
            return ask(rank);
    }
}

SimulatedMeeting::Figures SimulatedMeeting::run() {
    const Instant begun = now_;
    while (!events_.empty() && std::cmp_less(figures_.met, ranks_.size())) {
        std::pop_heap(events_.begin(), events_.end());
        Event event = std::move(events_.back());
        events_.pop_back();
        now_ = event.when;
        handle(event);
    }
    figures_.seconds = seconds(now_ - begun);
    figures_.card_bytes = static_cast<double>(card_of(1).size());
    figures_.of_rank_0 = ranks_.front()->requests;
    for (const auto& rank : ranks_) {
        if (rank->number != 0) figures_.of_another = std::max(figures_.of_another, rank->requests);
    }
    return figures_;
}

}  // namespace tutti::bench
