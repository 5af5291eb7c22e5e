#include "record/dump.hpp"

#include "core/assert.hpp"
#include "core/text.hpp"
#include "core/unique_fd.hpp"
#include "core/whole_file.hpp"

#include <tutti/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

namespace tutti::record {
namespace {

using nlohmann::json;

constexpr std::size_t line_max = 1 << 16;
constexpr std::size_t text_max = 8192;
constexpr std::size_t replay_text_max = 1024;
constexpr std::size_t list_max = 1024;                    // longer ones are left out
constexpr std::int64_t time_max = std::int64_t{1} << 61;  // differences of sums of times must not overflow

constexpr std::array state_names{"enqueued", "started", "completed", "failed"};
constexpr std::array kind_names{"collective", "from_root", "to_root", "send", "receive"};

std::string line_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

[[noreturn]] void refuse(const std::string& origin, std::size_t line, const std::string& what) {
    throw InvalidArgument(fmt::format("{}, line {}: {}", origin, line, what));
}

// One line, field by field: nothing in it can be trusted.
class Fields {
 public:
    Fields(std::string_view text, const std::string& origin, std::size_t line) : origin_(origin), line_(line) {
        if (text.size() > line_max) refuse(origin_, line_, fmt::format("longer than {} bytes", line_max));
        object_ = json::parse(text, nullptr, false);
        if (!object_.is_object()) refuse(origin_, line_, "expected a JSON object");
    }
    std::int64_t integer(const char* name, std::int64_t min, std::int64_t max, std::int64_t absent) const {
        TUTTI_ASSERT(name != nullptr && min <= max);
        const auto found = object_.find(name);
        if (found == object_.end()) return absent;
        const bool fits = found->is_number_unsigned() ? found->get<std::uint64_t>() <=
                                                            static_cast<std::uint64_t>(std::max<std::int64_t>(max, 0))
                                                      : found->is_number_integer() && found->get<std::int64_t>() <= max;
        if (!fits || (!found->is_number_unsigned() && found->get<std::int64_t>() < min) ||
            (found->is_number_unsigned() && min > 0 && found->get<std::uint64_t>() < static_cast<std::uint64_t>(min))) {
            refuse(origin_, line_, fmt::format("{}: expected an integer from {} to {}", name, min, max));
        }
        return found->get<std::int64_t>();
    }
    // None, or `count` of them.
    std::vector<int> integers(const char* name, int min, int max, std::size_t count) const {
        const auto found = object_.find(name);
        if (found == object_.end()) return {};
        const auto fits = [&](const json& value) { return value.is_number_integer() && value >= min && value <= max; };
        if (!found->is_array() || found->size() != count || !std::ranges::all_of(*found, fits))
            refuse(origin_, line_, fmt::format("{}: expected {} integers from {} to {}", name, count, min, max));
        TUTTI_ASSERT(found->size() == count);
        return found->get<std::vector<int>>();
    }
    // None, or at most `count` of them.
    std::vector<std::uint64_t> counts(const char* name, std::size_t count) const {
        const json found = list(name, count, "counts", &json::is_number_unsigned);
        return found.get<std::vector<std::uint64_t>>();
    }
    int integer32(const char* name, int min, int max, int absent) const {
        return static_cast<int>(integer(name, min, max, absent));
    }
    bool has(const char* name) const { return object_.contains(name); }
    std::string text(const char* name) const {
        const auto found = object_.find(name);
        if (found == object_.end()) return {};
        if (!found->is_string()) refuse(origin_, line_, fmt::format("{}: expected a string", name));
        return printable(name, *found, false);
    }
    std::string line(const char* name) const { return visible_line(text(name)); }
    // The same, as times.
    std::vector<std::int64_t> times(const char* name, std::size_t count) const {
        std::vector<std::int64_t> values;
        for (const std::uint64_t value : counts(name, count))
            values.push_back(static_cast<std::int64_t>(std::min<std::uint64_t>(value, time_max)));
        return values;
    }
    // None, or at most `count` of them.
    std::vector<std::string> texts(const char* name, std::size_t count) const {
        std::vector<std::string> values;
        for (const json& value : list(name, count, "strings", &json::is_string))
            values.push_back(printable(name, value, true));
        return values;
    }
    // None, or at most `count` of them.
    std::vector<Fields> objects(const char* name, std::size_t count) const {
        std::vector<Fields> values;
        for (const json& value : list(name, count, "objects", &json::is_object))
            values.push_back(Fields(value, origin_, line_));
        return values;
    }
    std::uint64_t hex(const char* name) const {
        const std::string digits = text(name);
        const auto value = number_in<std::uint64_t>(digits, 16);
        if (!value) refuse(origin_, line_, fmt::format("{}: expected hexadecimal digits", name));
        return *value;
    }
    template <class Enum, std::size_t count>
    Enum name_of(const char* field, const std::array<const char*, count>& names) const {
        const auto found = std::ranges::find(names, text(field), [](const char* name) { return std::string(name); });
        if (found == names.end()) refuse(origin_, line_, fmt::format("{}: \"{}\" is unknown", field, text(field)));
        TUTTI_ASSERT(found >= names.begin() && found < names.end());
        return static_cast<Enum>(found - names.begin() + 1);
    }

