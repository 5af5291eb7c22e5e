#include "rendezvous/lifelines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti::rendezvous {
namespace {

using std::chrono::milliseconds;
using How = LineEnd::How;

/// The time within which a neighbour shows a sign of life. This rank can see whether a process of its host is stopped:
/// one that is not merely waits for a core.
constexpr milliseconds patience_with_far{700}, patience_with_near{2000};
constexpr milliseconds between_checks{10};  // for ranks that owe a sign of life
constexpr milliseconds longest_look{100};   // of a rank that runs
constexpr milliseconds beside_limit{1000};
constexpr milliseconds reporting_patience{500};
constexpr LineId no_line = 0;

}  // namespace

Lifelines::Lifelines(const Roster& roster, LifelineOptions options)
    : roster_(roster), options_(std::move(options)), tree_(roster.rank, roster.size()) {}

LineId Lifelines::attach(int rank, Role role, bool confirmed, Instant now) {
    const bool is_parent = role == Role::parent;
    const std::vector<LineId> old_parents = is_parent ? tree_.release_parent() : std::vector<LineId>{};
    const LineId line = tree_.attach({rank, role, confirmed});
    readers_.emplace(line, roster_.size());
    dialed_.erase(rank);
    send(line, to_bytes(Word::attached, roster_.rank) + log_.bytes());
    if (confirmed) send(line, to_bytes(Word::has_it, roster_.rank));
    if (end_) ledger_.reopen(*end_);
    ledger_.ask_all(rank, now);
    if (is_parent) has_parent_besides(old_parents);
    return line;
}

// An old parent, if it still waits for this rank to be safe, may go.
void Lifelines::has_parent_besides(const std::vector<LineId>& old_parents) {
    reparenter_.done();
    for (const LineId old : old_parents) {
        send(old, to_bytes(Word::moved, roster_.rank));
        effects_.emplace_back(EndSending{old});
    }
}

bool Lifelines::on_bytes(LineId id, std::span<const std::byte> bytes, Instant now) {
    Lifeline* const line = tree_.find(id);
    if (line == nullptr) return true;
    NewsReader& reader = readers_.at(id);
    reader.feed(bytes);
    while (auto news = reader.next()) {
        if (news->frame.is_word())
            on_word(id, *line, news->frame, now);
        else
            on_verdict(id, *line, std::move(*news), now);
    }
    return !reader.is_broken();
}

void Lifelines::on_word(LineId id, Lifeline& line, const NewsFrame& frame, Instant now) {
    switch (frame.word()) {
        case Word::attached:
            line.confirmed = true;
            tree_.has_come(line.rank);
            send(id, to_bytes(Word::has_it, roster_.rank));
            break;
        case Word::moved:
            line.may_end = true;
            tree_.has_come(line.rank);
            break;
        case Word::has_it:
            if (frame.id == 0) line.answered = true;
            ledger_.acknowledged(frame.id, line.rank, now);
            break;
        case Word::all_have_it: ledger_.answered(frame.id, line.rank, now); break;
    }
}

void Lifelines::on_verdict(LineId id, Lifeline& line, ReadNews news, Instant now) {
    const NewsId news_id = news.frame.id;
    Verdict verdict = std::move(news).verdict();
    if (verdict.kind == VerdictKind::left && verdict.rank == line.rank) {
        line.may_end = true;
        if (line.role == Role::parent) reparenter_.request(now + Reparenter::delay);
    }
    const bool is_new = pass_on(verdict, id, now);
    // Whoever sends news that came before counts on those behind this rank as well: it may be the only one that waits
    // for them, as the one by which they came was silent, or this rank was.
    if (!is_new) ledger_.owe_too(news_id, line.rank);
    const bool owes = is_new || ledger_.owes(news_id, line.rank);
    if (wants_answer(verdict)) send(id, to_bytes(owes ? Word::has_it : Word::all_have_it, roster_.rank, news_id));
    if (!is_new) return;
    // News of which this rank has yet to inform itself come first: a rank that leaves may do so since it has them.
    const bool may_follow = verdict.kind == VerdictKind::peer_lost || verdict.kind == VerdictKind::left;
    if (may_follow && !losses_.empty()) {
        losses_.push_back({std::move(verdict), losses_.back().limit});
        ledger_.done(news_id);
    } else {
        effects_.emplace_back(Inform{std::move(verdict), news_id});
    }
}

