#include "simulate/infragraph.hpp"

#include "core/assert.hpp"
#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <tuple>
#include <utility>

namespace tutti::simulate {
namespace {

using Json = nlohmann::json;

constexpr int instances_max = 1 << 20, levels_max = 4, deepest = 8;
constexpr std::size_t edges_max = std::size_t{1} << 22, ends_max = std::size_t{1} << 20;
constexpr double bytes_of_gbit = 0.125;

struct Link {
    std::string name;
    double gbps = 0, us = 0;  // gigabytes a second; 0: the file does not say it
};
struct Component {
    std::string name, choice;
    int count = 1;
};
// A list whose members have names of their own.
template <class Named>
struct List {
    std::vector<Named> all;
    std::map<std::string, std::size_t, std::less<>> places;
    void add(Named one) {
        places.emplace(one.name, all.size());
        all.push_back(std::move(one));
    }
};
struct Device {
    std::string name;
    List<Component> components;
};
struct Instance {
    std::string name;
    std::size_t device = 0;
    int count = 1, first = 0;  // `first`: the number of its first vertex
};
// A vertex, and the place of the component there, in the order of the device's components.
struct End {
    int vertex = 0;
    std::uint64_t port = 0;
};
struct Edge {
    End a, b;
    std::size_t link = 0;
};

// What a file says, checked.
struct Description {
    List<Link> links;
    List<Instance> instances;
    std::vector<Edge> edges;
    std::vector<bool> is_host;  // by vertex
    std::size_t inside = 0;     // edges inside devices
    bool annotated = false;
    std::string name(int vertex) const {
        const auto of =
            std::ranges::find_if(instances.all, [&](const Instance& i) { return vertex < i.first + i.count; });
        TUTTI_ASSERT(of != instances.all.end());
        return fmt::format("{}[{}]", of->name, vertex - of->first);
    }
};

[[noreturn]] void refuse(const std::string& where, const std::string& expected) {
    throw InvalidArgument(fmt::format("{}: expected {}", where, expected));
}

class Reader {
 public:
    explicit Reader(const std::string& where) : where_(where) {}

    Description read(const Json& file) {
        const bool within = file.is_object() && file.contains("infrastructure");
        const Json& json = within ? file["infrastructure"] : file;
        const std::string place = within ? "infrastructure." : "";
        if (!json.is_object()) wrong(within ? "infrastructure" : "the file", "an object", json);
        all_.annotated = within && file.contains("annotations") && !file["annotations"].empty();
        each(json, "devices", place, [&](const Json& one, const std::string& at) { read_device(one, at); });
        check_devices(place);
        each(json, "links", place, [&](const Json& one, const std::string& at) { read_link(one, at); });
        each(json, "instances", place, [&](const Json& one, const std::string& at) { read_instance(one, at); });
        each(json, "edges", place, [&](const Json& one, const std::string& at) { read_edge(one, at); });
        return std::move(all_);
    }

 private:
    [[noreturn]] void wrong(const std::string& place, const std::string& expected, const Json& value) const {
        constexpr std::size_t longest = 60;
        refuse(where_, fmt::format("{} to be {}, not {}", place, expected,
                                   visible_line(value.dump(-1, ' ', true).substr(0, longest))));
    }

    template <class Read>
    void each(const Json& object, const char* name, const std::string& place, Read read) const {
        if (!object.contains(name)) return;
        const Json& list = object[name];
        if (!list.is_array()) wrong(place + name, "a list", list);
        for (std::size_t i = 0; i < list.size(); ++i) {
            const std::string at = fmt::format("{}{}[{}]", place, name, i);
            if (!list[i].is_object()) wrong(at, "an object", list[i]);
            read(list[i], at);
        }
    }
    const Json& member(const Json& object, const char* name, const std::string& place) const {
        if (!object.contains(name)) refuse(where_, fmt::format("{} to have \"{}\"", place, name));
        return object[name];
    }
    std::string word(const Json& object, const char* name, const std::string& place) const {
        const Json& value = member(object, name, place);
        if (!value.is_string() || value.get_ref<const std::string&>().empty())
            wrong(fmt::format("{}.{}", place, name), "a text", value);
        return value.get<std::string>();
    }
    int count(const Json& object, const std::string& place) const {
        const Json& value = member(object, "count", place);
        if (!value.is_number_integer() || value.get<double>() < 1 || value.get<double>() > instances_max)
            wrong(place + ".count", fmt::format("a whole number from 1 to {}", instances_max), value);
        return value.get<int>();
    }
    // The place of the one that is called so.
    template <class Named>
    std::size_t find(const List<Named>& list, std::string_view name, const std::string& place,
                     std::string_view what) const {
        const auto at = list.places.find(name);
        if (at == list.places.end())
            refuse(where_, fmt::format("{} to name {}, not \"{}\"{}", place, what, visible_line(name),
                                       did_you_mean(name, std::views::keys(list.places))));
        return at->second;
    }
    template <class Named>
    std::string new_name(const List<Named>& list, const Json& object, const std::string& place) const {
        std::string name = word(object, "name", place);
        if (list.places.contains(name)) wrong(place + ".name", "a name of its own", object["name"]);
        return name;
    }