 private:
    Fields(json object, const std::string& origin, std::size_t line)
        : origin_(origin), line_(line), object_(std::move(object)) {}
    // Empty where the field is absent.
    json list(const char* name, std::size_t most, const char* of, bool (json::*fits)() const noexcept) const {
        const auto found = object_.find(name);
        if (found == object_.end()) return json::array();
        if (!found->is_array() || found->size() > most || !std::ranges::all_of(*found, fits))
            refuse(origin_, line_, fmt::format("{}: expected at most {} {}", name, most, of));
        return *found;
    }
    // Printed later: characters that could steer a terminal, or forge a line, become visible.
    std::string printable(const char* name, const json& text, bool on_one_line) const {
        const std::string value = text.get<std::string>();
        if (value.size() > text_max) refuse(origin_, line_, fmt::format("{}: longer than {} bytes", name, text_max));
        return on_one_line ? visible_line(value) : visible(value);
    }

    const std::string& origin_;
    std::size_t line_;
    json object_;
};

Dump header_of(const Fields& f, const std::string& origin) {
    const auto version = f.integer("tutti_dump", 0, INT32_MAX, 0);
    if (version != dump_version) {
        refuse(origin, 1,
               version == 0 ? "not a dump of tutti"
                            : fmt::format("a dump of version {}: expected {}", version, dump_version));
    }
    Dump dump;
    dump.group = f.line("group");
    dump.world = f.hex("world");
    if (!f.text("home").empty()) dump.home = f.hex("home");
    dump.size = f.integer32("size", 1, dump_ranks_max, 1);
    dump.rank = f.integer32("rank", 0, dump.size - 1, 0);
    dump.members = Members(f.integers("members", 0, dump_ranks_max - 1, static_cast<std::size_t>(dump.size)));
    dump.made_at = f.line("made_at");
    dump.host = f.line("host");
    dump.machine = f.line("machine");
    dump.process = f.integer32("pid", 0, INT32_MAX, 0);
    dump.reason = f.text("reason");
    dump.taken_ns = f.integer("taken_ns", 0, time_max, 0);
    dump.replays = f.texts("replays", dump_replays_max);
    for (const std::uint64_t rank : f.counts("waits_for", static_cast<std::size_t>(dump.size))) {
        if (rank < static_cast<std::uint64_t>(dump.size)) dump.waits_for.push_back(static_cast<int>(rank));
    }
    for (const Fields& message : f.objects("unmatched", unmatched_max)) {
        dump.unmatched.push_back({.from = message.integer32("from", 0, dump.size - 1, 0),
                                  .tag = message.integer32("tag", 0, INT32_MAX, 0),
                                  .what = message.text("what")});
    }
    TUTTI_ASSERT(dump.rank >= 0 && dump.rank < dump.size);
    TUTTI_ASSERT(dump.waits_for.size() <= static_cast<std::size_t>(dump.size) &&
                 dump.unmatched.size() <= unmatched_max);
    return dump;
}

Entry entry_of(const Fields& f, int size) {
    TUTTI_ASSERT(size >= 1);
    Entry entry;
    entry.number = static_cast<std::uint64_t>(f.integer("number", 1, INT64_MAX, 1));
    entry.sequence = static_cast<std::uint64_t>(f.integer("sequence", 0, INT64_MAX, 0));
    entry.message = static_cast<std::uint64_t>(f.integer("message", 0, INT64_MAX, 0));
    entry.fingerprint = f.hex("fingerprint");
    entry.what = f.line("what");
    entry.kind = f.name_of<Kind>("kind", kind_names);
    entry.state = f.name_of<State>("state", state_names);
    entry.peer = f.integer32("peer", -1, size - 1, -1);
    entry.tag = f.integer32("tag", 0, INT32_MAX, -1);
    entry.enqueued_ns = f.integer("enqueued_ns", 0, time_max, 0);
    entry.started_ns = f.integer("started_ns", 0, time_max, 0);
    entry.ended_ns = f.integer("ended_ns", 0, time_max, 0);
    entry.site = f.line("site");
    entry.sent = f.counts("sent", static_cast<std::size_t>(size));
    entry.received = f.counts("received", static_cast<std::size_t>(size));
    TUTTI_ASSERT(entry.number >= 1 && entry.peer >= -1 && entry.peer < size);
    return entry;
}

// A node of a graph, or a replay of it.
void add_to_graphs(Dump& dump, const Fields& f, const std::string& origin, std::size_t line) {
    const auto id = static_cast<std::uint64_t>(f.integer("graph", 1, INT64_MAX, 1));
    auto graph = std::ranges::find(dump.graphs, id, &ReplayedGraph::id);
    if (graph == dump.graphs.end()) {
        if (dump.graphs.size() >= dump_graphs_max)
            refuse(origin, line, fmt::format("more than {} graphs", dump_graphs_max));
        dump.graphs.push_back({.id = id});
        graph = dump.graphs.end() - 1;
    }
    TUTTI_ASSERT(dump.graphs.size() <= dump_graphs_max && graph->id == id);
    if (f.has("node")) {
        if (graph->nodes.size() >= replayed_nodes_max)
            refuse(origin, line, fmt::format("more than {} nodes of a graph", replayed_nodes_max));
        graph->nodes.push_back(f.line("node"));
        return;
    }
    if (graph->replays.size() >= replays_of_graph_max)
        refuse(origin, line, fmt::format("more than {} replays of a graph", replays_of_graph_max));
    graph->replays.push_back({.number = static_cast<std::uint64_t>(f.integer("replay", 1, INT64_MAX, 1)),
                              .ended_ns = f.integer("ended_ns", 0, time_max, 0),
                              .began_ns = f.times("began_ns", replayed_nodes_max)});
}

std::string text_of(const ReplayedGraph& graph) {
    TUTTI_ASSERT(graph.id != 0);
    std::string text;
    for (const std::string& node : graph.nodes)
        text += line_of({{"graph", graph.id}, {"node", node.substr(0, replay_text_max)}});
    for (const Replay& replay : graph.replays) {
        json line{{"graph", graph.id}, {"replay", replay.number}, {"began_ns", replay.began_ns}};
        if (replay.ended_ns != 0) line["ended_ns"] = replay.ended_ns;
        text += line_of(line);
    }
    return text;
}

}  // namespace

std::string_view to_string(State state) {
    TUTTI_ASSERT(static_cast<std::size_t>(state) >= 1 && static_cast<std::size_t>(state) <= state_names.size());
    return state_names[static_cast<std::size_t>(state) - 1];
}
std::string_view to_string(Kind kind) {
    TUTTI_ASSERT(static_cast<std::size_t>(kind) >= 1 && static_cast<std::size_t>(kind) <= kind_names.size());
    return kind_names[static_cast<std::size_t>(kind) - 1];
}

std::string Members::list_of(const std::vector<int>& own) const {
    std::vector<int> ranks;
    for (const int rank : own) ranks.push_back((*this)[rank]);
    std::ranges::sort(ranks);
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size();) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
        if (i > 0) text += ", ";
        text += last > i + 1 ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
        i = last > i + 1 ? last + 1 : i + 1;
        TUTTI_ASSERT(i <= ranks.size());
    }
    return text;
}