// To all lifelines but the one by which they came. False if they are known.
bool Lifelines::pass_on(const Verdict& verdict, LineId source, Instant now) {
    const bool is_own = source == no_line;
    const auto news = log_.add(verdict, is_own ? NewsLog::Source::this_rank : NewsLog::Source::neighbour);
    if (!news) return false;
    if (verdict.kind == VerdictKind::left) tree_.note_goodbye(verdict.rank, verdict.from == verdict.rank);
    if (verdict.kind == VerdictKind::silent) silent_.insert(verdict.rank);
    if (verdict.kind == VerdictKind::peer_lost) lost_.insert(verdict.rank);
    if (verdict.kind == VerdictKind::host_lost) {
        lost_hosts_.insert(roster_.card(verdict.rank).host_key);
        const std::vector<int> beside = ranks_beside(verdict.rank);
        lost_.insert(beside.begin(), beside.end());
    }
    const bool asks = wants_answer(verdict);
    const int from = is_own ? Ledger::own : tree_.find(source)->rank;
    if (asks) ledger_.open(news->id, from);
    for (const auto& [id, line] : tree_.lines()) {
        if (id == source) continue;
        send(id, news->bytes);
        if (asks && !line.may_end && line.rank != from && !unreachable_.contains(line.rank))
            ledger_.ask(news->id, line.rank, now);
    }
    for (const int rank : dialed_) {
        if (asks && rank != from && !unreachable_.contains(rank)) ledger_.ask(news->id, rank, now);
    }
    if (ends_the_world(verdict.kind)) {
        end_ = news->id;
        tell_new_neighbours(now);  // before it answers
    }
    if (asks && is_own) ledger_.done(news->id);
    return true;
}

bool Lifelines::flood(const Verdict& verdict, Instant now) {
    if (verdict.kind != VerdictKind::left || verdict.rank != roster_.rank) return pass_on(verdict, no_line, now);
    if (tree_.is_gone(roster_.rank)) return false;
    Verdict goodbye = verdict;
    if (log_.is_final()) goodbye.from = roster_.rank;
    return pass_on(goodbye, no_line, now);
}

void Lifelines::informed(NewsId id) {
    ledger_.done(id);
    send_answers();
}

void Lifelines::leave(Instant now) {
    leaving_ = true;
    flood({VerdictKind::left, roster_.rank, {}}, now);
}

void Lifelines::send_answers() {
    for (const auto [to, news] : ledger_.take_answers([this](int rank) { return tree_.direction_of(rank); })) {
        for (const auto& [id, line] : tree_.lines()) {
            if (line.rank == to) send(id, to_bytes(Word::all_have_it, roster_.rank, news));
        }
    }
}

void Lifelines::on_time(Instant now) {
    look_for_silent(now);
    report_losses(now);
    tell_new_neighbours(now);
    reparent(now);
    send_answers();
}

std::optional<Instant> Lifelines::next_look(Instant now) const {
    if (!ledger_.unacknowledged().empty() || !losses_.empty()) return now + between_checks;
    return leaving_ || log_.is_final() ? std::nullopt : reparenter_.due();
}

void Lifelines::reparent(Instant now) {
    if (leaving_ || log_.is_final() || !reparenter_.is_due(now)) return;
    const std::vector<int> candidates = tree_.possible_parents();
    if (candidates.empty()) {
        has_parent_besides(tree_.release_parent());  // this rank is the lowest that is left
    } else if (const auto rank = reparenter_.next(candidates, now)) {
        effects_.emplace_back(Dial{*rank, Role::parent, Reparenter::attempt_limit});
    }
}

void Lifelines::on_dial_failed(const Dial& dial, DialFailure how, Instant now) {
    if (dial.role == Role::beside) dialed_.erase(dial.rank);
    if (dial.role == Role::parent)
        how == DialFailure::no_thread ? reparenter_.failed_for_all(now) : reparenter_.failed();
    const bool has_left = dial.role == Role::parent && tree_.is_gone(dial.rank);
    if (how != DialFailure::refused || has_left) return;
    // It has gone, and the ranks beside it may lack the news that this one has, or have news that this one lacks.
    go_around({dial.rank}, now);
    ledger_.drop(dial.rank);
}