    void read_device(const Json& json, const std::string& place) {
        Device device{.name = new_name(devices_, json, place), .components = {}};
        static const std::vector<std::string_view> choices{"custom", "device", "cpu",  "xpu",
                                                           "nic",    "memory", "port", "switch"};
        each(json, "components", place + ".", [&](const Json& one, const std::string& at) {
            Component component{.name = new_name(device.components, one, at),
                                .choice = word(one, "choice", at),
                                .count = count(one, at)};
            if (std::ranges::find(choices, component.choice) == choices.end())
                wrong(at + ".choice", fmt::format("one of {}", fmt::join(choices, ", ")), one["choice"]);
            device.components.add(std::move(component));
        });
        each(json, "edges", place + ".", [&](const Json&, const std::string&) { ++all_.inside; });
        devices_.add(std::move(device));
    }

    // Devices inside devices, and which of them make a host.
    void check_devices(const std::string& place) {
        is_host_.resize(devices_.all.size());
        for (std::size_t i = 0; i < devices_.all.size(); ++i) look_inside(i, place, 0);
    }
    bool look_inside(std::size_t number, const std::string& place, int depth) {
        const std::string at = fmt::format("{}devices[{}]", place, number);
        if (depth > deepest)
            refuse(where_, fmt::format("{} to have at most {} devices inside each other", at, deepest));
        if (is_host_[number]) return *is_host_[number];
        bool found = false;
        for (const Component& component : devices_.all[number].components.all) {
            found = found || component.choice == "nic" || component.choice == "xpu" || component.choice == "memory";
            if (component.choice == "device")
                found = look_inside(find(devices_, component.name, at + ".components", "a device where one is chosen"),
                                    place, depth + 1) ||
                        found;
        }
        is_host_[number] = found;
        return found;
    }

    // "physical": {"bandwidth": {"gigabits_per_second": 100}, "latency": {"us": 1}}, each with a "choice" or without.
    double physical(const Json& link, const char* name, const std::vector<std::pair<const char*, double>>& units,
                    const std::string& place) const {
        if (!link.contains("physical")) return 0;
        const std::string at = fmt::format("{}.physical.{}", place, name);
        if (!link["physical"].is_object()) wrong(place + ".physical", "an object", link["physical"]);
        if (!link["physical"].contains(name)) return 0;
        const Json& value = link["physical"][name];
        if (!value.is_object()) wrong(at, "an object", value);
        for (const auto& [unit, factor] : units) {
            if (!value.contains(unit) || (value.contains("choice") && value["choice"] != unit)) continue;
            const Json& number = value[unit];
            if (!number.is_number() || number.get<double>() < 0 || number.get<double>() > 1e9)
                wrong(fmt::format("{}.{}", at, unit), "a number from 0 to 1e9", number);
            return number.get<double>() * factor;
        }
        if (value.empty()) return 0;
        std::vector<std::string_view> names;
        for (const auto& unit : units) names.emplace_back(unit.first);
        wrong(at, fmt::format("in {}", fmt::join(names, " or ")), value);
    }

    void read_link(const Json& json, const std::string& place) {
        Link link{.name = new_name(all_.links, json, place)};
        link.gbps =
            physical(json, "bandwidth", {{"gigabits_per_second", bytes_of_gbit}, {"gigabytes_per_second", 1}}, place);
        link.us = physical(json, "latency", {{"us", 1}, {"ms", 1e3}, {"ns", 1e-3}}, place);
        all_.links.add(std::move(link));
    }

