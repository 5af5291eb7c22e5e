#include "atb/rank_table.hpp"

#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <tutti/atb.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tutti::atb {
namespace {

using namespace std::chrono_literals;
using tutti::test::covers;
using tutti::test::message_of;

RankTable parsed(const std::string& text, const std::string& domain = {}) {
    auto table = parse_rank_table(text, "rank table t.json", domain);
    EXPECT_TRUE(table.has_value()) << "it is not complete";
    return table.value_or(RankTable{});
}

void expect_refused(const std::string& text, const std::vector<std::string>& words, const std::string& domain = {}) {
    const std::string message = message_of<Error>([&] { parse_rank_table(text, "rank table t.json", domain); });
    EXPECT_TRUE(message.starts_with("rank table t.json")) << message;
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << "\n" << message;
}

std::string device(int rank, const std::string& more = {}) {
    return R"({"device_id": ")" + std::to_string(rank) + R"(", "rank_id": ")" + std::to_string(rank) + "\"" + more +
           "}";
}

const std::string two_servers = R"({
    "status": "completed", "version": "1.0", "server_count": "2",
    "server_list": [
        {"server_id": "node_0", "host_ip": "10.0.0.1", "device": [
            {"device_id": "0", "device_ip": "192.168.1.8", "rank_id": "0"},
            {"device_id": "1", "device_ip": "192.168.1.9", "rank_id": "1"}]},
        {"server_id": "node_1", "host_ip": "10.0.0.2", "device": [
            {"device_id": 0, "device_ip": "192.168.2.8", "device_port": 16666, "rank_id": 2},
            {"device_id": 1, "device_ip": "192.168.2.9", "rank_id": 3, "colour": {"any": ["thing"]}}]}],
    "notes": null})";

// ---- Forms

TEST(RankTable, of_version_1_0_lists_ranks_by_server_with_numbers_as_strings_or_as_numbers) {
    covers("A-52", "S21-010");
    const RankTable table = parsed(two_servers);
    ASSERT_EQ(table.size(), 4);
    ASSERT_EQ(table.servers.size(), 2u);
    EXPECT_EQ(table.server_of(1).id, "node_0");
    EXPECT_EQ(table.server_of(2).id, "node_1");
    EXPECT_EQ(table.host_of(0), "10.0.0.1");
    EXPECT_EQ(table.host_of(3), "10.0.0.2");
    EXPECT_EQ(table.ranks[3].device, 1);
}

TEST(RankTable, of_version_1_2_has_super_pods_and_ports) {
    const std::string text = R"({"status": "completed", "version": 1.2, "server_list": [
        {"server_id": "a", "host_ip": "10.0.0.1", "device": [
            {"device_id": "0", "super_device_id": "0", "device_ip": "192.168.1.6", "device_port": "16666",
             "backup_device_ip": "192.168.1.7", "backup_device_port": "16667", "host_port": "16665", "rank_id": "0"},
            {"device_id": "1", "super_device_id": "1", "host_port": "16666", "rank_id": "1"}]},
        {"server_id": "b", "host_ip": "10.0.0.2", "device": [{"device_id": "0", "host_port": "16665", "rank_id": "2"}]}],
        "super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "a"}]},
                           {"super_pod_id": 1, "server_list": [{"server_id": "b"}]}]})";
    const RankTable table = parsed(text);
    EXPECT_EQ(table.server_of(0).super_pod, "0");
    EXPECT_EQ(table.server_of(2).super_pod, "1");
    EXPECT_EQ(table.ranks[1].host_port, 16666);
    const MeetingPlace place = place_of(table, "");
    EXPECT_EQ(place.host, "10.0.0.1");
    EXPECT_EQ(place.port, 16665);
    EXPECT_FALSE(place.on_one_host);
}