std::string Entry::title(const Members& members) const {
    if (!is_message(kind)) return fmt::format("#{} {}", sequence, what);
    const std::string other = peer < 0 ? "any rank" : fmt::format("rank {}", members[peer]);
    return fmt::format("{} of {} {} {}{}", to_string(kind), what, kind == Kind::send ? "to" : "from", other,
                       tag >= 0 ? fmt::format(" with tag {}", tag) : std::string());
}

std::string in_replays(const Dump& dump) {
    std::string text;
    for (const std::string& replay : dump.replays) text += fmt::format("; it is in {}", replay);
    return text;
}

std::string unmatched_in_words(const Dump& dump) {
    constexpr std::size_t named_max = 4;
    std::map<std::pair<int, int>, std::size_t> counts;  // by tag and rank
    for (const UnmatchedMessage& message : dump.unmatched) ++counts[{message.tag, dump.members[message.from]}];
    std::string text;
    std::size_t named = 0;
    for (const auto& [key, count] : counts) {
        if (++named > named_max) break;
        text += named > 1 ? ", " : "";
        const auto [tag, rank] = key;
        text += count == 1 ? fmt::format("a message with tag {} from rank {}", tag, rank)
                           : fmt::format("{} messages with tag {} from rank {}", count, tag, rank);
    }
    if (named > named_max) text += " and others";
    if (!text.empty()) text += dump.unmatched.size() == 1 ? " is here" : " are here";
    return text;
}

