#include "launch/hosts.hpp"

#include "launch/logs.hpp"
#include "support/covers.hpp"

#include <tutti/error.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::launch {
namespace {

class Hosts : public ::testing::Test {
 protected:
    ~Hosts() override { std::filesystem::remove(path_); }
    std::vector<Host> read(const std::string& text) {
        std::ofstream(path_) << text;
        return read_hostfile(path_);
    }
    const std::string path_ = ::testing::TempDir() + "tutti_hosts_" + std::to_string(::getpid());
};

template <class Call>
void expect_refused(Call call, std::initializer_list<const char*> words) {
    try {
        call();
        ADD_FAILURE() << "not refused: " << *words.begin();
    } catch (const InvalidArgument& error) {
        for (const char* word : words) {
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << "\nlacks " << word;
        }
    }
}

std::string to_text(const std::vector<Host>& hosts) {
    std::string text;
    for (const Host& host : hosts) {
        text += host.name + (host.chosen ? "!" : ":");
        for (const int slot : host.slots) text += std::to_string(slot);
        text += " ";
    }
    return text;
}

TEST_F(Hosts, are_lines_of_a_name_and_slots) {
    test::covers("S14-004");
    EXPECT_EQ(to_text(read("# all\n\n  a slots=2 # two\r\nme@b\tslots=1\nc\n")), "a:01 me@b:0 c:0 ");
}

TEST_F(Hosts, that_are_wrong_are_named_with_their_line) {
    expect_refused([&] { read(""); }, {path_.c_str(), "no hosts"});
    expect_refused([&] { read("a slots=2\nb slots=x\n"); }, {":2", "slots=x"});
    expect_refused([&] { read("a slots=0\n"); }, {":1", "slots=0"});
    expect_refused([&] { read("a gpus=2\n"); }, {":1", "gpus=2"});
    expect_refused([&] { read("a\nb\na slots=3\n"); }, {":3", "\"a\" comes twice"});
    expect_refused([&] { read("-oProxyCommand=x slots=3\n"); }, {":1", "-oProxyCommand"});
    expect_refused([&] { read("slots=3\n"); }, {":1", "name of a host"});
    expect_refused([] { read_hostfile("/no/such/file"); }, {"/no/such/file", "No such file"});
}

TEST_F(Hosts, are_selected_as_by_deepspeed) {
    const auto all = read("a slots=4\nb slots=2\nc slots=3\n");
    const auto select = [&](const HostSelection& selection) { return to_text(select_hosts(all, selection)); };
    EXPECT_EQ(select({}), "a:0123 b:01 c:012 ");
    EXPECT_EQ(select({.hosts = 2}), "a:0123 b:01 ");
    EXPECT_EQ(select({.ranks = 2}), "a:01 b:01 c:01 ");
    EXPECT_EQ(select({.hosts = 1, .ranks = 3}), "a:012 ");
    EXPECT_EQ(select({.include = "c@a:0,2"}), "a!02 c:012 ");
    EXPECT_EQ(select({.include = "b:1"}), "b!1 ");
    EXPECT_EQ(select({.exclude = "b"}), "a:0123 c:012 ");
    EXPECT_EQ(select({.exclude = "a:1@c:0,1"}), "a!023 b:01 c!2 ");
    EXPECT_EQ(select({.exclude = "b:0,1"}), "a:0123 c:012 ");
    expect_refused([&] { select({.include = "d"}); }, {"--include d", "no host \"d\""});
    expect_refused([&] { select({.include = "a:7"}); }, {"--include a:7", "slot \"7\"", "0 to 3"});
    expect_refused([&] { select({.exclude = "a:x"}); }, {"--exclude a:x", "slot \"x\""});
    expect_refused([&] { select({.exclude = "a@b@c"}); }, {"--exclude a@b@c", "no host is left"});
    expect_refused([&] { select({.include = "a", .exclude = "b"}); }, {"--include and --exclude"});
    expect_refused([&] { select({.include = "a", .hosts = 1}); }, {"--include", "--num-nodes"});
    expect_refused([&] { select({.hosts = 4}); }, {"--num-nodes 4", "3 hosts"});
    expect_refused([&] { select({.ranks = 3}); }, {"--num-gpus 3", "b has 2 slots"});
}

TEST(Streams, are_a_number_or_one_for_each_local_rank) {
    EXPECT_EQ(parse_streams("3", "--tee").of(5), 3);
    EXPECT_FALSE(parse_streams("0", "--tee").any());
    const Streams some = parse_streams("0:1,2:3", "--tee");
    EXPECT_EQ(some.of(0), 1);
    EXPECT_EQ(some.of(1), 0);
    EXPECT_EQ(some.of(2), 3);
    for (const char* wrong : {"", "4", "-1", "x", "0:4", "0:", ":1", "1:1,2", "0:1,,2:1"})
        expect_refused([&] { parse_streams(wrong, "--tee"); }, {"--tee", "3 (both)"});
}

}  // namespace
}  // namespace tutti::launch