    void read_instance(const Json& json, const std::string& place) {
        Instance instance{.name = new_name(all_.instances, json, place), .count = count(json, place)};
        instance.device = find(devices_, word(json, "device", place), place + ".device", "a device");
        instance.first = static_cast<int>(all_.is_host.size());
        all_.is_host.insert(all_.is_host.end(), static_cast<std::size_t>(instance.count), *is_host_[instance.device]);
        if (all_.is_host.size() > static_cast<std::size_t>(instances_max))
            wrong(place + ".count", fmt::format("at most {} with those before it", instances_max), instance.count);
        all_.instances.add(std::move(instance));
    }

    // "name", "name[3]", "name[0:4]" or "name[0:4:2]": Python's slices.
    struct Slice {
        std::string name, text;
        int first = 0, end = 0, step = 1;
    };
    static Slice cut(const std::string& text) {
        const std::size_t bracket = text.find('[');
        if (bracket == std::string::npos) return {.name = text, .text = ":"};
        const bool closed = text.ends_with(']');
        return {.name = text.substr(0, bracket),
                .text = closed ? text.substr(bracket + 1, text.size() - bracket - 2) : "["};
    }
    void set_range(Slice& slice, int most, const std::string& place, const std::string& text) const {
        const auto bad = [&] {
            refuse(where_, fmt::format("{} to be NAME, NAME[INDEX] or NAME[FIRST:END], of {}, not {}", place, most,
                                       visible_line(Json(text).dump(-1, ' ', true))));
        };
        int numbers[] = {0, most, 1};
        std::size_t colons = 0;
        for (std::size_t at = 0;; ++colons) {
            const std::size_t end = std::min(slice.text.find(':', at), slice.text.size());
            const auto number = number_in<int>(slice.text.substr(at, end - at));
            if (colons > 2 || (end > at && !number) || (slice.text.find(':') == std::string::npos && !number)) bad();
            if (number) numbers[colons] = *number;
            if (end == slice.text.size()) break;
            at = end + 1;
        }
        if (colons == 0) numbers[1] = numbers[0] + (numbers[0] < most ? 1 : 0);
        slice.first = numbers[0], slice.end = numbers[1], slice.step = numbers[2];
        if (slice.first < 0 || slice.end <= slice.first || slice.end > most || slice.step < 1) bad();
    }

    std::vector<End> ends(const Json& edge, const char* which, const std::string& place) const {
        const std::string at = fmt::format("{}.{}", place, which);
        const Json& end = member(edge, which, place);
        if (!end.is_object()) wrong(at, "an object", end);
        const std::string of_instance = word(end, "instance", at), of_component = word(end, "component", at);
        Slice hosts = cut(of_instance);
        const Instance& instance =
            all_.instances.all[find(all_.instances, hosts.name, at + ".instance", "an instance")];
        set_range(hosts, instance.count, at + ".instance", of_instance);
        // A path of components, of which all but the last are devices. It may begin with the device's own name.
        std::vector<std::uint64_t> ports{0};
        const Device* device = &devices_.all[instance.device];
        const Component* last = nullptr;
        for (std::size_t from = 0; from <= of_component.size();) {
            const std::size_t dot = std::min(of_component.find('.', from), of_component.size());
            Slice slice = cut(of_component.substr(from, dot - from));
            const bool own = from == 0 && dot < of_component.size() && slice.name == device->name;
            from = dot + 1;
            if (own) continue;
            if (last != nullptr && last->choice != "device")
                wrong(at + ".component", "a component, or one of a device inside it", of_component);
            if (last != nullptr) device = &devices_.all[devices_.places.at(last->name)];
            const std::size_t number = find(device->components, slice.name, at + ".component",
                                            fmt::format("a component of the device {}", visible_line(device->name)));
            last = &device->components.all[number];
            set_range(slice, last->count, at + ".component", of_component);
            std::vector<std::uint64_t> longer;
            for (const std::uint64_t port : ports) {
                for (int i = slice.first; i < slice.end; i += slice.step)
                    longer.push_back((((port << 5) + number) << 15) + static_cast<std::uint64_t>(i));
                if (longer.size() > ends_max) break;
            }
            ports = std::move(longer);
            if (ports.size() > ends_max) break;
        }
        const auto many = static_cast<std::size_t>((hosts.end - hosts.first + hosts.step - 1) / hosts.step);
        if (ports.size() > ends_max / many) refuse(where_, fmt::format("{} to be at most {} ends", at, ends_max));
        std::vector<End> result;
        for (int i = hosts.first; i < hosts.end; i += hosts.step) {
            for (const std::uint64_t port : ports) result.push_back({instance.first + i, port});
        }
        return result;
    }

