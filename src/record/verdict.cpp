#include "record/verdict.hpp"

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/log.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace tutti::record {
namespace {

using nlohmann::json;
using Ranks = std::vector<int>;

constexpr Milliseconds collect_patience{400};
constexpr Milliseconds request_patience{100};
constexpr std::size_t text_max = 7000;
constexpr std::size_t findings_max = 12;

std::string tail_key(int rank) {
    TUTTI_ASSERT(rank >= 0);
    return fmt::format("tail/{}", rank);
}
constexpr std::string_view verdict_key = "verdict";

std::string called_at(const Entry& entry) {
    return entry.site.empty() ? std::string() : fmt::format(", called at {}", entry.site);
}

std::string since(const Dump& tail, std::int64_t ns) {
    return fmt::format("{:.3f} s", std::max(0.0, 1e-9 * static_cast<double>(tail.taken_ns - ns)));
}

const Entry* find(const Dump& tail, std::uint64_t sequence) {
    const auto found = std::ranges::find(tail.entries, sequence, &Entry::sequence);
    return found == tail.entries.end() ? nullptr : &*found;
}

bool has_passed(const Dump& tail, std::uint64_t sequence) {
    return std::ranges::any_of(tail.entries, [sequence](const Entry& e) { return e.sequence > sequence; });
}

std::string last_doing(const Dump& tail) {
    if (tail.entries.empty()) return "it has called nothing in this group";
    const Entry& last = tail.entries.back();
    const auto open = last.open() ? tail.entries.end() - 1 : std::ranges::find_if(tail.entries, &Entry::open);
    if (open != tail.entries.end()) {
        const std::string unmatched = open->kind == Kind::receive ? unmatched_in_words(tail) : std::string();
        return fmt::format("it is in {} for {}{}{}{}", open->title(tail.members), since(tail, open->enqueued_ns),
                           called_at(*open), unmatched.empty() ? "" : "; ", unmatched);
    }
    return fmt::format("its last operation was {} ({} {} ago){}", last.title(tail.members), to_string(last.state),
                       since(tail, last.ended_ns != 0 ? last.ended_ns : last.enqueued_ns), called_at(last));
}

// The findings on each rank; ranks with the same finding stand in one line.
class Findings {
 public:
    explicit Findings(Members members) : members_(std::move(members)) {}
    void add(const std::string& finding, int rank) {
        TUTTI_ASSERT(!finding.empty() && rank >= 0);
        const auto found = std::ranges::find(lines_, finding, &Line::finding);
        if (found == lines_.end())
            lines_.push_back({finding, {rank}});
        else
            found->ranks.push_back(rank);
    }
    std::string text() const {
        std::string result;
        std::size_t printed = 0, left_out = 0;
        for (const Line& line : lines_) {
            if (printed++ < findings_max)
                result += fmt::format("\n  {}: {}", members_.list_of(line.ranks), line.finding);
            else
                left_out += line.ranks.size();
        }
        if (left_out > 0)
            result += fmt::format("\n  and {} more ranks, of which something else is known each", left_out);
        return result;
    }

 private:
    struct Line {
        std::string finding;
        Ranks ranks;
    };
    Members members_;
    std::vector<Line> lines_;
};

bool contains(const Ranks& ranks, int rank) {
    return std::ranges::find(ranks, rank) != ranks.end();
}

constexpr const char* silent_finding = "gave no answer: it is stopped, or cut off";

Milliseconds left(const Deadline& deadline) {
    return std::max(Milliseconds(1), std::chrono::ceil<Milliseconds>(deadline.remaining()));
}

}  // namespace

Judgement judge(const Subject& subject, const std::vector<std::optional<Dump>>& tails, const Absent& absent) {
    TUTTI_ASSERT(subject.peer < static_cast<int>(tails.size()));
    Findings findings(subject.members);
    Ranks missing, silent, departed, unheard;
    for (int rank = 0; rank < static_cast<int>(tails.size()); ++rank) {
        const auto& tail = tails[static_cast<std::size_t>(rank)];
        if (!tail) {
            const bool gone = contains(absent.departed, rank);
            const bool is_silent = !gone && contains(absent.silent, rank);
            const char* lives = "lives as far as is known, but did not say what it is doing";
            findings.add(gone ? "has left the group" : is_silent ? silent_finding : lives, rank);
            if (gone) departed.push_back(rank);
            if (is_silent) silent.push_back(rank);
            if (!gone && !is_silent && subject.sequence != 0) unheard.push_back(rank);
            continue;
        }
        if (subject.sequence == 0) {
            if (rank == subject.rank || rank == subject.peer || subject.peer < 0)
                findings.add(last_doing(*tail) + in_replays(*tail), rank);
            continue;
        }
        const Entry* entry = find(*tail, subject.sequence);
        if (entry != nullptr) {
            const char* state = entry->state == State::completed ? "has completed" : "called";
            findings.add(
                fmt::format("{} {}{}{}", state, entry->title(tail->members), called_at(*entry), in_replays(*tail)),
                rank);
        } else if (has_passed(*tail, subject.sequence)) {
            findings.add("is past it", rank);
        } else {
            findings.add(fmt::format("has not called it: {}{}", last_doing(*tail), in_replays(*tail)), rank);
            missing.push_back(rank);
        }
    }
    Judgement result{subject.headline + findings.text(), subject.peer, subject.sequence, subject.disagreement};
    // A rank that waits may be waiting for one that waits itself; the tails of all ranks know better. Others may be
    // waiting for a stopped rank before they call. One that has just been stopped still counts as alive.
    for (const Ranks* culprits : {&silent, &missing, &departed, &unheard}) {
        if (subject.disagreement || culprits->empty()) continue;
        result.peer = culprits->front();
        break;
    }
    return result;
}

Judgement judge(const Subject& subject, const Absent& absent) {
    Judgement result{subject.headline, subject.peer, subject.sequence, subject.disagreement};
    if (absent.silent.empty()) return result;
    Findings findings(subject.members);
    for (const int rank : absent.silent) findings.add(silent_finding, rank);
    result.text += findings.text();
    if (!subject.disagreement) result.peer = *std::ranges::min_element(absent.silent);
    return result;
}

std::string to_text(Judgement j) {
    TUTTI_ASSERT(j.peer >= -1);
    if (j.text.size() > text_max) j.text.resize(text_max);
    const json all{{"text", j.text}, {"peer", j.peer}, {"sequence", j.sequence}, {"disagreement", j.disagreement}};
    return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Judgement> read_judgement(const std::string& text) {
    try {
        const json j = json::parse(text);
        Judgement judgement{j.at("text"), j.at("peer"), j.at("sequence"), j.at("disagreement")};
        if (judgement.peer >= -1) return judgement;
        TUTTI_DEBUG("a verdict about rank {}", judgement.peer);
        return std::nullopt;
    } catch (const json::exception& error) {
        TUTTI_DEBUG("a verdict that cannot be read: {}", error.what());
        return std::nullopt;
    }
}

void Inquiry::publish(const Dump& tail) noexcept {
    TUTTI_ASSERT(tail.rank >= 0 && tail.rank < tail.size);
    try {
        store_.backend()->set(tail_key(tail.rank), encode(tail), request_patience);
    } catch (const std::exception& error) {
        TUTTI_DEBUG("no tail in the store: {}", error.what());
    }
}

// By rank; nothing for ranks that did not answer in time. Throws DistStoreError.
std::vector<std::optional<Dump>> Inquiry::collect(int size, const Absent& absent) {
    StoreBackend& store = *store_.backend();
    TUTTI_ASSERT(size >= 1);
    std::vector<std::string> keys;
    for (int rank = 0; rank < size; ++rank) {
        if (!contains(absent.departed, rank) && !contains(absent.silent, rank)) keys.push_back(tail_key(rank));
    }
    bool all = true;
    try {
        store.wait(keys, collect_patience);
    } catch (const DistStoreError& error) {
        if (error.code() != ErrorCode::timeout) throw;
        all = false;
    }
    std::vector<std::optional<Dump>> tails(static_cast<std::size_t>(size));
    const Deadline deadline = Deadline::after(2 * request_patience);
    for (const std::string& key : keys) {
        if (!all && !store.check(std::span(&key, 1), left(deadline))) continue;
        const std::string text = store.get(key, left(deadline));
        try {
            Dump tail = decode(text, key);
            if (tail.rank < size && tail.size == size) tails[static_cast<std::size_t>(tail.rank)] = std::move(tail);
        } catch (const InvalidArgument& error) {
            TUTTI_DEBUG("a tail that cannot be read: {}", error.what());
        }
    }
    return tails;
}

Judgement Inquiry::decide(const Subject& subject, int size, const Absent& absent) noexcept {
    Judgement mine = judge(subject, absent);
    try {
        mine = judge(subject, collect(size, absent), absent);
        const std::string stands = store_.backend()->compare_set(verdict_key, "", to_text(mine), request_patience);
        const auto standing = read_judgement(stands);  // others write there, too
        return standing && standing->peer < size ? *standing : mine;
    } catch (const std::exception& error) {
        TUTTI_DEBUG("no verdict of all ranks: {}", error.what());
        return mine;
    }
}

std::optional<Judgement> Inquiry::learn() noexcept {
    try {
        return read_judgement(store_.backend()->get(verdict_key, request_patience));
    } catch (const std::exception& error) {
        TUTTI_DEBUG("no verdict from the store: {}", error.what());
        return std::nullopt;
    }
}

}  // namespace tutti::record
