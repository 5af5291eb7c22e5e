#include "simulate/infragraph_description.hpp"

#include "core/suggestion.hpp"
#include "core/text.hpp"

#include <tutti/error.hpp>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <ranges>

namespace tutti::simulate::infragraph {
namespace {

using Json = nlohmann::json;

constexpr int instances_max = 1 << 20, deepest = 8;
constexpr std::size_t edges_max = std::size_t{1} << 22, ends_max = std::size_t{1} << 20;
struct Component {
    std::string name, choice;
    int count = 1;
};
struct Device {
    std::string name;
    List<Component> components;
};

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

}  // namespace

[[noreturn]] void refuse(const std::string& where, const std::string& expected) {
    throw InvalidArgument(fmt::format("{}: expected {}", where, expected));
}

Description read(const Json& file, const std::string& where) {
    return Reader(where).read(file);
}

}  // namespace tutti::simulate::infragraph