    void read_edge(const Json& json, const std::string& place) {
        const std::vector<End> a = ends(json, "ep1", place), b = ends(json, "ep2", place);
        const std::size_t link =
            find(all_.links, word(json, "link", place), place + ".link", "a link of the infrastructure");
        const std::string scheme = word(json, "scheme", place);
        if (scheme != "one2one" && scheme != "many2many")
            wrong(place + ".scheme", "one2one or many2many", json["scheme"]);
        const bool many = scheme == "many2many";
        const std::size_t pairs = many ? a.size() * b.size() : std::min(a.size(), b.size());
        if (all_.edges.size() + pairs > edges_max)
            refuse(where_, fmt::format("at most {} links in all, more than up to {}", edges_max, place));
        for (std::size_t i = 0; i < pairs; ++i)
            all_.edges.push_back({a[many ? i / b.size() : i], b[many ? i % b.size() : i], link});
    }

    const std::string& where_;
    List<Device> devices_;
    std::vector<std::optional<bool>> is_host_;  // by device
    Description all_;
};

// Which vertices are joined.
class Parts {
 public:
    explicit Parts(std::size_t vertices) : above_(vertices) { std::iota(above_.begin(), above_.end(), 0); }
    int of(int vertex) {
        while (above(vertex) != vertex) vertex = above(vertex) = above(above(vertex));
        return vertex;
    }
    void join(int a, int b) { above(of(a)) = of(b); }

 private:
    int& above(int vertex) { return above_[static_cast<std::size_t>(vertex)]; }
    std::vector<int> above_;
};

class Fabric {
 public:
    Fabric(Description description, const std::string& where)
        : d_(std::move(description)), where_(where), tier_(d_.is_host.size(), -1) {
        for (std::size_t v = 0; v < d_.is_host.size(); ++v) {
            if (d_.is_host[v]) hosts_.push_back(static_cast<int>(v));
        }
        if (hosts_.size() < 2)
            refuse(where_, fmt::format("at least 2 hosts (instances of devices that have a nic, an xpu or memory), "
                                       "not {}",
                                       hosts_.size()));
    }

    Network network(double own_us) {
        choose_cards();
        set_tiers();
        network_.hosts = static_cast<int>(hosts_.size());
        network_.us = own_us + 2 * card_us_;
        add_levels();
        if (d_.inside > 0) leave_out("what devices have inside");
        if (d_.annotated) leave_out("annotations");
        network_.left_out = fmt::format("{}", fmt::join(left_out_, ", "));
        return std::move(network_);
    }

 private:
    // The links between switches of two tiers, or those of one name between switches of one tier.
    struct Stage {
        int low = 0, high = 0;
        std::size_t link = 0;
        std::vector<const Edge*> edges;
        bool peers() const { return low == high; }
        bool operator<(const Stage& other) const {
            return std::tie(low, high, link) < std::tie(other.low, other.high, other.link);
        }
    };
    struct Card {
        std::uint64_t port = 0;
        int leaf = 0;
        bool operator<(const Card& other) const { return std::tie(port, leaf) < std::tie(other.port, other.leaf); }
    };

    void leave_out(const std::string& what) {
        if (std::ranges::find(left_out_, what) == left_out_.end()) left_out_.push_back(what);
    }
    bool host(int vertex) const { return d_.is_host[static_cast<std::size_t>(vertex)]; }
    int& tier(int vertex) { return tier_[static_cast<std::size_t>(vertex)]; }
    const Link& link_of(const Edge& edge) const { return d_.links.all[edge.link]; }
    static double gbit(double gbps) { return gbps / bytes_of_gbit; }

