#include "record/flight.hpp"

#include "core/assert.hpp"

#include <tutti/collectives.hpp>
#include <tutti/version.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti::record {
namespace {

using nlohmann::json;

constexpr const char* schema = "2.11";

// As PyTorch spells them.
std::string_view torch_name(std::string_view dtype) {
    constexpr auto names = std::to_array<std::pair<std::string_view, std::string_view>>({
        {"bool", "Bool"},
        {"uint8", "Byte"},
        {"int8", "Char"},
        {"int16", "Short"},
        {"int32", "Int"},
        {"int64", "Long"},
        {"uint16", "UInt16"},
        {"uint32", "UInt32"},
        {"uint64", "UInt64"},
        {"float16", "Half"},
        {"bfloat16", "BFloat16"},
        {"float32", "Float"},
        {"float64", "Double"},
        {"complex64", "ComplexFloat"},
        {"complex128", "ComplexDouble"},
        {"float8_e4m3fn", "Float8_e4m3fn"},
        {"float8_e5m2", "Float8_e5m2"},
    });
    const auto found = std::ranges::find(names, dtype, &std::pair<std::string_view, std::string_view>::first);
    return found == names.end() ? dtype : found->second;
}

// The readers' name of an operation, and the elements that each rank puts in and gets out; none: not known.
struct Form {
    std::string name;
    std::optional<std::uint64_t> in, out;
};

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

Form form_of(const Entry& entry, const What& what, const Dump& dump) {
    const auto size = static_cast<std::uint64_t>(dump.size);
    TUTTI_ASSERT(dump.size >= 1);
    const bool root = entry.peer == dump.rank;
    const auto n = what.several ? std::nullopt : what.count;
    std::string op = what.operation;
    if (op.starts_with("quantized_")) op.erase(0, 10);
    if (const auto collective = collective_named(op)) {
        using Extent = CollectiveTraits::Extent;
        const CollectiveTraits& traits = traits_of(*collective);
        if (traits.input == Extent::exchanged) return {op, sum(entry.sent), sum(entry.received)};
        // Where there is a root, it alone has the blocks of all.
        const auto all = n && (root || !traits.is_rooted()) ? std::optional(*n * size) : std::nullopt;
        const auto elements = [&](Extent extent) -> std::optional<std::uint64_t> {
            if (extent == Extent::nothing) return std::nullopt;
            return extent == Extent::all_blocks ? all : n;
        };
        if (what.several && collective == Collective::all_reduce) op = "allreduce_coalesced";
        if (!n && traits.has_blocks() && !traits.is_rooted()) op += "_v";
        return {op, elements(traits.input), elements(traits.output)};
    }
    if (op == "broadcast_object_list") return {"broadcast", {}, {}};
    if (op == "all_gather_object") return {"all_gather_v", {}, {}};
    if (op == "gather_object") return {"gather", {}, {}};
    if (op == "scatter_object_list") return {"scatter", {}, {}};
    if (op == "empty_symmetric") return {"new_window", {}, {}};
    return {"split", {}, {}};  // groups are made
}

// "train.py:12 in step" and "step(int)+0x1f in train+0x4a1f": where it was called is one frame.
json frames_of(const std::string& site) {
    if (site.empty()) return json::array();
    const std::size_t in = site.rfind(" in ");
    const std::string first = site.substr(0, in), second = in == std::string::npos ? "" : site.substr(in + 4);
    const std::size_t colon = first.rfind(':');
    int line = 0;
    if (!second.empty() && colon != std::string::npos) {
        const char* end = first.data() + first.size();
        const auto [at, error] = std::from_chars(first.data() + colon + 1, end, line);
        if (error == std::errc() && at == end)
            return json::array({{{"name", second}, {"filename", first.substr(0, colon)}, {"line", line}}});
    }
    return json::array({{{"name", first}, {"filename", second}, {"line", 0}}});
}

// A group as readers see it: one of the program's, or two ranks and the messages from one to the other.
class Flight {
 public:
    void add(const Dump& dump) {
        const bool whole = dump.members.ranks().empty();
        std::vector<int> members = dump.members.ranks();
        if (whole) {
            members.resize(static_cast<std::size_t>(dump.size));
            std::iota(members.begin(), members.end(), 0);
            TUTTI_ASSERT(members.size() == static_cast<std::size_t>(dump.size));
        }
        const int id = add_group(dump.group, whole ? "default_pg" : "undefined", members);
        std::uint64_t messages = 0;
        for (const Entry& entry : dump.entries) {
            if (is_message(entry.kind))
                add_message(dump, entry, ++messages);
            else
                add_collective(dump, entry, id, messages);
        }
        if (!dump.entries.empty()) forgotten_ += dump.entries.front().number - 1;
    }
    // The number of an entry counts all calls of this rank, also forgotten ones: readers leave out entries older than
    // the first entry of any rank.
    json take() {
        std::ranges::stable_sort(entries_, {},
                                 [](const json& e) { return e.at("time_created_ns").get<std::int64_t>(); });
        std::uint64_t number = forgotten_;
        for (json& entry : entries_) entry["record_id"] = number++;
        return {{"version", schema},
                {"comm_lib_version", fmt::format("tutti {}", version())},
                {"pg_config", config_},
                {"pg_status", status_},
                {"entries", entries_}};
    }