TEST(RankTable, of_the_older_form_counts_devices_of_instances) {
    const RankTable table = parsed(R"({"status": "completed", "group_count": "1", "group_list": [
        {"group_name": "hccl_world_group", "instance_count": "2", "device_count": "3", "instance_list": [
            {"pod_name": "tf-1", "server_id": "10.0.0.1", "devices": [{"device_id": "0", "device_ip": "192.168.1.8"}]},
            {"pod_name": "tf-2", "server_id": "10.0.0.2", "devices": [{"device_id": "4", "device_ip": "192.168.1.9"},
                                                                      {"device_id": "5", "device_ip": "192.168.1.7"}]}]}]})");
    ASSERT_EQ(table.size(), 3);
    EXPECT_EQ(table.host_of(0), "10.0.0.1");
    EXPECT_EQ(table.ranks[1].device, 4);
    EXPECT_EQ(table.host_of(2), "10.0.0.2");
}

TEST(RankTable, of_the_older_form_takes_the_instances_ranks_and_joins_all_groups) {
    const RankTable table =
        parsed(R"({"status": "completed", "deploy_mode": "lab", "board_id": "0x2000", "group_list": [
        {"group_name": "", "device_num": "2", "server_num": "1", "instance_count": "2", "instance_list": [
            {"rank_id": "1", "server_id": "a", "devices": [{"device_id": "7"}]},
            {"rank_id": "0", "server_id": "a", "devices": [{"device_id": "6"}]}]},
        {"group_name": "more", "instance_list": [{"rank_id": "2", "server_id": "b", "devices": [{"device_id": "0"}]}]}]})");
    ASSERT_EQ(table.size(), 3);
    EXPECT_EQ(table.ranks[0].device, 6);
    EXPECT_EQ(table.ranks[1].device, 7);
    EXPECT_EQ(table.server_of(2).id, "b");
}

const std::string two_groups = R"({"version": "1.0", "status": "completed", "server_group_list": [
    {"group_id": "2", "deploy_server": "0", "server_count": "1", "server_list": [
        {"server_id": "a", "server_ip": "10.0.0.7", "device": [
            {"device_id": "0", "device_logical_id": "0", "device_ip": "192.168.1.1", "rank_id": "0"}]}]},
    {"group_id": "3", "server_count": "1", "server_list": [
        {"server_id": "b", "server_ip": "10.0.0.8", "device": [
            {"device_id": "0", "rank_id": "0"}, {"device_id": "1", "rank_id": "1"}]}]}]})";

TEST(RankTable, of_several_groups_is_that_of_the_domain) {
    covers("S21-011");
    const RankTable third = parsed(two_groups, "3");
    EXPECT_EQ(third.size(), 2);
    EXPECT_EQ(third.host_of(0), "10.0.0.8");
    EXPECT_EQ(parsed(two_groups, "2").size(), 1);
    expect_refused(two_groups, {"/server_group_list", "commDomain \"4\"", "expected 2, 3"}, "4");
    expect_refused(two_groups, {"commDomain \"\""});
    EXPECT_NE(place_of(third, "3").port, place_of(parsed(two_groups, "2"), "2").port);
}

TEST(RankTable, without_addresses_means_this_host_if_it_has_one_server) {
    const RankTable table =
        parsed(R"({"server_list": [{"server_id": "node", "device": [)" + device(0) + "," + device(1) + "]}]}");
    const MeetingPlace place = place_of(table, "");
    EXPECT_TRUE(place.on_one_host);
    EXPECT_EQ(place.host, "127.0.0.1");
    EXPECT_GE(place.port, 20000);
    EXPECT_LT(place.port, 30000);
    EXPECT_EQ(place_of(table, "").port, place.port);
    EXPECT_NE(place_of(table, "another").port, place.port);
}

TEST(RankTable, that_is_not_complete_is_nothing_yet) {
    EXPECT_FALSE(parse_rank_table(R"({"status": "initializing"})", "t", ""));
    expect_refused(R"({"status": "broken"})", {"/status", "\"broken\"", "\"completed\" or \"initializing\""});
}

// ---- Rules