    // Hosts may have links of several kinds: those count by which all hosts reach each other, the quickest first.
    void choose_cards() {
        std::map<std::pair<double, double>, std::vector<const Edge*>> kinds;
        Parts switches(d_.is_host.size());
        for (const Edge& edge : d_.edges) {
            if (host(edge.a.vertex) && host(edge.b.vertex))
                refuse(where_, fmt::format("a switch between any two hosts; {} and {} are joined without one",
                                           d_.name(edge.a.vertex), d_.name(edge.b.vertex)));
            const Link& link = link_of(edge);
            if (host(edge.a.vertex) || host(edge.b.vertex))
                kinds[{link.gbps > 0 ? -link.gbps : -1e12, link.us}].push_back(&edge);
            else
                switches.join(edge.a.vertex, edge.b.vertex);
        }
        for (const auto& [rate, edges] : kinds) {
            Parts parts = switches;
            for (const Edge* edge : edges) parts.join(edge->a.vertex, edge->b.vertex);
            const bool all = std::ranges::all_of(hosts_, [&](int h) { return parts.of(h) == parts.of(hosts_[0]); });
            if (all && card_edges_.empty()) {
                card_edges_ = edges;
                network_.nic_gbps = link_of(*edges.front()).gbps;
                card_us_ = rate.second;
            } else {
                leave_out(fmt::format("the hosts' links {}", link_of(*edges.front()).name));
            }
        }
        if (card_edges_.empty())
            refuse(where_, "all hosts to reach each other over links of one bandwidth and latency, and switches");
        if (network_.nic_gbps == 0)
            leave_out(fmt::format("a limit of {} (no bandwidth)", link_of(*card_edges_[0]).name));

        std::map<int, std::vector<Card>> cards;
        for (const Edge* edge : card_edges_) {
            const bool a = host(edge->a.vertex);
            cards[(a ? edge->a : edge->b).vertex].push_back(
                {(a ? edge->a : edge->b).port, (a ? edge->b : edge->a).vertex});
        }
        network_.nics = static_cast<int>(cards[hosts_[0]].size());
        network_.rails = network_.nics > 1;
        std::map<int, std::size_t> rail_of;
        for (const int h : hosts_) {
            auto& own = cards[h];
            if (own.size() != cards[hosts_[0]].size())
                refuse(where_, fmt::format("{} to have as many links to switches as {}, {}, not {}", d_.name(h),
                                           d_.name(hosts_[0]), network_.nics, own.size()));
            std::ranges::sort(own, std::less{});
            for (std::size_t i = 0; i < own.size(); ++i)
                network_.rails = rail_of.try_emplace(own[i].leaf, i).first->second == i && network_.rails;
        }
    }

    // How far switches are from the hosts.
    void set_tiers() {
        std::vector<std::vector<int>> beside(tier_.size());
        for (const Edge& edge : d_.edges) {
            if (host(edge.a.vertex) || host(edge.b.vertex) || edge.a.vertex == edge.b.vertex) continue;
            beside[static_cast<std::size_t>(edge.a.vertex)].push_back(edge.b.vertex);
            beside[static_cast<std::size_t>(edge.b.vertex)].push_back(edge.a.vertex);
        }
        std::vector<int> next;
        for (const int h : hosts_) tier(h) = 0;
        for (const Edge* edge : card_edges_) {
            for (const int v : {edge->a.vertex, edge->b.vertex}) {
                if (std::exchange(tier(v), host(v) ? 0 : 1) < 0) next.push_back(v);
            }
        }
        for (std::size_t i = 0; i < next.size(); ++i) {
            for (const int v : beside[static_cast<std::size_t>(next[i])]) {
                if (tier(v) >= 0) continue;
                tier(v) = tier(next[i]) + 1;
                next.push_back(v);
            }
        }
        if (std::ranges::any_of(tier_, [](int t) { return t < 0; })) leave_out("switches out of reach");
    }

    void add_levels() {
        std::map<std::tuple<int, int, std::size_t>, Stage> by_tiers;
        for (const Edge& edge : d_.edges) {
            const int a = tier(edge.a.vertex), b = tier(edge.b.vertex);
            if (host(edge.a.vertex) || host(edge.b.vertex) || a < 0 || edge.a.vertex == edge.b.vertex) continue;
            const std::tuple<int, int, std::size_t> key{std::min(a, b), std::max(a, b), a == b ? edge.link : 0};
            Stage& stage = by_tiers[key];
            std::tie(stage.low, stage.high, stage.link) = key;
            stage.edges.push_back(&edge);
        }
        std::vector<Stage> stages;
        for (auto& [key, stage] : by_tiers) stages.push_back(std::move(stage));
        // In a dragonfly links of one name are inside a group, and those of another between groups: either way round.
        const auto peers_end = std::ranges::find_if(stages, [](const Stage& s) { return s.high > 1; });
        constexpr std::ptrdiff_t names_max = 4;
        if (peers_end - stages.begin() > names_max)
            refuse(where_, fmt::format("at most {} kinds of links between switches that have hosts", names_max));
        const std::vector<std::string> left_out = left_out_;
        std::string first_refusal;
        do {
            left_out_ = left_out;
            network_.levels.clear();
            const std::string refusal = refusal_of_levels(stages);
            if (refusal.empty()) return;
            if (first_refusal.empty()) first_refusal = refusal;
        } while (std::next_permutation(stages.begin(), peers_end));
        refuse(where_, first_refusal);
    }

