// Files of InfraGraph: the networks that they become, plays on these against sums by hand, and broken files.
#include "simulate/infragraph.hpp"

#include "simulate/answer.hpp"
#include "simulate/test_machine.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <vector>

namespace tutti::simulate::infragraph_test {
namespace {

using Json = nlohmann::json;

// What the wires of a file are added to: with round_numbers() a message takes 3 + 10 + 2 us and its bytes.
constexpr double own_us = 9;

Network network(const Json& file) {
    return network_of_infragraph(file, "F", own_us);
}
std::string refusal(const Json& file) {
    try {
        network(file);
    } catch (const InvalidArgument& error) {
        return error.what();
    }
    return {};
}

Json link(const char* name, double gbit, double us = 0) {
    return {
        {"name", name},
        {"physical", {{"bandwidth", {{"gigabits_per_second", gbit}}}, {"latency", {{"choice", "us"}, {"us", us}}}}}};
}
Json component(const char* name, int count, const char* choice) {
    return {{"name", name}, {"count", count}, {"choice", choice}};
}
Json end(const std::string& instance, const std::string& component) {
    return {{"instance", instance}, {"component", component}};
}
Json edge(const Json& ep1, const Json& ep2, const char* link, const char* scheme = "one2one") {
    return {{"ep1", ep1}, {"ep2", ep2}, {"link", link}, {"scheme", scheme}};
}
// Hosts of so many cards, and switches; without edges between them.
Json devices(int hosts, int cards, const std::vector<std::pair<const char*, int>>& switches) {
    Json file;
    file["name"] = "a cluster";
    file["devices"] = {{{"name", "server"},
                        {"components", {component("cpu", 1, "cpu"), component("nic", cards, "nic")}},
                        {"links", Json::array({{{"name", "pcie"}}})},
                        {"edges", Json::array({{{"link", "pcie"}, {"scheme", "many2many"}}})}},
                       {{"name", "box"}, {"components", Json::array({component("port", 64, "port")})}}};
    file["instances"].push_back({{"name", "host"}, {"device", "server"}, {"count", hosts}});
    for (const auto& [name, count] : switches)
        file["instances"].push_back({{"name", name}, {"device", "box"}, {"count", count}});
    return file;
}
Json star(double gbit, double us) {
    Json file = devices(2, 1, {{"leaf", 1}});
    file["links"].push_back(link("wire", gbit, us));
    file["edges"].push_back(edge(end("host", "nic"), end("leaf", "port[0]"), "wire", "many2many"));
    return file;
}
// Two hosts below each of two switches, whose two ways up have 2 Gbit/s each.
Json two_leaves() {
    Json file = devices(4, 1, {{"leaf", 2}, {"spine", 2}});
    file["links"] = {link("wire", 8, 0.5), link("up", 2, 1)};
    file["edges"] = {edge(end("host[0:2]", "nic"), end("leaf[0]", "port[0:2]"), "wire"),
                     edge(end("host[2:4]", "nic"), end("leaf[1]", "port[0:2]"), "wire"),
                     edge(end("leaf[:]", "port[2]"), end("spine", "port[0]"), "up", "many2many")};
    return file;
}

double all_reduce_us(const Network& network, int hosts, std::uint64_t count) {
    Question q;
    q.costs = round_numbers();
    q.layout = layout_of_hosts(hosts, hosts);
    q.network = network;
    q.request.collective = Collective::all_reduce;
    q.request.element_bytes = 4;
    q.request.count = count;
    q.request.algorithm = "recursive_doubling";
    return answer(q).play.end_us;
}

TEST(InfraGraph, AStarHasCardsAndNoLevels) {
    const Network n = network(star(4, 0.5));
    EXPECT_EQ(n, (Network{.us = own_us + 1, .nic_gbps = 0.5, .hosts = 2, .left_out = "what devices have inside"}))
        << n.left_out;
    // 3, 4000 bytes at 0.5 GB/s, 10, 2, and the sum of 1000 floats.
    EXPECT_NEAR(all_reduce_us(n, 2, 1000), 3 + 8 + 10 + 2 + 1, 1e-4);
}

TEST(InfraGraph, SwitchesAboveSwitchesAreALevel) {
    const Network n = network(two_leaves());
    EXPECT_EQ(n.nics, 1);
    EXPECT_EQ(n.levels, (std::vector<Level>{{.hosts = 2, .gbps = 0.5, .us = 2}}));
    // Inside a leaf 4000 bytes at 1 GB/s; then two messages share the 0.5 GB/s of the way up.
    EXPECT_NEAR(all_reduce_us(n, 4, 1000), (3 + 4 + 10 + 2 + 1) + (3 + 16 + 10 + 2 + 2 + 1), 1e-4);
}

TEST(InfraGraph, HostsAreNumberedSwitchBySwitch) {
    Json file = two_leaves();
    file["edges"][0]["ep1"]["instance"] = "host[0:4:2]";
    file["edges"][1]["ep1"]["instance"] = "host[1:4:2]";
    const Network n = network(file), usual = network(two_leaves());
    EXPECT_EQ(n.levels, usual.levels);
    EXPECT_NE(n.left_out.find("the order of hosts"), std::string::npos) << n.left_out;
    EXPECT_EQ(usual.left_out, "what devices have inside");
}

TEST(InfraGraph, ThreeTiers) {
    // Eight hosts, two below a leaf, two leaves below a pod's switch, two of which go up to one core.
    Json file = devices(8, 1, {{"leaf", 4}, {"pod", 2}, {"core", 1}});
    file["links"] = {link("wire", 10), link("middle", 40, 1), link("up", 20, 2)};
    for (int i = 0; i < 4; ++i) {
        file["edges"].push_back(edge(end(fmt::format("host[{}:{}]", 2 * i, 2 * i + 2), "nic"),
                                     end(fmt::format("leaf[{}]", i), "port"), "wire"));
        file["edges"].push_back(edge(end(fmt::format("leaf[{}]", i), "port[9]"),
                                     end(fmt::format("pod[{}]", i / 2), fmt::format("port[{}]", i % 2)), "middle"));
    }
    file["edges"].push_back(edge(end("pod", "port[63]"), end("core", "port[0]"), "up", "many2many"));
    EXPECT_EQ(network(file).levels,
              (std::vector<Level>{{.hosts = 2, .gbps = 5, .us = 2}, {.hosts = 4, .gbps = 2.5, .us = 4}}));
}

TEST(InfraGraph, CardsWithSwitchesOfTheirOwnAreRails) {
    // Two pods of two hosts; card r goes to leaf r of its pod.
    Json file = devices(4, 2, {{"leaf", 4}, {"spine", 1}});
    file["links"] = {link("wire", 80), link("up", 160)};
    for (int pod = 0; pod < 2; ++pod) {
        for (int rail = 0; rail < 2; ++rail)
            file["edges"].push_back(
                edge(end(fmt::format("host[{}:{}]", 2 * pod, 2 * pod + 2), fmt::format("nic[{}]", rail)),
                     end(fmt::format("leaf[{}]", 2 * pod + rail), "port"), "wire"));
    }
    file["edges"].push_back(edge(end("leaf", "port[63]"), end("spine", "port[0]"), "up", "many2many"));
    const Network n = network(file);
    EXPECT_TRUE(n.rails);
    EXPECT_EQ(n.nics, 2);
    EXPECT_EQ(n.levels, (std::vector<Level>{{.hosts = 2, .gbps = 20}}));
    // Both cards of a host to one leaf: no rails, and the leaf has all of its links.
    for (std::size_t i = 0; i < 4; ++i) file["edges"][i]["ep2"]["instance"] = fmt::format("leaf[{}]", 2 * (i / 2));
    const Network plain = network(file);
    EXPECT_FALSE(plain.rails);
    EXPECT_EQ(plain.levels, n.levels);
}

TEST(InfraGraph, GroupsWithLinksToEachOtherAreADragonfly) {
    // Three groups of two routers with a host each; links `far` join any two groups. In either order of names.
    for (const bool far_first : {false, true}) {
        Json file = devices(6, 1, {{"router", 6}});
        file["links"] = {link("wire", 80), link("near", 40), link("far", 16, 3)};
        if (far_first) std::swap(file["links"][1], file["links"][2]);
        file["edges"] = {edge(end("host", "nic"), end("router", "port[0]"), "wire"),
                         edge(end("router[0:6:2]", "port[1]"), end("router[1:6:2]", "port[1]"), "near"),
                         edge(end("router[0]", "port[2]"), end("router[2]", "port[2]"), "far"),
                         edge(end("router[0]", "port[3]"), end("router[4]", "port[2]"), "far"),
                         edge(end("router[2]", "port[3]"), end("router[4]", "port[3]"), "far")};
        const Network n = network(file);
        EXPECT_EQ(n.levels, (std::vector<Level>{{.hosts = 2, .gbps = 2, .us = 3, .pairwise = true}}));
        EXPECT_NE(n.left_out.find("the limits of near"), std::string::npos) << n.left_out;
    }
}

TEST(InfraGraph, DevicesInsideDevicesAndSlowLinks) {
    // The cards are devices in the server; a slow network of its own joins the hosts as well.
    Json file = star(100, 0);
    file["devices"][0]["components"] = {component("xpu", 8, "xpu"), component("card", 2, "device"),
                                        component("slow", 1, "nic")};
    file["devices"].push_back({{"name", "card"}, {"components", Json::array({component("plug", 2, "port")})}});
    file["links"].push_back(link("management", 1));
    file["instances"].push_back({{"name", "office"}, {"device", "box"}, {"count", 1}});
    file["edges"] = {edge(end("host", "server.card[0:2].plug[0]"), end("leaf", "port[0]"), "wire", "many2many"),
                     edge(end("host", "slow"), end("office", "port[0]"), "management", "many2many")};
    const Network n = network({{"infrastructure", file}, {"annotations", {{"nodes", {1}}}}});
    EXPECT_EQ(n.nics, 2);
    EXPECT_EQ(n.nic_gbps, 12.5);
    EXPECT_EQ(n.left_out, "the hosts' links management, switches out of reach, what devices have inside, annotations");
}

TEST(InfraGraph, RefusalsNameThePlaceTheValueAndWhatIsExpected) {
    const auto with = [](const char* pointer, const Json& value) {
        Json file = two_leaves();
        file[Json::json_pointer(pointer)] = value;
        return refusal(file);
    };
    EXPECT_EQ(with("/edges/0/ep1/instance", "hots[0]"),
              "F: expected edges[0].ep1.instance to name an instance, not \"hots\"; did you mean \"host\"?");
    EXPECT_EQ(with("/edges/0/ep1/instance", "host[2:5]"),
              "F: expected edges[0].ep1.instance to be NAME, NAME[INDEX] or NAME[FIRST:END], of 4, not \"host[2:5]\"");
    for (const char* slice : {"host[", "host[]", "host[4]", "host[-1]", "host[a]", "host[2:1]", "host[0:4:0]",
                              "host[0:1:1:1]", "host[99999999999]"})
        EXPECT_NE(with("/edges/0/ep1/instance", slice).find("of 4, not"), std::string::npos) << slice;
    EXPECT_EQ(with("/edges/1/ep2/component", "prt"),
              "F: expected edges[1].ep2.component to name a component of the device box, not \"prt\"; did you mean "
              "\"port\"?");
    EXPECT_EQ(with("/edges/1/ep2/component", "port.port"),
              "F: expected edges[1].ep2.component to be a component, or one of a device inside it, not \"port.port\"");
    EXPECT_EQ(with("/edges/2/scheme", "ring"), "F: expected edges[2].scheme to be one2one or many2many, not \"ring\"");
    EXPECT_EQ(with("/links/0/physical/bandwidth", Json{{"choice", "gigatransfers_per_second"}}),
              "F: expected links[0].physical.bandwidth to be in gigabits_per_second or gigabytes_per_second, not "
              "{\"choice\":\"gigatransfers_per_second\"}");
    EXPECT_EQ(with("/instances/1/count", 0),
              "F: expected instances[1].count to be a whole number from 1 to 1048576, not 0");
    EXPECT_EQ(with("/instances/1/name", "host"), "F: expected instances[1].name to be a name of its own, not \"host\"");
    EXPECT_EQ(with("/devices/0/components/1/choice", "switch"),
              "F: expected at least 2 hosts (instances of devices that have a nic, an xpu or memory), not 0");
    EXPECT_EQ(with("/edges/0/ep2", Json{{"instance", "host[3]"}, {"component", "nic"}}),
              "F: expected a switch between any two hosts; host[0] and host[3] are joined without one");
    EXPECT_EQ(with("/edges/1/ep1/instance", "host[3]"),
              "F: expected all hosts to reach each other over links of one bandwidth and latency, and switches");
    EXPECT_EQ(with("/edges/1", edge(end("host[2:4]", "nic"), end("leaf[0:2]", "port[5]"), "wire", "many2many")),
              "F: expected host[2] to have as many links to switches as host[0], 1, not 2");
    Json uneven = two_leaves();
    uneven["edges"].push_back(edge(end("leaf[1]", "port[9]"), end("spine[0]", "port[9]"), "up"));
    EXPECT_EQ(refusal(uneven),
              "F: expected links up of one bandwidth from each switch: leaf[0] has 4 Gbit/s, and leaf[1] 6");
    Json inside = two_leaves();  // a device inside itself
    inside["devices"][1]["components"].push_back(component("box", 1, "device"));
    EXPECT_EQ(refusal(inside), "F: expected devices[1] to have at most 8 devices inside each other");
}

// Every value of two files in turn is taken away, or becomes something else: all are refused in words, or accepted.
TEST(InfraGraph, BrokenFilesAreRefused) {
    const Json odd[] = {
        nullptr,       true,        -1,    0,    3.5, 1e300,     18446744073709551615U, "",
        "host",        "host[0:1]", "a.b", "::", "[", "\x1b[2J", Json::array(),         Json::array({1}),
        Json::object()};
    int refused = 0, accepted = 0;
    for (const Json& file : {two_leaves(), Json{{"infrastructure", star(4, 1)}}}) {
        const Json flat = file.flatten();
        for (const auto& [place, value] : flat.items()) {
            // The value, and all that it is in.
            for (Json::json_pointer at(place); !at.empty(); at.pop_back()) {
                for (std::size_t i = 0; i <= std::size(odd); ++i) {
                    Json broken = file;
                    if (i < std::size(odd))
                        broken[at] = odd[i];
                    else if (broken[at.parent_pointer()].is_object())
                        broken[at.parent_pointer()].erase(at.back());
                    const std::string said = refusal(broken);
                    ++(said.empty() ? accepted : refused);
                    ASSERT_TRUE(said.empty() || said.starts_with("F: expected ")) << said;
                    ASSERT_EQ(said.find('\x1b'), std::string::npos) << said;
                }
            }
        }
    }
    EXPECT_GT(refused, 1000);
    EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace tutti::simulate::infragraph_test