TEST(RankTable, that_is_no_json_is_refused_with_the_place) {
    expect_refused("{\n  \"status\": completed}", {"it is no JSON text", "line 2, column 13"});
    expect_refused("{\"status\": \"completed\" // usable\n}", {"comments are not JSON; remove them"});
    expect_refused("", {"it is empty"});
    expect_refused(R"({"status": 1e999})", {"a number in it is out of range"});
    expect_refused("[]", {"expected an object"});
    expect_refused("{}", {"there is no \"server_list\", \"group_list\" or \"server_group_list\""});
    expect_refused(R"({"version": "2.0", "rank_list": []})", {"/version", "\"2.0\"", "\"1.0\" or \"1.2\""});
}

std::string one_server(const std::string& devices) {
    return R"({"version": "1.0", "server_list": [{"server_id": "a", "device": [)" + devices + "]}]}";
}

TEST(RankTable, has_each_rank_once_from_zero_without_a_hole) {
    expect_refused(one_server(device(0) + "," + device(0)),
                   {"/server_list/0/device/1/rank_id", "rank 0 stands at /server_list/0/device/0/rank_id too"});
    expect_refused(one_server(device(0) + "," + device(2)), {"/device/1/rank_id", "rank 2", "has 2 ranks", "0 to 1"});
    expect_refused(one_server(R"({"device_id": "0", "rank_id": "one"})"),
                   {"/rank_id", "\"one\"", "expected an integer"});
    expect_refused(one_server(R"({"device_id": "0", "rank_id": "-1"})"), {"/rank_id", "\"-1\""});
    expect_refused(one_server(R"({"device_id": "0"})"), {"/server_list/0/device/0", "there is no \"rank_id\""});
    expect_refused(one_server(R"({"rank_id": "0"})"), {"there is no \"device_id\""});
    expect_refused(one_server(""), {"/server_list/0/device", "it is empty"});
}

TEST(RankTable, has_the_ranks_of_a_server_in_one_piece) {
    expect_refused(R"({"server_list": [
        {"server_id": "a", "device": [)" +
                       device(0) + "," + device(1) + "," + device(3) + R"(]},
        {"server_id": "b", "device": [)" +
                       device(2) + "]}]}",
                   {"/server_list/0/device/2/rank_id", "rank 3 is on server \"a\"", "in one piece"});
}

TEST(RankTable, has_counts_that_are_right_and_servers_that_differ) {
    const std::string server = R"({"server_id": "a", "device": [)" + device(0) + "]}";
    expect_refused(R"({"server_count": "2", "server_list": [)" + server + "]}",
                   {"/server_count", "2: server_list has 1 entries"});
    expect_refused(R"({"server_list": [)" + server + R"(, {"server_id": "a", "device": [)" + device(1) + "]}]}",
                   {"/server_list/1/server_id", "\"a\" stands at /server_list/0/server_id too"});
    expect_refused(R"({"server_list": [{"server_id": ")" + std::string(65, 'x') + R"(", "device": []}]})",
                   {"/server_list/0/server_id", "65 characters", "1 to 64"});
    expect_refused(R"({"group_count": 2, "group_list": [{"instance_list": [
        {"server_id": "a", "devices": [{"device_id": 0}]}]}]})",
                   {"/group_count", "group_list has 1 entries"});
    expect_refused(R"({"group_list": [{"device_num": 2, "instance_list": [
        {"server_id": "a", "devices": [{"device_id": 0}]}]}]})",
                   {"/group_list/0/device_num", "2: instance_list's devices has 1"});
    expect_refused(R"({"group_list": [{"instance_list": [
        {"server_id": "a", "rank_id": 0, "devices": [{"device_id": 0}]},
        {"server_id": "a", "devices": [{"device_id": 1}]}]}]})",
                   {"/group_list", "some ranks have a rank_id"});
}

