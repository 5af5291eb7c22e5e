#include "simulation/job.hpp"

#include "algorithm/plan.hpp"
#include "schedule/symbols.hpp"
#include "support/request_of.hpp"
#include "support/symbol_numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::simulation {
namespace {

using algorithm::Request;
using detail::Channel;
using rendezvous::Verdict;
using rendezvous::VerdictKind;
using schedule::Contract;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::Finding;
using transport::Transfer;

constexpr milliseconds time_limit{60'000}, between_checks{10}, between_probes{200};

std::byte byte_of(std::size_t message, std::size_t at) {
    return static_cast<std::byte>(message * 31 + at * 7 + at / 251);
}

constexpr std::uint64_t ways = 4;

}  // namespace

enum class Job::Way : std::uint8_t { receive, probe, claim, release };

// Of the script: a collective, or messages (from != to) of all ranks' pairs that it names.
struct Job::Step {
    std::vector<schedule::Schedule> schedules;  // by rank; empty: a message
    Contract contract{};
    std::uint64_t sequence = 0, fingerprint = 0;
    int from = -1, to = -1;
    std::size_t bytes = 0, tag = 0;
    bool any_source = false;
    Way way = Way::receive;
    bool paced = false;  // both ends wait for it before they go on
    bool late = false;   // it meets its receive when all else of the script is over
    // Rank culprit_ calls this instead.
    std::shared_ptr<Step> instead{};
};

struct Job::Message {
    std::size_t number = 0;
    Way way = Way::receive;
    bool receives = false;
    Transfer transfer;
    std::vector<std::byte> bytes;
};

class Job::Rank final : public transport::Calls {
 public:
    Rank(Job& job, int rank)
        : job_(job), rank_(rank), mailbox_(rank, job.size_, job.seed_, job.network_.streams_of(rank), *this) {
        context_.mailbox = &mailbox_;
        context_.rank = rank;
        context_.local_of.assign(static_cast<std::size_t>(job.size_), -1);
        for (int peer = 0; peer < job.size_; ++peer) {
            if (peer != rank) mailbox_.activate(peer);
        }
    }

    bool turn();
    void check();
    void fail(const Verdict& verdict);
    bool over() const { return finished_ || verdict_ || dead_; }
    std::string state() const;

    std::uint64_t fingerprint_of(std::uint64_t channel) const override {
        const std::uint64_t sequence = Channel::sequence(channel);
        return sequence < begun_.size() ? begun_[sequence] : 0;
    }
    bool has_finished(std::uint64_t channel) const override {
        const std::uint64_t sequence = Channel::sequence(channel);
        return sequence < begun_.size() && !(execution_ && sequence == begun_.size() - 1);
    }
    bool has_sent_all(int peer, std::uint64_t channel) const override {
        return has_finished(channel) ||
               (execution_ && Channel::sequence(channel) == begun_.size() - 1 && execution_->has_sent_all(peer));
    }

    bool dead_ = false, finished_ = false;
    std::optional<Verdict> verdict_;
    detail::Health health_{rank_};

 private:
    bool begin_next();
    void begin(const Step& step);
    void post(const Step& step, std::size_t number);
    void receive_found(Message& message);
    void look_around();
    void check_found(const Transfer& found);
    bool finish_collective();
    bool finish_messages();
    bool heed_mailbox();
    void blame(const Verdict& verdict);
    std::vector<int> waits_for() const;

