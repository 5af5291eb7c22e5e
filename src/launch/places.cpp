#include "launch/places.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <tuple>
#include <utility>

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr tutti::Clock::duration stall = 2s;    // between two looks, after which the others' silence may be our own
constexpr tutti::Clock::duration unheard = 1s;  // a living launcher gives two signs of life in that time

std::string beat_key(const NodeCard& card) {
    return "launch/beat/" + card.id;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        if (!line.empty()) lines.push_back(line);
    }
    return lines;
}

}  // namespace

std::string attempt_key(int attempt, const char* what) {
    return fmt::format("launch/{}/{}", attempt, what);
}

std::string words_of_loss(const NodeCard& card, const std::string& cause) {
    return fmt::format("its launcher ({}) was lost: {}", card.who(), cause);
}

std::string words_of_sign(const std::string& beat) {
    const std::time_t seconds = std::strtoll(beat.c_str(), nullptr, 10) / 1000;
    return fmt::format("; its last sign of life came at {:%H:%M:%S} UTC", fmt::gmtime(seconds));
}

std::string NodeCard::who() const {
    return fmt::format("{}, {}, pid {}", host, address, pid);
}

std::string NodeCard::to_text() const {
    return fmt::format("{} {} {} {} {} {} {} {} {}", node, id, ranks, nodes, max_restarts, least, pid, address, host);
}

NodeCard NodeCard::from_text(const std::string& text) {
    std::istringstream in(text);
    NodeCard card;
    const bool is_read = bool(in >> card.node >> card.id >> card.ranks >> card.nodes >> card.max_restarts >>
                              card.least >> card.pid >> card.address);
    const bool takes_any = card.node == -1 && card.nodes == 0;
    if (!is_read || card.ranks < 1 || (!takes_any && (card.node < 0 || card.node >= card.nodes))) {
        throw DistStoreError(
            fmt::format("tutti run: the store says of a node: \"{}\": expected its number, id, ranks, nodes, restarts, "
                        "least nodes, "
                        "process and address",
                        text));
    }
    std::getline(in >> std::ws, card.host);
    return card;
}

std::string NodesRoster::to_text() const {
    std::string text = fmt::format("{} {}\n", ranks_port, run_id);
    for (const NodeCard& card : cards) text += card.to_text() + "\n";
    return text;
}

NodesRoster NodesRoster::from_text(const std::string& text) {
    NodesRoster roster;
    std::istringstream in(text);
    in >> roster.ranks_port;
    std::getline(in >> std::ws, roster.run_id);
    for (std::string line; std::getline(in, line);) roster.cards.push_back(NodeCard::from_text(line));
    for (std::size_t k = 0; k < roster.cards.size(); ++k) {
        const NodeCard& card = roster.cards[k];
        const bool all =
            roster.cards.size() == static_cast<std::size_t>(card.nodes) && card.node == static_cast<int>(k);
        const bool some = card.least > 0 && card.node >= 0 && (k == 0 || roster.cards[k - 1].node < card.node);
        if (!all && !some)
            throw DistStoreError(
                fmt::format("tutti run: the store says of a job's nodes: \"{}\": expected each of {} once, in order",
                            text, card.nodes));
    }
    return roster;
}

Places::Places(Store store, const NodeCard& own, int ranks_port, std::string run_id, tutti::Clock::duration last_call)
    : store_(std::move(store)),
      own_(own),
      roster_{.ranks_port = ranks_port, .run_id = std::move(run_id)},
      places_(static_cast<std::size_t>(own.nodes)),
      last_call_(last_call) {
    TUTTI_ASSERT(own_.node == 0 && own_.nodes >= 1 && ranks_port >= 0);
    store_.set("launch/missing", "");
    admit(places_.front(), own_, tutti::Clock::now());
}

void Places::look() {
    const Instant now = tutti::Clock::now();
    // In that time nobody was heard because nobody listened.
    if (const auto away = now - looked_at_; away > stall) {
        for (Place& place : places_) place.heard_at += away;
        for (Newcomer& newcomer : newcomers_) newcomer.since += away;
    }
    looked_at_ = now;
    hear(now);
    read_newcomers(now);
    decide(now);
    if (!changes() || living() < own_.least)
        enough_since_.reset();
    else if (!enough_since_)
        enough_since_ = now;
}