 private:
    int add_group(const std::string& name, const std::string& description, std::vector<int> members) {
        TUTTI_ASSERT(!name.empty() && !members.empty());
        const auto [place, is_new] = ids_.try_emplace(name, static_cast<int>(ids_.size()));
        if (!is_new) return place->second;
        std::ranges::sort(members);
        config_[name] = {
            {"name", name}, {"desc", description}, {"ranks", fmt::format("[{}]", fmt::join(members, ", "))}};
        status_[std::to_string(place->second)] = {
            {"last_enqueued_collective", -1}, {"last_started_collective", -1}, {"last_completed_collective", -1}};
        return place->second;
    }
    void note_progress(int id, std::uint64_t number, State state) {
        TUTTI_ASSERT(id >= 0 && static_cast<std::size_t>(id) < ids_.size());
        json& status = status_[std::to_string(id)];
        const auto note = [&](const char* what) {
            status[what] = std::max(status[what].get<std::int64_t>(), static_cast<std::int64_t>(number));
        };
        note("last_enqueued_collective");
        if (state != State::enqueued) note("last_started_collective");
        if (state == State::completed) note("last_completed_collective");
    }
    void add_collective(const Dump& dump, const Entry& entry, int id, std::uint64_t messages) {
        const What what = what_of(entry.what, false);
        const Form form = form_of(entry, what, dump);
        json e = common(entry, id, dump.group);
        e["profiling_name"] = "gloo:" + form.name;
        e["collective_seq_id"] = entry.sequence;
        e["op_id"] = entry.sequence;
        e["p2p_seq_id"] = messages;
        put_sizes(e, "input", form.in, what.dtype);
        put_sizes(e, "output", form.out, what.dtype);
        if (!entry.sent.empty()) e["input_split_sizes"] = entry.sent;
        if (!entry.received.empty()) e["output_split_sizes"] = entry.received;
        note_progress(id, entry.sequence, entry.state);
        entries_.push_back(std::move(e));
    }
    void add_message(const Dump& dump, const Entry& entry, std::uint64_t messages) {
        TUTTI_ASSERT(is_message(entry.kind));
        const bool sends = entry.kind == Kind::send;
        const int me = dump.members[dump.rank];
        // A message that no rank has sent yet has no known facts but that this rank waits for it.
        const int other = entry.peer < 0 ? me : dump.members[entry.peer];
        const int from = sends ? me : other, to = sends ? other : me;
        const std::string group = entry.peer < 0 ? fmt::format("{}, to {} from any", dump.group, to)
                                                 : fmt::format("{}, from {} to {}", dump.group, from, to);
        const int id = add_group(group, "messages", from == to ? std::vector{to} : std::vector{from, to});
        // Readers want the places of the two in the group's sorted list.
        const int place_of_from = from > to ? 1 : 0, place_of_to = from < to ? 1 : 0;
        const std::uint64_t number = entry.message != 0 ? entry.message : messages;
        const What what = what_of(entry.what, true);
        json e = common(entry, id, group);
        e["profiling_name"] = sends ? fmt::format("gloo:send {}->{}", place_of_from, place_of_to)
                                    : fmt::format("gloo:recv {}<-{}", place_of_to, place_of_from);
        e["is_p2p"] = true;
        e["collective_seq_id"] = number;
        e["op_id"] = number;
        e["p2p_seq_id"] = number;
        put_sizes(e, "input", what.count, what.dtype);
        put_sizes(e, "output", what.count, what.dtype);
        note_progress(id, number, entry.state);
        entries_.push_back(std::move(e));
    }
    json common(const Entry& entry, int id, const std::string& group) const {
        const bool over = !entry.open();
        TUTTI_ASSERT(config_.contains(group));
        json e{{"pg_id", id},
               {"process_group", {group, config_.at(group).at("desc")}},
               {"what", entry.what},
               {"is_p2p", false},
               {"thread_name", ""},
               {"thread_id", ""},
               {"state", entry.state == State::completed  ? "completed"
                         : entry.state == State::enqueued ? "scheduled"
                                                          : "started"},
               {"retired", over},
               {"time_created_ns", entry.enqueued_ns},
               {"time_discovered_started_ns", nullptr},
               {"time_discovered_completed_ns", nullptr},
               {"frames", frames_of(entry.site)}};
        if (entry.started_ns != 0) e["time_discovered_started_ns"] = entry.started_ns;
        if (entry.state == State::completed && entry.ended_ns != 0) {
            e["time_discovered_completed_ns"] = entry.ended_ns;
            e["duration_ms"] = static_cast<double>(entry.ended_ns - entry.enqueued_ns) / 1e6;
        }
        return e;
    }
    // Without sizes there are no types either: readers look at the sizes where types differ.
    static void put_sizes(json& e, const std::string& which, std::optional<std::uint64_t> count,
                          const std::string& dtype) {
        json& sizes = e[which + "_sizes"] = json::array();
        json& dtypes = e[which + "_dtypes"] = json::array();
        if (!count) return;
        sizes.push_back(json::array({*count}));
        dtypes.push_back(torch_name(dtype));
    }

