#include "record/pages.hpp"

#include "core/assert.hpp"
#include "core/log.hpp"
#include "core/this_host.hpp"
#include "record/html.hpp"
#include "record/stacks.hpp"
#include "record/timeline.hpp"
#include "record/wanted.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto patience = 2s;  // with the pages of other ranks
constexpr auto patience_of_stacks = 2s;
constexpr int ranks_max = 1024;   // that one page asks
constexpr std::size_t tail = 64;  // operations of each group; those that are still open in any case
constexpr const char* plain = "text/plain; charset=utf-8";
constexpr const char* index_text =
    "/status       what the ranks of this host are in, and for whom they wait\n"
    "/status.html  the same for a browser, as matrices\n"
    "/status.json  the same as JSON\n"
    "/stack        where the threads of this process are now\n"
    "/stacks       the same of the ranks of this host\n"
    "/metrics      counters of this process, in Prometheus' text format\n"
    "/trace        the last records of this process\n";

// The job's ranks on this host, as far as they have answered.
struct View {
    std::vector<WorldTimeline> worlds;
    std::vector<int> elsewhere;  ///< no process here has their page
    std::vector<int> silent;     ///< their process does not answer
    std::vector<int> foreign;    ///< another user's process has their place, and was not asked
};

std::vector<Dump> dumps_of(const std::string& body, const std::string& origin) {
    std::vector<Dump> dumps;
    const json parsed = json::parse(body, nullptr, false);
    if (!parsed.is_array()) return dumps;
    for (const json& text : parsed) {
        if (text.is_string()) dumps.push_back(decode(text.get_ref<const std::string&>(), origin));
    }
    return dumps;
}

class Pages {
 public:
    Pages(int first_port, security::Secret token, OwnRecords own)
        : first_port_(first_port), token_(std::move(token)), own_(own) {
        TUTTI_ASSERT(first_port >= 1 && first_port <= 65535 && own.dumps != nullptr && own.metrics != nullptr);
    }

    std::optional<HttpPage> operator()(const std::string& path, const AbortFlag& stop) const {
        if (path == "/") return HttpPage{plain, index_text};
        if (path == "/status") return HttpPage{plain, text_of(look(stop))};
        if (path == "/status.html") {
            const View view = look(stop);
            return HttpPage{"text/html; charset=utf-8", html_of(view.worlds, remarks_on(view))};
        }
        if (path == "/status.json") return HttpPage{"application/json", json_of(look(stop)).dump(1) + "\n"};
        if (path == "/stack") return HttpPage{plain, own_stacks(own_.dumps("", 1))};
        if (path == "/stacks") return HttpPage{plain, all_stacks(stop)};
        if (path == "/metrics") return HttpPage{"text/plain; version=0.0.4; charset=utf-8", own_.metrics()};
        if (path == "/trace") return HttpPage{"application/json", own_trace()};
        return std::nullopt;
    }