// ---- Losses

bool Lifelines::would_be_missed(LineId id) {
    const Lifeline* const line = tree_.find(id);
    return line != nullptr && !line->may_end && !tree_.is_gone(line->rank);
}

// A rank that had said goodbye, or has moved, or was never quite here; else a death, or the end of its host. Both ends
// notice a lifeline that closes, as do all ranks that have one to that rank; all else may go unnoticed. So may a death
// while others leave: a rank that is about to have a lifeline to the dead one has none yet. And one whose other end was
// yet to count on this rank: it may have said goodbye to all that it knew.
void Lifelines::on_end(LineId id, const LineEnd& end, Instant now) {
    const Lifeline* const found = tree_.find(id);
    if (found == nullptr) return;
    const Lifeline line = *found;
    const bool counts = would_be_missed(id);
    How how = end.how;
    // The lifeline itself tells the other end, before that sees its close.
    const bool passed_on = how == How::altered && counts && pass_on(*death_of(line, end), no_line, now);
    tree_.detach(id);
    readers_.erase(id);
    effects_.emplace_back(CloseLine{id});
    if (line.role == Role::parent) reparenter_.request(now);
    if (lost_hosts_.contains(roster_.card(line.rank).host_key)) how = How::host_lost;
    const std::vector<int> lost = how == How::host_lost ? ranks_beside(line.rank) : std::vector{line.rank};
    // The other end may not know that this lifeline was confirmed here, and take its end for nobody's death.
    const bool may_be_unnoticed = how == How::closed && !line.answered && !end.process_end;
    std::optional<Verdict> verdict;
    if (counts) verdict = how == How::host_lost ? loss_of_host(lost) : death_of(line, end);
    if (verdict) {
        const bool may_be_unseen =
            how != How::closed || may_be_unnoticed || !line.confirmed || tree_.has_new_neighbours(line.rank);
        if (may_be_unseen) unreachable_.insert(lost.begin(), lost.end());  // no rank waits for their answers
        const bool is_new = passed_on || pass_on(*verdict, no_line, now);
        if (may_be_unseen) go_around(lost, now);
        if (is_new && may_be_unseen) losses_.push_back({*verdict, now + reporting_patience});
        if (is_new && !may_be_unseen) effects_.emplace_back(Inform{*verdict, std::nullopt});
    }
    if (tree_.is_connected(line.rank)) return send_again(line.rank);
    ledger_.drop(line.rank);
    if (verdict && may_be_unnoticed) turn_to(line.rank, now);
}

// One of two lifelines to that rank has ended, and with it, perhaps, the news that it has yet to acknowledge.
void Lifelines::send_again(int rank) {
    if (!ledger_.unacknowledged().contains(rank)) return;
    const auto other =
        std::ranges::find_if(tree_.lines(), [&](const auto& entry) { return entry.second.rank == rank; });
    send(other->first, log_.bytes());
}

// A rank that leaves answers all connections, so a process that has ended without an answer died.
std::optional<Verdict> Lifelines::death_of(const Lifeline& line, const LineEnd& end) const {
    const Card& card = roster_.card(line.rank);
    if (end.how == How::altered) {
        return Verdict{VerdictKind::damaged, line.rank,
                       fmt::format("the lifeline of rank {} to rank {} ({}, pid {}): {}", roster_.rank, line.rank,
                                   card.host_name, card.process, end.fault)};
    }
    std::optional<std::string> process_end = end.process_end;
    if (end.how == How::outlived && !process_end) process_end = "its process has ended";
    if (!line.confirmed && !process_end) return std::nullopt;
    const char* const closed =
        roster_.can_watch(line.rank) ? "its connection closed, though its process lives" : "its connection closed";
    return Verdict{VerdictKind::peer_lost, line.rank,
                   fmt::format("rank {} ({}, pid {}) is gone: {}", line.rank, card.host_name, card.process,
                               process_end.value_or(closed))};
}