void Places::hear(Instant now) {
    std::vector<std::string> keys;
    std::vector<Place*> heard;
    for (Place& place : places_) {
        if (&place == &places_.front() || !place.holder) continue;
        keys.push_back(beat_key(*place.holder));
        heard.push_back(&place);
    }
    if (keys.empty()) return;
    const std::vector<std::string> signs = store_.multi_get(keys);
    TUTTI_ASSERT(signs.size() == heard.size());
    for (std::size_t i = 0; i < heard.size(); ++i) {
        Place& place = *heard[i];
        if (signs[i] != place.sign) {
            place.sign = signs[i];
            place.heard_at = now;
        }
        place.gone = place.gone || (is_silent(place, unheard) && store_.check({"launch/gone/" + place.holder->id}));
    }
}

void Places::read_newcomers(Instant now) {
    if (!store_.check({"launch/came"})) return;
    const std::string came = store_.get("launch/came");
    const std::size_t end = came.rfind('\n');
    if (end == std::string::npos || end < read_) return;
    for (const std::string& line : lines_of(came.substr(read_, end - read_))) {
        const NodeCard card = NodeCard::from_text(line);
        if (card.node < 0 && !changes()) {
            answer(card,
                   "refused --join: the job's ranks are not replaced: expected a job with --nnodes MIN:MAX or "
                   "--replace");
            continue;
        }
        const auto said = [](const NodeCard& c) { return std::tuple(c.nodes, c.max_restarts, c.least); };
        if (card.node >= 0 && said(card) != said(own_)) {
            const auto flags = [](const NodeCard& c) {
                const std::string nodes =
                    c.least > 0 ? fmt::format("{}:{}", c.least, c.nodes) : std::to_string(c.nodes);
                return fmt::format("--nnodes {} --max-restarts {}{}", nodes, c.max_restarts,
                                   c.least > 0 ? " --replace" : "");
            };
            disagreement_ = fmt::format("node {} was started with {}, node 0 with {}: expected the same on all nodes",
                                        card.node, flags(card), flags(own_));
            answer(card, "refused " + disagreement_);
            continue;
        }
        newcomers_.push_back({card, {}, {}, now});
    }
    read_ = end + 1;
    TUTTI_ASSERT(read_ <= came.size());
}

void Places::decide(Instant now) {
    std::erase_if(newcomers_, [&](Newcomer& newcomer) {
        if (newcomer.card.node < 0) {
            const auto free = std::ranges::find_if(places_, [&](const Place& place) { return is_free(place); });
            if (free == places_.end()) {
                answer(newcomer.card,
                       fmt::format("refused --join: all {} nodes of the job (--nnodes) are there", own_.nodes));
                return true;
            }
            newcomer.card.node = static_cast<int>(free - places_.begin());
            newcomer.card.nodes = own_.nodes;
            newcomer.card.max_restarts = own_.max_restarts;
            newcomer.card.least = own_.least;
        }
        Place& place = places_.at(static_cast<std::size_t>(newcomer.card.node));
        const bool waits = now - newcomer.since > unheard;
        if (waits && store_.check({"launch/gone/" + newcomer.card.id})) return true;
        if (is_free(place)) {
            admit(place, newcomer.card, now);
            return true;
        }
        if (newcomer.id_of_holder != place.holder->id) {
            newcomer = {newcomer.card, place.holder->id, place.sign, now};
            return false;
        }
        const bool lives = place.sign != newcomer.sign_of_holder || newcomer.card.node == 0;
        if (!lives || !waits) return false;
        answer(
            newcomer.card,
            fmt::format("refused --node-rank {}: another launcher of this job has it ({}), and lives; give each node "
                        "its own, 0 to {}",
                        newcomer.card.node, place.holder->who(), own_.nodes - 1));
        return true;
    });
}

void Places::admit(Place& place, const NodeCard& card, Instant now) {
    TUTTI_ASSERT(&place == &places_[static_cast<std::size_t>(card.node)]);
    if (place.member) (changes() ? lost_.emplace_back() : replaced_.emplace()) = {card.node, words_of_loss(place)};
    place = Place{.holder = card, .heard_at = now};
    if (card.node != 0) place.sign = store_.get(beat_key(card));
    if (!running_ || !changes()) return;
    place.member = true;
    answer(card, fmt::format("joins {} {}", *running_, card.node));
}

void Places::answer(const NodeCard& card, const std::string& text) {
    TUTTI_ASSERT(!card.id.empty() && !text.empty());
    store_.set("launch/answer/" + card.id, text);
}

bool Places::is_silent(const Place& place, tutti::Clock::duration time) const {
    return &place != &places_.front() && looked_at_ - place.heard_at > time;
}

bool Places::lives(const Place& place) const {
    return place.holder && !place.gone && !is_silent(place, silence);
}