 private:
    std::string own_trace() const {
        json texts = json::array();
        for (const Dump& dump : own_.dumps("asked for over HTTP", tail)) texts.push_back(encode(dump));
        return texts.dump(-1, ' ', false, json::error_handler_t::replace);
    }
    // The other ranks of the job that may be on this host, and their answers.
    struct Others {
        std::vector<int> ranks;
        std::vector<HttpAnswer> answers;
    };
    Others ask_others(const std::vector<Dump>& own, const std::string& path, std::chrono::milliseconds time,
                      const AbortFlag& stop) const {
        std::set<int> here;
        int size = 0;
        for (const Dump& dump : own) {
            here.insert(dump.members[dump.rank]);
            const std::vector<int>& members = dump.members.ranks();
            size = std::max(size, members.empty() ? dump.size : *std::ranges::max_element(members) + 1);
        }
        Others others;
        std::vector<std::uint16_t> ports;
        for (int rank = 0; rank < std::min(size, ranks_max) && first_port_ + rank <= 65535; ++rank) {
            if (here.contains(rank)) continue;
            others.ranks.push_back(rank);
            ports.push_back(static_cast<std::uint16_t>(first_port_ + rank));
        }
        TUTTI_ASSERT(ports.size() == others.ranks.size() && !path.empty());
        others.answers = http_get(ports, path, token_, Deadline::after(time), stop);
        TUTTI_ASSERT(others.answers.size() == others.ranks.size());
        return others;
    }
    View look(const AbortFlag& stop) const {
        // As the other ranks give theirs: with nothing that would steer a terminal.
        std::vector<Dump> dumps = dumps_of(own_trace(), "this process");
        View view;
        const Others others = ask_others(dumps, "/trace", patience, stop);
        for (std::size_t i = 0; i < others.ranks.size(); ++i) {
            const HttpAnswer& answer = others.answers[i];
            if (!answer.body) {
                (answer.refused        ? view.elsewhere
                 : answer.foreign_user ? view.foreign
                                       : view.silent)
                    .push_back(others.ranks[i]);
                continue;
            }
            for (Dump& dump : dumps_of(*answer.body, fmt::format("the page of rank {}", others.ranks[i])))
                dumps.push_back(std::move(dump));
        }
        // Ranks in one process share a page.
        std::set<int> known;
        for (const Dump& dump : dumps) known.insert(dump.members[dump.rank]);
        std::erase_if(view.elsewhere, [&](int rank) { return known.contains(rank); });
        view.worlds = merge(std::move(dumps));
        return view;
    }
    static std::string own_stacks(const std::vector<Dump>& own) {
        std::set<int> ranks;
        for (const Dump& dump : own) ranks.insert(dump.members[dump.rank]);
        const std::string who = Members().list_of({ranks.begin(), ranks.end()});
        return fmt::format("{} ({}, pid {})\n{}", who, this_host::name(), ::getpid(),
                           stacks_of_threads(patience_of_stacks));
    }
    std::string all_stacks(const AbortFlag& stop) const {
        const std::vector<Dump> own = own_.dumps("", 1);
        std::map<int, std::string> by_rank;
        for (const Dump& dump : own) by_rank[dump.members[dump.rank]];
        if (!by_rank.empty()) by_rank.begin()->second = own_stacks(own);
        const Others others = ask_others(own, "/stack", 2 * patience_of_stacks, stop);
        for (std::size_t i = 0; i < others.ranks.size(); ++i) {
            const HttpAnswer& answer = others.answers[i];
            if (answer.body)
                by_rank[others.ranks[i]] = *answer.body;
            else if (!answer.refused && !answer.foreign_user)  // else it is on another host, or has ended
                by_rank[others.ranks[i]] = fmt::format("rank {}: no answer: stopped, or cut off\n", others.ranks[i]);
        }
        std::string text;
        for (const auto& [rank, stacks] : by_rank) text += stacks;
        return text;
    }
    static std::string remarks_on(const View& view) {
        std::string text;
        const Members all;
        if (!view.silent.empty())
            text += fmt::format("no answer within {} s from {}: stopped, or cut off\n", patience.count(),
                                all.list_of(view.silent));
        if (!view.foreign.empty())
            text += fmt::format("another user's process has the place of the page of {}: it was not asked\n",
                                all.list_of(view.foreign));
        if (!view.elsewhere.empty())
            text += fmt::format("no page on this host of {}: on another host, ended, or in another process\n",
                                all.list_of(view.elsewhere));
        return text;
    }
    static std::string text_of(const View& view) {
        std::string text = remarks_on(view);
        for (const WorldTimeline& world : view.worlds) text += describe(world);
        return text;
    }
    static json json_of(const View& view) {
        json groups = json::array();
        for (const WorldTimeline& world : view.worlds) groups.push_back(json_of(world));
        return {{"silent", view.silent},
                {"foreign", view.foreign},
                {"elsewhere", view.elsewhere},
                {"groups", std::move(groups)}};
    }
    static json json_of(const Members& members, const Entry& entry, std::int64_t now_ns) {
        json value{{"operation", entry.title(members)},
                   {"sequence", entry.sequence},
                   {"state", to_string(entry.state)},
                   {"since_unix_s", 1e-9 * static_cast<double>(entry.enqueued_ns)},
                   {"seconds", 1e-9 * static_cast<double>(std::max<std::int64_t>(0, now_ns - entry.enqueued_ns))},
                   {"called_at", entry.site}};
        if (entry.tag >= 0) value["tag"] = entry.tag;
        return value;
    }
    static json json_of(const WorldTimeline& world) {
        json ranks = json::array(), waits = json::array();
        for (const auto& dump : world.ranks) {
            if (!dump) continue;
            json open = json::array();
            for (const Entry& entry : dump->entries) {
                if (entry.open()) open.push_back(json_of(world.members, entry, dump->taken_ns));
            }
            json unmatched = json::array();
            for (const UnmatchedMessage& message : dump->unmatched)
                unmatched.push_back(
                    {{"from", world.members[message.from]}, {"tag", message.tag}, {"what", message.what}});
            ranks.push_back({{"rank", world.members[dump->rank]},
                             {"host", dump->host},
                             {"pid", dump->process},
                             {"operations", dump->entries.empty() ? 0 : dump->entries.back().number},
                             {"replays", dump->replays},
                             {"unmatched", std::move(unmatched)},
                             {"open", std::move(open)}});
        }
        for (const Wait& wait : wait_for_graph(world)) {
            json peers = json::array();
            for (const int peer : wait.peers) peers.push_back(world.members[peer]);
            waits.push_back({{"rank", world.members[wait.rank]},
                             {"for", std::move(peers)},
                             {"in", wait.in.title(world.members)},
                             {"sequence", wait.in.sequence},
                             {"seconds", wait.seconds},
                             {"because", wait.because}});
        }
        return {{"group", world.group},
                {"size", world.ranks.size()},
                {"ranks", std::move(ranks)},
                {"waits", std::move(waits)}};
    }

    const int first_port_;
    const security::Secret token_;
    const OwnRecords own_;
};

}  // namespace

std::unique_ptr<HttpServer> serve_pages(int rank, OwnRecords own) {
    TUTTI_ASSERT(rank >= 0);
    const auto first = status_port();
    if (!first) return nullptr;
    try {
        const auto secret = security::Secret::from_environment();
        if (!secret) {
            TUTTI_WARN("TUTTI_STATUS_PORT is set, and the job has no secret: no pages; set TUTTI_JOB_SECRET");
            return nullptr;
        }
        if (*first + rank > 65535) {
            TUTTI_WARN("TUTTI_STATUS_PORT={}: rank {} has no page: there is no port {}", *first, rank, *first + rank);
            return nullptr;
        }
        const security::Secret token = page_token(*secret);
        auto server =
            std::make_unique<HttpServer>(static_cast<std::uint16_t>(*first + rank), token, Pages(*first, token, own));
        TUTTI_INFO("the pages of rank {} are at http://127.0.0.1:{}/", rank, *first + rank);
        return server;
    } catch (const std::exception& error) {
        TUTTI_WARN("rank {} has no pages: {}", rank, error.what());
        return nullptr;
    }
}

}  // namespace tutti::record