    std::map<std::string, int> ids_;
    json config_ = json::object(), status_ = json::object();
    std::vector<json> entries_;
    std::uint64_t forgotten_ = 0;
};

}  // namespace

What what_of(std::string_view text, bool message) {
    constexpr std::string_view of = " of ", times = " × ";
    What what;
    std::size_t end = message ? 0 : text.find(of);
    what.operation = text.substr(0, std::min(end, text.find(',')));
    if (end == std::string_view::npos) return what;
    text.remove_prefix(message ? 0 : end + of.size());
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view head = text.substr(0, comma);
    what.several = text.substr(comma).starts_with(", several") || text.substr(comma).starts_with(", sizes by") ||
                   text.substr(comma).starts_with(", count, rows");
    end = head.find(times);
    what.dtype = head.substr(0, std::min(end, head.find(' ')));
    if (end == std::string_view::npos) return what;
    const std::string_view digits = head.substr(end + times.size());
    std::uint64_t count = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), count).ec == std::errc()) what.count = count;
    return what;
}

std::vector<FlightFile> flight_files(std::span<const Dump> dumps) {
    std::map<std::pair<std::uint64_t, int>, Flight> flights;
    for (const Dump& dump : dumps) flights[{dump.home, dump.members[dump.rank]}].add(dump);
    std::vector<FlightFile> files;
    for (auto& [key, flight] : flights) {
        files.push_back({fmt::format("flight_{:x}_rank_{}", key.first, key.second), pickle(flight.take())});
    }
    return files;
}

}  // namespace tutti::record