bool Places::is_free(const Place& place) const {
    return !place.holder || place.gone || is_silent(place, silence + fence);
}

int Places::living() const {
    return static_cast<int>(std::ranges::count_if(places_, [&](const Place& place) { return lives(place); }));
}

std::vector<Places::Lost> Places::take_lost() {
    TUTTI_ASSERT(changes());
    for (Place& place : places_) {
        if (place.member && !lives(place)) lost_.push_back({place.holder->node, words_of_loss(place)});
        place.member = lives(place);
    }
    return std::exchange(lost_, {});
}

std::string Places::words_of_loss(const Place& place) const {
    TUTTI_ASSERT(place.holder.has_value());
    const std::string cause =
        place.gone ? std::string(connection_ended)
                   : fmt::format(
                         "nothing was heard of it for {:.1f} s: it was killed or stopped, or the network between "
                         "it and node 0 was cut",
                         std::chrono::duration<double>(looked_at_ - place.heard_at).count());
    return launch::words_of_loss(*place.holder, cause);
}

std::optional<Places::Lost> Places::lost() const {
    if (replaced_) return replaced_;
    for (const Place& place : places_) {
        if (place.member && (place.gone || is_silent(place, silence)))
            return Lost{place.holder->node, words_of_loss(place)};
    }
    return std::nullopt;
}

std::vector<std::string> Places::present() const {
    std::vector<std::string> ids;
    for (const Place& place : places_) {
        if (place.holder && !place.gone) ids.push_back(place.holder->id);
    }
    return ids;
}

std::optional<Places::Lost> Places::missing(int attempt) {
    TUTTI_ASSERT(attempt >= 0);
    const std::string key = attempt_key(attempt - 1, "stopped");
    const auto stopped = attempt > 0 && store_.check({key}) ? lines_of(store_.get(key)) : std::vector<std::string>{};
    std::optional<Lost> result;
    std::string never;
    // With enough of them it is not waited for others but in the last call before the first attempt.
    const bool may_miss = enough_since_ && (attempt > 0 || looked_at_ - *enough_since_ >= last_call_);
    for (std::size_t k = 0; k < places_.size(); ++k) {
        const Place& place = places_[k];
        std::string why;
        if (may_miss && !lives(place)) continue;
        if (!place.holder) {
            never += fmt::format("{}{}", never.empty() ? "" : ", ", k);
            if (!result) result = Lost{static_cast<int>(k), ""};
            continue;
        }
        if (place.gone || is_silent(place, silence)) {
            why = fmt::format("node {}: {}{}; another with --node-rank {} can take its place", k, words_of_loss(place),
                              words_of_sign(place.sign), k);
        } else if (place.member && std::ranges::find(stopped, place.holder->id) == stopped.end()) {
            why = fmt::format("node {} ({}) has not ended its ranks yet", k, place.holder->who());
        } else {
            continue;
        }
        if (!result) result = Lost{static_cast<int>(k), ""};
        result->text += (result->text.empty() ? "" : "; ") + why;
    }
    if (!never.empty()) {
        result->text += fmt::format("{}no launcher of node {} has come", result->text.empty() ? "" : "; ", never);
    }
    const std::string words = result ? result->text : "";
    if (words != missing_) store_.set("launch/missing", missing_ = words);
    return result;
}

void Places::begin(int attempt) {
    replaced_.reset();
    roster_.cards.clear();
    running_ = attempt;
    for (Place& place : places_) {
        if (changes() && !lives(place)) place.holder.reset();
        if (!place.holder) continue;
        roster_.cards.push_back(*place.holder);
    }
    TUTTI_ASSERT(changes() || roster_.cards.size() == places_.size());
    store_.set(attempt_key(attempt, "roster"), roster_.to_text());
    for (Place& place : places_) {
        if (!place.holder)
            place = {};
        else if (!std::exchange(place.member, true))
            answer(*place.holder, fmt::format("joins {} {}", attempt, place.holder->node));
    }
}

void Places::give_up(int attempt) {
    TUTTI_ASSERT(attempt >= 0);
    store_.set(attempt_key(attempt, "roster"), "");
    for (const Place& place : places_) {
        if (place.holder && !place.member)
            answer(*place.holder, fmt::format("joins {} {}", attempt, place.holder->node));
    }
}

void Places::close(const std::string& why) {
    look();
    for (const Newcomer& newcomer : newcomers_) answer(newcomer.card, "refused the job has ended: " + why);
    for (const Place& place : places_) {
        if (place.holder && !place.member) answer(*place.holder, "refused the job has ended: " + why);
    }
}

}  // namespace tutti::launch
