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
    return fmt::format("{} {} {} {} {} {} {} {} {} {}", node, id, ranks, nodes, max_restarts, least, standby ? 1 : 0,
                       pid, address, host);
}

NodeCard NodeCard::from_text(const std::string& text) {
    std::istringstream in(text);
    NodeCard card;
    const bool is_read = bool(in >> card.node >> card.id >> card.ranks >> card.nodes >> card.max_restarts >>
                              card.least >> card.standby >> card.pid >> card.address);
    const bool takes_any = card.node == -1 && card.nodes == 0;
    if (!is_read || card.ranks < 1 || (!takes_any && (card.node < 0 || card.node >= card.nodes))) {
        throw DistStoreError(
            fmt::format("tutti run: the store says of a node: \"{}\": expected its number, id, ranks, nodes, restarts, "
                        "least nodes, standby, process and address",
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
        const int before = k <= 1 ? -1 : roster.cards[k - 1].node;
        const bool some = card.least > 0 && before < card.node && (k == 0 || card.node != roster.cards[0].node);
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
    admit(own_place(), own_, tutti::Clock::now());
}

// Whoever has a place is in the roster, or was answered later. Those without an answer are this one's to answer.
Places::Places(Store store, const Inheritance& from, int ranks_port)
    : store_(std::move(store)),
      own_(from.roster.cards.at(0)),
      roster_(from.roster),
      places_(static_cast<std::size_t>(own_.nodes)),
      last_call_{},
      running_(from.running),
      inherits_(true) {
    TUTTI_ASSERT(changes() && ranks_port >= 0);
    roster_.ranks_port = ranks_port;
    const auto hold = [&](const NodeCard& card) {
        Place& place = places_.at(static_cast<std::size_t>(card.node));
        place = {.holder = card, .sign = store_.get(beat_key(card)), .heard_at = looked_at_};
        place.gone = store_.check({"launch/gone/" + card.id});
        place.member = !place.gone;
        if (card.id != from.lost_id) return;
        // It may have been cut off: then its ranks end when they have not found the store for some time.
        place.gone = place.member = true;
        place.fenced_until = looked_at_ + silence;
    };
    for (const NodeCard& card : from.roster.cards) hold(card);
    const std::string came = store_.check({"launch/came"}) ? store_.get("launch/came") : "";
    read_ = came.rfind('\n') + 1;
    for (const std::string& line : lines_of(came.substr(0, read_))) {
        NodeCard card = NodeCard::from_text(line);
        const std::string key = "launch/answer/" + card.id, answer = store_.check({key}) ? store_.get(key) : "";
        int attempt = -1, node = -1;
        if (answer.empty()) {
            receive(card, looked_at_);
        } else if (std::istringstream in(answer); answer.starts_with("joins ")) {
            in.ignore(6) >> attempt >> node;
            complete(card, node);
            hold(card);
        }
    }
    const auto own =
        std::ranges::find_if(places_, [&](const Place& place) { return place.holder && place.holder->id == from.id; });
    if (own == places_.end()) throw DistStoreError("another launcher has the place of this one");
    own_ = *own->holder;
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
        if (&place == &own_place() || !place.holder) continue;
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
    for (const std::string& line : lines_of(came.substr(read_, end - read_))) receive(NodeCard::from_text(line), now);
    read_ = end + 1;
    TUTTI_ASSERT(read_ <= came.size());
}

void Places::receive(const NodeCard& card, Instant now) {
    if (card.node < 0 && !changes())
        return answer(
            card,
            "refused --join: the job's ranks are not replaced: expected a job with --nnodes MIN:MAX or --replace");
    const auto said = [](const NodeCard& c) { return std::tuple(c.nodes, c.max_restarts, c.least, c.standby); };
    if (card.node < 0 || said(card) == said(own_)) return newcomers_.push_back({card, {}, {}, now});
    const auto flags = [](const NodeCard& c) {
        const std::string nodes = c.least > 0 ? fmt::format("{}:{}", c.least, c.nodes) : std::to_string(c.nodes);
        return fmt::format("--nnodes {} --max-restarts {}{}{}", nodes, c.max_restarts, c.least > 0 ? " --replace" : "",
                           c.standby ? " --standby" : "");
    };
    disagreement_ = fmt::format("node {} was started with {}, node {} with {}: expected the same on all nodes",
                                card.node, flags(card), own_.node, flags(own_));
    answer(card, "refused " + disagreement_);
}

// What one that takes any place does not say.
void Places::complete(NodeCard& card, int node) const {
    TUTTI_ASSERT(node >= 0 && node < own_.nodes);
    card.node = node;
    card.nodes = own_.nodes;
    card.max_restarts = own_.max_restarts;
    card.least = own_.least;
    card.standby = own_.standby;
}

void Places::decide(Instant now) {
    std::erase_if(newcomers_, [&](Newcomer& newcomer) {
        const bool takes_any = newcomer.card.node < 0;
        if (takes_any) {
            const auto free = std::ranges::find_if(places_, [&](const Place& place) { return is_free(place); });
            const bool may_be_free = std::ranges::any_of(places_, [&](const Place& place) { return !lives(place); });
            if (free == places_.end() && may_be_free) return false;
            if (free == places_.end()) {
                answer(newcomer.card,
                       fmt::format("refused --join: all {} nodes of the job (--nnodes) are there", own_.nodes));
                return true;
            }
            complete(newcomer.card, static_cast<int>(free - places_.begin()));
        }
        Place& place = places_.at(static_cast<std::size_t>(newcomer.card.node));
        const bool waits = now - newcomer.since > unheard;
        if (waits && store_.check({"launch/gone/" + newcomer.card.id})) return true;
        if (is_free(place)) {
            admit(place, newcomer.card, now);
            place.takes_any = takes_any;
            return true;
        }
        // The one that takes any moves, unless it has been told its place.
        if (place.takes_any) {
            NodeCard moves = place.member ? newcomer.card : *place.holder;
            moves.node = -1;
            if (!place.member) admit(place, newcomer.card, now);
            newcomer = {std::move(moves), {}, {}, now};
            return false;
        }
        if (newcomer.id_of_holder != place.holder->id) {
            newcomer = {newcomer.card, place.holder->id, place.sign, now};
            return false;
        }
        const bool lives = place.sign != newcomer.sign_of_holder || newcomer.card.node == own_.node;
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
    if (place.member) (changes() ? lost_.emplace_back() : replaced_.emplace()) = Lost{card.node, words_of_loss(place)};
    place = Place{.holder = card, .heard_at = now};
    if (card.node != own_.node) place.sign = store_.get(beat_key(card));
    if (!running_ || !changes()) return;
    place.member = true;
    answer(card, fmt::format("joins {} {}", *running_, card.node));
}

void Places::answer(const NodeCard& card, const std::string& text) {
    TUTTI_ASSERT(!card.id.empty() && !text.empty());
    store_.set("launch/answer/" + card.id, text);
}

bool Places::is_silent(const Place& place, tutti::Clock::duration time) const {
    return place.holder && place.holder->id != own_.id && looked_at_ - place.heard_at > time;
}

bool Places::lives(const Place& place) const {
    return place.holder && !place.gone && !is_silent(place, silence);
}

bool Places::is_free(const Place& place) const {
    return !place.holder || ((place.gone || is_silent(place, silence + fence)) && looked_at_ >= place.fenced_until);
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
        place.fenced_until != Instant{} ? "it served the job's store, and was killed or stopped, or the network was cut"
        : place.gone                    ? std::string(connection_ended)
                                        : fmt::format(
                                              "nothing was heard of it for {:.1f} s: it was killed or stopped, or the network between "
                                                                 "it and node 0 was cut",
                                              std::chrono::duration<double>(looked_at_ - place.heard_at).count());
    return launch::words_of_loss(*place.holder, cause);
}

std::string Places::another(int node) const {
    return inherits_ ? "another by --join" : fmt::format("another with --node-rank {}", node);
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

std::vector<std::string> Places::others() const {
    std::vector<std::string> ids;
    for (const Place& place : places_) {
        const bool takes_part = place.member || roster_.cards.empty();
        if (lives(place) && takes_part && place.holder->id != own_.id) ids.push_back(place.holder->id);
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
            why = fmt::format("node {}: {}{}; {} can take its place", k, words_of_loss(place),
                              words_of_sign(place.sign), another(static_cast<int>(k)));
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
        const bool is_own = place.holder->id == own_.id;
        roster_.cards.insert(is_own ? roster_.cards.begin() : roster_.cards.end(), *place.holder);
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