TEST(RankTable, has_addresses_of_one_family_and_ports_that_can_be) {
    expect_refused(
        one_server(device(0, R"(, "device_ip": "192.168.1.1")") + "," + device(1, R"(, "device_ip": "fd00::1")")),
        {"/server_list/0/device/1/device_ip", "\"fd00::1\" is of IPv6", "/device/0/device_ip is of IPv4"});
    expect_refused(one_server(device(0, R"(, "device_ip": "192.168.1.256")")), {"/device_ip", "expected an address"});
    expect_refused(one_server(device(0, R"(, "host_port": "65536")")), {"/host_port", "from 1 to 65535"});
    expect_refused(one_server(device(0, R"(, "host_port": 7)") + "," + device(1, R"(, "host_port": "7")")),
                   {"host_port 7", "expected another for each device"});
}

TEST(RankTable, has_each_server_in_one_super_pod) {
    const auto with_pods = [](const std::string& pods) {
        return R"({"version": "1.2", "server_list": [{"server_id": "a", "device": [)" + device(0) +
               R"(]}, {"server_id": "b", "device": [)" + device(1) + R"(]}], "super_pod_list": [)" + pods + "]}";
    };
    const std::string a = R"({"server_id": "a"})", b = R"({"server_id": "b"})";
    const auto pod = [](const std::string& id, const std::string& servers) {
        return R"({"super_pod_id": ")" + id + R"(", "server_list": [)" + servers + "]}";
    };
    EXPECT_EQ(parsed(with_pods(pod("0", a) + "," + pod("1", b))).size(), 2);
    expect_refused(with_pods(pod("0", a + "," + b) + "," + pod("1", b)),
                   {"/super_pod_list/1/server_list/0/server_id", "already"});
    expect_refused(with_pods(pod("0", a)), {"/super_pod_list", "\"b\" is in no super pod"});
    expect_refused(with_pods(pod("0", a) + "," + pod("0", b)), {"/super_pod_list/1/super_pod_id", "stands at"});
    expect_refused(with_pods(pod("0", R"({"server_id": "c"})")), {"\"c\" is not in the server_list"});
}

// ---- Files

class TableFile : public ::testing::Test {
 protected:
    void SetUp() override {
        path_ =
            (std::filesystem::temp_directory_path() / ("rank_table_" + std::to_string(::getpid()) + ".json")).string();
    }
    void TearDown() override { std::filesystem::remove(path_); }
    void write(const std::string& text) const { std::ofstream(path_) << text; }
    std::string path_;
};

TEST_F(TableFile, is_read_again_until_it_is_complete) {
    write(R"({"status": "initializing", "version": "1.0"})");
    std::thread writer([&] {
        std::this_thread::sleep_for(200ms);
        write(two_servers.substr(0, two_servers.size() / 2));  // its writer is not done
        std::this_thread::sleep_for(200ms);
        write(two_servers);
    });
    const RankTable table = read_rank_table(path_, "", Deadline::after(30s));
    writer.join();
    EXPECT_EQ(table.size(), 4);
}

TEST_F(TableFile, that_is_never_completed_is_a_timeout_that_names_it) {
    write(R"({"status": "initializing"})");
    const auto began = std::chrono::steady_clock::now();
    const std::string text = message_of<Timeout>([&] { read_rank_table(path_, "", Deadline::after(300ms)); });
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    EXPECT_NE(text.find("initializing"), std::string::npos) << text;
    EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

TEST_F(TableFile, whose_end_does_not_come_is_refused_soon) {
    write(two_servers.substr(0, 100));
    const std::string text = message_of<Error>([&] { read_rank_table(path_, "", Deadline::after(60s)); });
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    EXPECT_NE(text.find("it is no JSON text"), std::string::npos) << text;
}

TEST_F(TableFile, that_is_none_is_refused_and_no_pipe_is_waited_for) {
    const auto refused = [&] { return message_of<Error>([&] { read_rank_table(path_, "", Deadline::after(60s)); }); };
    EXPECT_NE(refused().find("No such file"), std::string::npos);
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_NE(refused().find("expected a regular file"), std::string::npos);
    std::filesystem::remove(path_);
    std::filesystem::create_directory(path_);
    EXPECT_NE(refused().find("expected a regular file"), std::string::npos);
}

}  // namespace
}  // namespace tutti::atb