// The loss of all ranks of a host; ranks that lose several of them name the same one.
Verdict Lifelines::loss_of_host(const std::vector<int>& ranks) const {
    const int first = ranks.front();
    const Card& card = roster_.card(first);
    return {
        VerdictKind::host_lost, first,
        fmt::format("rank {} ({}, pid {}) is gone: its host has not answered for {:.1f} s: it has failed, or is "
                    "cut off{}",
                    first, card.host_name, card.process, std::chrono::duration<double>(options_.silence_limit).count(),
                    ranks.size() == 1 ? "" : fmt::format(", with ranks {}", fmt::join(ranks, ", ")))};
}

// The ranks of its host that have not left.
std::vector<int> Lifelines::ranks_beside(int rank) const {
    std::vector<int> ranks;
    for (int other = 0; other < roster_.size(); ++other) {
        if (roster_.card(other).host_key == roster_.card(rank).host_key && !tree_.is_gone(other))
            ranks.push_back(other);
    }
    if (ranks.empty()) ranks.push_back(rank);
    return ranks;
}

void Lifelines::report_losses(Instant now) {
    if (losses_.empty()) return;
    const bool all_have_them = settled();
    std::erase_if(losses_, [&](const Loss& loss) {
        const bool over = all_have_them || now >= loss.limit;
        if (over) effects_.emplace_back(Inform{loss.verdict, std::nullopt});
        return over;
    });
}

// ---- Silent ranks

void Lifelines::look_for_silent(Instant now) {
    std::vector<int> silent;
    ledger_.forgive(looked_, longest_look, now);
    looked_ = now;
    for (const auto& [rank, since] : ledger_.unacknowledged()) {
        if (is_silent(rank, since, now)) silent.push_back(rank);
    }
    for (const int rank : silent) {
        const Verdict verdict{VerdictKind::silent, rank, {}};
        if (pass_on(verdict, no_line, now)) effects_.emplace_back(Inform{verdict, std::nullopt});
        go_around({rank}, now);
        ledger_.drop(rank);
    }
}

bool Lifelines::is_silent(int rank, Instant since, Instant now) const {
    if (!roster_.can_watch(rank)) return now - since >= patience_with_far;
    return now - since >= patience_with_near || options_.is_stopped(rank);
}

// Turns to their neighbours: this rank may be the only one that can tell them.
void Lifelines::go_around(const std::vector<int>& ranks, Instant now) {
    unreachable_.insert(ranks.begin(), ranks.end());
    for (const int rank : ranks) {
        for (const int other : tree_.neighbours_of(rank)) {
            if (other != roster_.rank && !unreachable_.contains(other) && !tree_.is_connected(other))
                turn_to(other, now);
        }
    }
}

void Lifelines::turn_to(int rank, Instant now) {
    if (!beside_.insert(rank).second) return;
    dialed_.insert(rank);
    ledger_.ask_all(rank, now);
    effects_.emplace_back(Dial{rank, Role::beside, beside_limit});
}

void Lifelines::tell_new_neighbours(Instant now) {
    if (!end_) return;
    for (const int other : tree_.neighbours_to_tell()) {
        if (unreachable_.contains(other) || lost_.contains(other) || beside_.contains(other)) continue;
        ledger_.reopen(*end_);
        turn_to(other, now);
    }
    const std::vector<int> beyond = beyond_goodbyes();
    if (!beyond.empty()) ledger_.reopen(*end_);
    go_around(beyond, now);
}

// Ranks that cannot be reached, and may have other neighbours since ranks left. One that left may have had no time to
// turn to those behind a silent rank: this one does, if it has come to be beside it.
std::vector<int> Lifelines::beyond_goodbyes() const {
    std::vector<int> ranks(unreachable_.begin(), unreachable_.end());
    const std::vector<int> neighbours = tree_.neighbours_of(roster_.rank);
    std::ranges::copy_if(neighbours, std::back_inserter(ranks),
                         [this](int other) { return silent_.contains(other) && !tree_.is_connected(other); });
    return ranks;
}

}  // namespace tutti::rendezvous