    Job& job_;
    int rank_;
    transport::Mailbox mailbox_;
    engine::RankContext context_;
    std::size_t next_ = 0;
    std::vector<std::uint64_t> begun_{0};  // fingerprints by sequence; there is no collective 0
    const Step* step_ = nullptr;
    std::vector<std::int64_t> memory_;
    std::size_t outputs_at_ = 0;
    std::optional<engine::Execution> execution_;
    std::list<Message> messages_;
    std::vector<std::size_t> late_;  // receives that are yet to be posted
    Instant since_{}, next_probe_{};
};

bool Job::Rank::turn() {
    if (health_.has_news()) {
        fail(health_.take_news());
        return true;
    }
    bool moved = mailbox_.progress();
    if (!heed_mailbox()) return true;
    if (below(job_.chance_, 30) == 0) look_around();
    if (execution_) {
        moved |= execution_->progress();
        if (!heed_mailbox()) return true;
        if (execution_->done()) moved |= finish_collective();
        if (!heed_mailbox()) return true;
    }
    moved |= finish_messages();
    if (!execution_) moved |= begin_next();
    if (!heed_mailbox()) return true;
    const bool waits = execution_ || !messages_.empty() || job_.awaits_surplus(rank_);
    if (next_ == job_.script_.size() && !waits && mailbox_.finish().empty()) {
        finished_ = true;
        return true;
    }
    if (moved) since_ = job_.now_;
    return moved;
}

bool Job::Rank::begin_next() {
    if (next_ == job_.script_.size()) {
        for (const std::size_t number : late_) post(job_.script_[number], number);
        return !std::exchange(late_, {}).empty();
    }
    if (next_ > 0 && job_.script_[next_ - 1].paced &&
        std::ranges::any_of(messages_, [&](const Message& message) { return message.number == next_ - 1; }))
        return false;
    const Step& planned = job_.script_[next_];
    const Step& step = planned.instead && rank_ == job_.culprit_ ? *planned.instead : planned;
    if (!step.schedules.empty())
        begin(step);
    else if (step.late && step.to == rank_)
        late_.push_back(next_);
    else if (step.from == rank_ || step.to == rank_)
        post(step, next_);
    ++next_;
    return true;
}

void Job::Rank::begin(const Step& step) {
    step_ = &step;
    const auto [input, output] = schedule::starting_with(rank_, job_.size_, step.contract);
    memory_.assign(input.size() + output.size(), symbols::untouched);
    outputs_at_ = input.size();
    symbols::fill(memory_.data(), input);
    symbols::fill(memory_.data() + outputs_at_, output);
    const std::uint64_t channel = Channel::of_collective(0, step.sequence);
    begun_.push_back(step.fingerprint);
    mailbox_.checks().check_unexpected(channel, step.fingerprint);
    const engine::Operands operands{.input = reinterpret_cast<std::byte*>(memory_.data()),
                                    .output = reinterpret_cast<std::byte*>(memory_.data() + outputs_at_),
                                    .dtype = DType::int64,
                                    .channel = channel,
                                    .fingerprint = step.fingerprint};
    execution_.emplace(std::make_shared<schedule::Schedule>(step.schedules[static_cast<std::size_t>(rank_)]), operands,
                       context_);
}

void Job::Rank::post(const Step& step, std::size_t number) {
    Message& message = messages_.emplace_back();
    message.number = number;
    message.receives = step.to == rank_;
    message.bytes.resize(step.bytes);
    message.transfer.peer = message.receives ? (step.any_source ? transport::any_source : step.from) : step.to;
    message.transfer.channel = Channel::of_message(0, step.tag);
    message.transfer.bytes = step.bytes;
    if (message.receives) {
        message.way = step.way;
        message.transfer.target = message.bytes.data();
        if (step.way != Way::receive) {
            message.transfer.match = step.way == Way::probe ? Transfer::Match::probe : Transfer::Match::claim;
            message.transfer.bytes = 0;
        }
        mailbox_.post_receive(message.transfer);
        return;
    }
    for (std::size_t i = 0; i < step.bytes; ++i) message.bytes[i] = byte_of(number, i);
    message.transfer.source = message.bytes.data();
    mailbox_.post_send(message.transfer);
}

// A probe or claim has found the message.
void Job::Rank::receive_found(Message& message) {
    Transfer& transfer = message.transfer;
    check_found(transfer);
    if (transfer.bytes != message.bytes.size()) {
        job_.wrong_ =
            fmt::format("rank {}: a probe finds {} bytes instead of message {}", rank_, transfer.bytes, message.number);
        return;
    }
    if (message.way == Way::release) mailbox_.release(transfer.channel, transfer.number);
    if (message.way != Way::claim) transfer.number = 0;
    transfer.match = Transfer::Match::take;
    mailbox_.post_receive(transfer);
}

// For any message: it is one that this rank has yet to receive.
void Job::Rank::look_around() {
    Transfer look;
    look.match = below(job_.chance_, 2) == 0 ? Transfer::Match::probe : Transfer::Match::claim;
    look.channel = Channel::of_message(0, 0);
    look.channel_bits = ~Channel::tag_mask;
    mailbox_.post_receive(look);
    if (!look.done && !mailbox_.cancel_receive(look)) job_.wrong_ = "a probe that waits cannot be cancelled";
    if (!look.done) return;
    check_found(look);
    if (look.match == Transfer::Match::claim) mailbox_.release(look.channel, look.number);
}

void Job::Rank::check_found(const Transfer& found) {
    const std::size_t tag = Channel::number(found.channel);
    const Step* const step = tag < job_.script_.size() ? &job_.script_[tag] : nullptr;
    if (step == nullptr || step->to != rank_ || step->from != found.peer || step->bytes != found.bytes)
        job_.wrong_ = fmt::format("rank {}: a probe finds a message of {} bytes with tag {} from rank {}", rank_,
                                  found.bytes, tag, found.peer);
}

bool Job::Rank::finish_collective() {
    const Contract& contract = step_->contract;
    schedule::Values values;
    for (std::size_t i = outputs_at_; i < memory_.size(); ++i)
        values.push_back(symbols::symbol_of(memory_[i], symbols::reduces(contract.collective)));
    const std::string wrong = schedule::wrong_with(values, rank_, job_.size_, contract);
    // A collective that a rank calls differently has no right result.
    const bool agreed = (job_.fault_ != Fault::mismatch && job_.fault_ != Fault::surplus) ||
                        step_->sequence < job_.script_.back().sequence;
    if (!wrong.empty() && agreed)
        job_.wrong_ = fmt::format("rank {}, {} #{}: {}", rank_, to_string(contract.collective), step_->sequence, wrong);
    execution_.reset();
    if (traits_of(contract.collective).exchanges())
        mailbox_.checks().check_surplus(Channel::of_collective(0, step_->sequence), step_->fingerprint);
    return true;
}

bool Job::Rank::finish_messages() {
    bool found = false;
    for (Message& message : messages_) {
        if (!message.transfer.done || message.transfer.match == Transfer::Match::take) continue;
        receive_found(message);
        found = true;
    }
    return std::erase_if(messages_,
                         [&](const Message& message) {
                             if (!message.transfer.done || message.transfer.match != Transfer::Match::take)
                                 return false;
                             for (std::size_t i = 0; message.receives && i < message.bytes.size(); ++i) {
                                 if (message.bytes[i] == byte_of(message.number, i)) continue;
                                 job_.wrong_ =
                                     fmt::format("rank {}: byte {} of message {} is wrong", rank_, i, message.number);
                                 break;
                             }
                             return true;
                         }) > 0 ||
           found;
}

// False: the rank has found something, and will fail.
bool Job::Rank::heed_mailbox() {
    for (const Finding& finding : mailbox_.take_findings()) {
        if (finding.kind == Finding::Kind::mismatch)
            blame({VerdictKind::mismatch, finding.peer, "mismatch", 0, rank_});
        else if (finding.kind == Finding::Kind::damaged)
            blame({VerdictKind::damaged, finding.peer, finding.what});
        else
            job_.wrong_ = fmt::format("rank {} hears that rank {} has left", rank_, finding.peer);
    }
    return !health_.has_news();
}

void Job::Rank::blame(const Verdict& verdict) {
    if (health_.blame(verdict)) job_.tell(rank_, verdict, 2000);
}

std::vector<int> Job::Rank::waits_for() const {
    std::vector<int> ranks = execution_ ? execution_->waits_for() : std::vector<int>{};
    for (const Message& message : messages_) {
        if (message.transfer.peer >= 0) ranks.push_back(message.transfer.peer);
    }
    return ranks;
}

// The checks of a rank that waits: peers that are gone, and the calls of the peers that it waits for.
void Job::Rank::check() {
    for (const int peer : waits_for()) {
        const auto gone = health_.gone(peer, mailbox_.end_of(peer), mailbox_.is_over(peer), job_.now_);
        if (gone) return blame(*gone);
    }
    if (!execution_ || job_.now_ - since_ < milliseconds(100) || job_.now_ < next_probe_) return;
    next_probe_ = job_.now_ + between_probes;
    for (const int peer : execution_->waits_for())
        mailbox_.probe(peer, Channel::of_collective(0, step_->sequence), step_->fingerprint);
}

void Job::Rank::fail(const Verdict& verdict) {
    if (!job_.is_excused(verdict)) {
        job_.wrong_ = fmt::format("rank {} fails for no reason: {} of rank {}: {}", rank_,
                                  static_cast<int>(verdict.kind), verdict.rank, verdict.text);
    }
    verdict_ = verdict;
    mailbox_.drop_all();
    execution_.reset();
    messages_.clear();
    memory_.clear();
}

std::string Job::Rank::state() const {
    std::string waiting;
    for (const int peer : waits_for()) waiting += fmt::format(" {}", peer);
    return fmt::format("rank {}: step {} of {}, {}{} messages, waits for{}{}{}{}; ", rank_, next_, job_.script_.size(),
                       execution_ ? execution_->where() + ", " : "", messages_.size(), waiting, dead_ ? ", dead" : "",
                       finished_ ? ", finished" : "", verdict_ ? ", failed: " + verdict_->text : "");
}

Job::Job(std::uint64_t seed)
    : seed_(seed), chance_(seed), size_(2 + static_cast<int>(below(chance_, 5))), network_(size_, chance_, now_) {
    Clock::simulate(&now_);
    const std::uint64_t dice = below(chance_, 100);
    fault_ = dice < 50   ? Fault::none
             : dice < 65 ? Fault::death
             : dice < 78 ? Fault::cut
             : dice < 85 ? Fault::damage
             : dice < 93 ? Fault::mismatch
                         : Fault::surplus;
    culprit_ = static_cast<int>(below(chance_, static_cast<std::uint64_t>(size_)));
    other_ = static_cast<int>(
        (static_cast<std::uint64_t>(culprit_) + 1 + below(chance_, static_cast<std::uint64_t>(size_ - 1))) %
        static_cast<std::uint64_t>(size_));
    lifelines_tell_ = below(chance_, 3) > 0;
    strikes_at_ = now_ + microseconds(below(chance_, 20'000));
    write_script();
    for (int rank = 0; rank < size_; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
}

Job::~Job() {
    Clock::simulate(nullptr);
}

Job::Step Job::make(Contract contract, std::uint64_t sequence, std::string algorithm) {
    contract.host_of = layout_.host_of;
    Step step;
    step.sequence = sequence;
    for (int rank = 0; rank < size_; ++rank) {
        Request request = request_of(contract, rank);
        request.algorithm = algorithm;
        step.schedules.push_back(algorithm::plan(layout_, request));
    }
    step.fingerprint = 1 + (sequence << 8 | static_cast<std::uint64_t>(contract.collective) << 3 |
                            static_cast<std::uint64_t>(contract.root));
    step.contract = std::move(contract);
    return step;
}

// One message; or many with one tag, more than may be under way without their receives.
void Job::add_messages() {
    const auto n = static_cast<std::size_t>(size_);
    Step step;
    step.from = static_cast<int>(below(chance_, n));
    step.to = static_cast<int>(below(chance_, n));
    step.bytes = below(chance_, 20) == 0 ? below(chance_, 400'000) : below(chance_, 3000);
    // Nothing but news tells a receive of any source that the connection to one of them has broken off.
    step.any_source = below(chance_, 4) == 0 && fault_ != Fault::cut;
    if (fault_ == Fault::death) lifelines_tell_ |= step.any_source;
    if (below(chance_, 2) == 0) step.way = static_cast<Way>(below(chance_, ways));
    std::uint64_t count = 1;
    if (below(chance_, 50) == 0) {
        count = 2 + below(chance_, 20);
        step.bytes = 1 + below(chance_, 250'000);
        step.any_source = false;
        if (step.way == Way::release) step.way = Way::claim;  // a message that returns must not meet another's receive
        step.late = below(chance_, 2) == 0;
        step.paced = !step.late && below(chance_, 2) == 0;
    }
    if (step.from == step.to) return;
    step.tag = script_.size();
    script_.insert(script_.end(), count, step);
}

// The last collective is one of which no rank gets away without it.
void Job::add_surplus(std::uint64_t sequence) {
    const auto n = static_cast<std::size_t>(size_);
    Contract contract{.collective = Collective::all_to_all};
    contract.matrix.assign(n, std::vector<std::uint64_t>(n, 1));
    auto& count = contract.matrix[static_cast<std::size_t>(culprit_)][static_cast<std::size_t>(other_)];
    count = 0;
    script_.push_back(make(contract, sequence, "pairwise"));
    count = 1 + below(chance_, 30);
    script_.back().instead = std::make_shared<Step>(make(contract, sequence, "pairwise"));
}

bool Job::awaits_surplus(int rank) const {
    return fault_ == Fault::surplus && rank == other_;
}

// The last collective of a job in which one rank calls another one is an all_reduce: all ranks wait for all.
void Job::write_script() {
    const auto n = static_cast<std::size_t>(size_);
    for (int rank = 0; rank < size_; ++rank) layout_.host_of.push_back(rank);
    layout_.machines = size_;
    layout_.segment_bytes = sizeof(std::int64_t) * (1 + below(chance_, 40));
    const auto add = [&](Contract contract, std::uint64_t sequence) {
        contract.host_of = layout_.host_of;
        const auto names = algorithm::applicable(layout_, request_of(contract, 0));
        return make(std::move(contract), sequence, std::string(names[below(chance_, names.size())]));
    };
    std::uint64_t sequence = 0;
    const std::uint64_t steps = 2 + below(chance_, 8);
    for (std::uint64_t i = 0; i < steps; ++i) {
        if (below(chance_, 3) == 0) {
            add_messages();
            continue;
        }
        Contract contract{.collective = static_cast<Collective>(1 + below(chance_, collective_count)),
                          .root = static_cast<int>(below(chance_, n)),
                          .count = below(chance_, 5) == 0 ? 0 : below(chance_, 120)};
        for (std::size_t r = 0; r < n; ++r) contract.counts.push_back(below(chance_, 40));
        if (contract.collective == Collective::gather || contract.collective == Collective::scatter)
            contract.counts.assign(n, contract.counts.front());
        for (int r = 0; traits_of(contract.collective).exchanges() && r < size_; ++r) {
            auto& row = contract.matrix.emplace_back();
            for (int peer = 0; peer < size_; ++peer) {
                const bool none = below(chance_, 3) == 0;
                row.push_back(none ? 0 : below(chance_, 30));
                if (!traits_of(contract.collective).exchanges_between(r, peer, contract.root)) row.back() = 0;
            }
        }
        if (traits_of(contract.collective).may_be_in_place(1, 0)) contract.in_place = below(chance_, 2) == 0;
        script_.push_back(add(std::move(contract), ++sequence));
    }
    script_.push_back(add({.collective = Collective::all_reduce, .count = 1 + below(chance_, 50)}, ++sequence));
    if (fault_ == Fault::surplus) add_surplus(++sequence);
    if (fault_ != Fault::mismatch) return;
    Contract other{.collective = Collective::all_gather};
    other.counts.assign(n, 1 + below(chance_, 50));
    script_.back().instead = std::make_shared<Step>(add(std::move(other), sequence));
}

void Job::strike() {
    struck_ = true;
    switch (fault_) {
        case Fault::none:
        case Fault::mismatch:
        case Fault::surplus: break;
        case Fault::cut: network_.cut(culprit_, other_); break;
        case Fault::damage: network_.damage(culprit_, other_); break;
        case Fault::death: {
            auto& dead = *ranks_[static_cast<std::size_t>(culprit_)];
            if (dead.over()) break;
            dead.dead_ = true;
            network_.kill(culprit_);
            if (lifelines_tell_) tell(culprit_, {VerdictKind::peer_lost, culprit_, "killed"}, 700'000);
            break;
        }
    }
}

// All other ranks hear of it, each after a while.
void Job::tell(int from, const Verdict& verdict, int latency_us) {
    for (int rank = 0; rank < size_; ++rank) {
        if (rank != from)
            news_.push_back(
                {now_ + microseconds(below(chance_, static_cast<std::uint64_t>(latency_us))), rank, verdict});
    }
}

void Job::deliver_news() {
    std::erase_if(news_, [&](const News& news) {
        if (news.when > now_) return false;
        ranks_[static_cast<std::size_t>(news.rank)]->health_.hear(news.verdict);
        return true;
    });
}

bool Job::is_excused(const Verdict& verdict) const {
    switch (fault_) {
        case Fault::none: return false;
        case Fault::death: return struck_ && verdict.kind == VerdictKind::peer_lost && verdict.rank == culprit_;
        case Fault::cut:
            return struck_ && verdict.kind == VerdictKind::peer_lost &&
                   (verdict.rank == culprit_ || verdict.rank == other_);
        case Fault::damage: return struck_ && verdict.kind == VerdictKind::damaged && verdict.rank == culprit_;
        case Fault::mismatch:
        case Fault::surplus: return verdict.kind == VerdictKind::mismatch;
    }
    return false;
}

void Job::pass_time() {
    Instant next = std::min(network_.next_arrival(), now_ + between_checks);
    for (const News& news : news_) next = std::min(next, news.when);
    if (!struck_) next = std::min(next, strikes_at_);
    now_ = std::max(next, now_ + microseconds(1));
}

int Job::failed() const {
    return static_cast<int>(std::ranges::count_if(ranks_, [](const auto& rank) { return rank->verdict_.has_value(); }));
}

std::string Job::state() const {
    std::string text;
    for (const auto& rank : ranks_) text += rank->state();
    return text;
}

std::string Job::run() {
    Instant next_check = now_;
    while (wrong_.empty()) {
        if (!struck_ && now_ >= strikes_at_) strike();
        deliver_news();
        bool moved = false, over = true;
        for (int turn = 0; turn < size_; ++turn) {
            Rank& rank = *ranks_[below(chance_, ranks_.size())];
            for (std::uint64_t steps = 1 + below(chance_, 3); steps > 0 && !rank.over(); --steps) moved |= rank.turn();
        }
        for (const auto& rank : ranks_) {
            if (!rank->over()) over = false;
        }
        if (over) break;
        if (moved && below(chance_, 4) > 0) continue;
        // Those that chance has left out may still be able to go on.
        for (const auto& rank : ranks_) {
            if (!moved && !rank->over()) moved |= rank->turn();
        }
        if (now_ >= next_check) {
            next_check = now_ + between_checks;
            for (const auto& rank : ranks_) {
                if (!rank->over()) rank->check();
            }
        }
        pass_time();
        if (now_ - start_ > time_limit) return "it hangs: " + state();
    }
    if (!wrong_.empty()) return wrong_ + "; " + state();
    if (fault_ == Fault::mismatch && failed() != size_) return "not all ranks heard of the mismatch: " + state();
    return {};
}

}  // namespace tutti::simulation