    // Sets the levels. Empty, or what is expected of these.
    std::string refusal_of_levels(const std::vector<Stage>& stages) {
        Parts parts(d_.is_host.size());
        for (const Edge* edge : card_edges_) parts.join(edge->a.vertex, edge->b.vertex);
        std::vector<int> order = hosts_;
        for (const Stage& stage : stages) {
            std::map<int, int> below, first;  // hosts, by part
            for (const int h : hosts_) ++below[first.try_emplace(parts.of(h), h).first->first];
            if (below.size() == 1) break;
            const auto uneven = std::ranges::find_if(below, [&](auto& p) { return p.second != below.begin()->second; });
            const auto of_part = [&](int part) {
                const auto v = std::ranges::find_if(
                    tier_, [&, i = 0](int t) mutable { return parts.of(i++) == part && t == stage.low; });
                return d_.name(v == tier_.end() ? part : static_cast<int>(v - tier_.begin()));
            };
            if (uneven != below.end())
                return fmt::format("equally many hosts below each switch: {} has {}, and {} {}",
                                   of_part(below.begin()->first), below.begin()->second, of_part(uneven->first),
                                   uneven->second);
            Parts joined = parts;
            std::map<std::pair<int, int>, double> gbps;  // of a part, or between two
            Level level{.hosts = below.begin()->second, .pairwise = stage.peers()};
            bool unlimited = false;
            for (const Edge* edge : stage.edges) {
                const bool up = tier(edge->a.vertex) <= tier(edge->b.vertex);
                const int low = parts.of((up ? edge->a : edge->b).vertex),
                          high = parts.of((up ? edge->b : edge->a).vertex);
                joined.join(low, high);
                if (low == high) continue;
                const std::pair<int, int> both = std::minmax(low, high);
                gbps[stage.peers() ? both : std::pair(low, low)] += link_of(*edge).gbps;
                unlimited = unlimited || link_of(*edge).gbps == 0;
                level.us = std::max(level.us, (stage.peers() ? 1 : 2) * link_of(*edge).us);
            }
            const bool last = std::ranges::all_of(hosts_, [&](int h) { return joined.of(h) == joined.of(hosts_[0]); });
            const std::string name = link_of(*stage.edges.front()).name;
            if (stage.peers() && !last) {
                leave_out(fmt::format("the limits of {} within groups of switches", name));
            } else if (!gbps.empty()) {
                const std::size_t all = stage.peers() ? below.size() * (below.size() - 1) / 2 : below.size();
                if (gbps.size() != all)
                    return fmt::format("links {} {} each of {} groups of switches: {} of {} have some", name,
                                       stage.peers() ? "between" : "up from", below.size(), gbps.size(), all);
                const auto& [least, rate] = *gbps.begin();
                for (const auto& [other, its] : gbps) {
                    if (std::abs(its - rate) > 1e-9 * rate)
                        return fmt::format(
                            "links {} of one bandwidth from each switch: {} has {:g} Gbit/s, and {} {:g}", name,
                            of_part(least.first), gbit(rate), of_part(other.first), gbit(its));
                }
                level.gbps = unlimited ? 0 : rate / (network_.rails ? network_.nics : 1);
                if (unlimited) leave_out(fmt::format("a limit of {} (no bandwidth)", name));
                network_.levels.push_back(level);
                std::ranges::stable_sort(order, {}, [&](int h) { return first.at(parts.of(h)); });
            }
            parts = std::move(joined);
        }
        if (network_.levels.size() > static_cast<std::size_t>(levels_max))
            return fmt::format("at most {} levels of switches, not {}", levels_max, network_.levels.size());
        if (order != hosts_) leave_out("the order of hosts (they are numbered switch by switch)");
        return {};
    }

    const Description d_;
    const std::string& where_;
    std::vector<int> tier_, hosts_;
    std::vector<const Edge*> card_edges_;
    std::vector<std::string> left_out_;
    double card_us_ = 0;
    Network network_;
};

}  // namespace

bool is_infragraph(const Json& json) {
    return json.is_object() && (json.contains("infrastructure") || json.contains("instances"));
}

Network network_of_infragraph(const Json& json, const std::string& where, double own_us) {
    TUTTI_ASSERT(own_us >= 0);
    return Fabric(Reader(where).read(json), where).network(own_us);
}

}  // namespace tutti::simulate