std::string encode(const Dump& d) {
    TUTTI_ASSERT(d.size >= 1 && d.rank >= 0 && d.rank < d.size);
    json head({{"tutti_dump", dump_version},
               {"group", d.group},
               {"world", fmt::format("{:x}", d.world)},
               {"home", fmt::format("{:x}", d.home)},
               {"rank", d.rank},
               {"size", d.size},
               {"host", d.host},
               {"machine", d.machine},
               {"pid", d.process},
               {"reason", d.reason.substr(0, text_max / 4)},
               {"taken_ns", d.taken_ns}});
    if (!d.members.ranks().empty()) head["members"] = d.members.ranks();
    for (std::size_t i = 0; i < std::min(d.replays.size(), dump_replays_max); ++i)
        head["replays"].push_back(d.replays[i].substr(0, replay_text_max));
    if (!d.waits_for.empty() && d.waits_for.size() <= list_max) head["waits_for"] = d.waits_for;
    if (!d.made_at.empty()) head["made_at"] = d.made_at.substr(0, text_max / 4);
    for (std::size_t i = 0; i < std::min(d.unmatched.size(), unmatched_max); ++i) {
        const UnmatchedMessage& message = d.unmatched[i];
        head["unmatched"].push_back({{"from", message.from}, {"tag", message.tag}, {"what", message.what}});
    }
    std::string text = line_of(head);
    for (const Entry& e : d.entries) {
        json line{{"number", e.number},
                  {"what", e.what},
                  {"kind", to_string(e.kind)},
                  {"state", to_string(e.state)},
                  {"fingerprint", fmt::format("{:x}", e.fingerprint)}};
        if (e.sequence != 0) line["sequence"] = e.sequence;
        if (e.message != 0) line["message"] = e.message;
        if (e.peer >= 0) line["peer"] = e.peer;
        if (e.tag >= 0) line["tag"] = e.tag;
        if (e.enqueued_ns != 0) line["enqueued_ns"] = e.enqueued_ns;
        if (e.started_ns != 0) line["started_ns"] = e.started_ns;
        if (e.ended_ns != 0) line["ended_ns"] = e.ended_ns;
        if (!e.site.empty()) line["site"] = e.site.substr(0, text_max / 4);
        if (e.sent.size() <= list_max && e.received.size() <= list_max) {
            if (!e.sent.empty()) line["sent"] = e.sent;
            if (!e.received.empty()) line["received"] = e.received;
        }
        text += line_of(line);
    }
    for (const ReplayedGraph& graph : d.graphs) text += text_of(graph);
    return text;
}

Dump decode(std::string_view text, const std::string& origin) {
    Dump dump;
    std::size_t line = 0;
    while (!text.empty()) {
        const Fields fields(take_line(text), origin, ++line);
        if (line == 1) {
            dump = header_of(fields, origin);
            continue;
        }
        if (fields.has("graph")) {
            add_to_graphs(dump, fields, origin, line);
            continue;
        }
        if (dump.entries.size() >= dump_entries_max)
            refuse(origin, line, fmt::format("more than {} operations", dump_entries_max));
        dump.entries.push_back(entry_of(fields, dump.size));
    }
    if (line == 0) refuse(origin, 1, "not a dump of tutti: it is empty");
    return dump;
}

std::string file_name(const Dump& dump) {
    TUTTI_ASSERT(dump.rank >= 0);
    std::string group = dump.group.substr(0, 64);
    for (char& c : group) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
        if (!plain) c = '_';
    }
    return fmt::format("{}.{:016x}.rank-{}.dump", group, dump.world, dump.rank);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
    const auto fail = [&](const char* what) {
        TUTTI_ASSERT(!path.empty());
        throw InvalidArgument(fmt::format("{}: cannot be {}: {}", path.string(), what, std::strerror(errno)));
    };
    static std::atomic<unsigned> files{0};  // two threads may write the same file at once: the later one stays
    // Without the dump's name, by which readers of the folder know dumps.
    const std::string temporary = (path.parent_path() / fmt::format(".{}.{}.new", ::getpid(), ++files)).string();
    {
        const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!fd) fail("written");
        while (!text.empty()) {
            const ssize_t count = ::write(fd.get(), text.data(), text.size());
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) {
                const int error = errno;
                ::unlink(temporary.c_str());
                errno = error;
                fail("written");
            }
            TUTTI_ASSERT(static_cast<std::size_t>(count) <= text.size());
            text.remove_prefix(static_cast<std::size_t>(count));
        }
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
        const int error = errno;
        ::unlink(temporary.c_str());
        errno = error;
        fail("replaced");
    }
}

Dump read_dump(const std::filesystem::path& path) {
    std::string text;
    try {
        text = whole_file(path, dump_bytes_max);
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: expected a file: a dump of tutti: it {}", path.string(), error.what()));
    }
    return decode(text, path.string());
}

}  // namespace tutti::record
