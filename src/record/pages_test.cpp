// The pages of a job's ranks: each asks the others of this host, and tells who has not answered.
#include "record/pages.hpp"

#include "record/test_dumps.hpp"
#include "security/secret.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::dump_of, test::entry_of, test::message_of;

constexpr int size = 4;  // ranks 2 and 3 have no page here

std::vector<Dump> of_rank_0(const std::string& reason, std::size_t) {
    Dump dump = dump_of(0, size, {entry_of(1, State::completed), entry_of(2, State::started)});
    dump.reason = reason;
    dump.unmatched.push_back({.from = 3, .tag = 5, .what = "send"});
    return {dump};
}
std::vector<Dump> of_rank_1(const std::string&, std::size_t) {
    return {dump_of(1, size, {entry_of(1, State::completed), message_of(Kind::receive, 0, State::started)})};
}
std::string metrics() {
    return "tutti_operations_total 7\n";
}

class PagesOfAJob : public testing::Test {
 protected:
    PagesOfAJob() {
        ::setenv("TUTTI_JOB_SECRET", "a secret of the tests", 1);
        for (int attempt = 0; attempt < 20 && !(servers_[0] && servers_[1]); ++attempt) {  // others may use a port
            port_ = 20000 + (::getpid() * 17 + attempt * 101) % 10000;
            ::setenv("TUTTI_STATUS_PORT", std::to_string(port_).c_str(), 1);
            servers_[0] = serve_pages(0, {of_rank_0, metrics});
            servers_[1] = serve_pages(1, {of_rank_1, metrics});
        }
    }
    ~PagesOfAJob() override {
        ::unsetenv("TUTTI_STATUS_PORT");
        ::unsetenv("TUTTI_JOB_SECRET");
    }
    /// What rank 0 answers; "": there is no such page.
    std::string page(const std::string& path) const {
        const AbortFlag stop;
        const auto answers = http_get({static_cast<std::uint16_t>(port_)}, path,
                                      page_token(*security::Secret::from_environment()), Deadline::after(20s), stop);
        return answers.at(0).body.value_or("");
    }

    int port_ = 0;
    std::unique_ptr<HttpServer> servers_[2];
};

TEST_F(PagesOfAJob, tell_what_each_rank_is_in_and_who_has_no_page) {
    ASSERT_TRUE(servers_[0] && servers_[1]);
    const std::string text = page("/status");
    EXPECT_NE(text.find("no page on this host of ranks 2, 3: on another host, ended, or in another process\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("operation 7"), std::string::npos) << text;
    EXPECT_NE(page("/status.html").find("</html>"), std::string::npos);

    const json status = json::parse(page("/status.json"));
    EXPECT_EQ(status["elsewhere"], json({2, 3}));
    EXPECT_EQ(status["silent"], json::array());
    EXPECT_EQ(status["foreign"], json::array());
    ASSERT_EQ(status["groups"].size(), 1U);
    const json& group = status["groups"][0];
    EXPECT_EQ(group["size"], size);
    ASSERT_EQ(group["ranks"].size(), 2U);
    EXPECT_EQ(group["ranks"][0]["open"][0]["sequence"], 2);
    EXPECT_EQ(group["ranks"][0]["unmatched"][0], json({{"from", 3}, {"tag", 5}, {"what", "send"}}));
    EXPECT_EQ(group["ranks"][1]["rank"], 1);
    EXPECT_EQ(group["ranks"][1]["open"][0]["state"], "started");
    EXPECT_FALSE(group["waits"].empty());
}

TEST_F(PagesOfAJob, show_counters_stacks_and_records) {
    ASSERT_TRUE(servers_[0] && servers_[1]);
    EXPECT_NE(page("/").find("/status.json  the same as JSON"), std::string::npos);
    EXPECT_EQ(page("/metrics"), metrics());
    EXPECT_EQ(page("/no-such-page"), "");
    const json trace = json::parse(page("/trace"));
    ASSERT_EQ(trace.size(), 1U);
    EXPECT_EQ(decode(trace[0].get<std::string>(), "a test").reason, "asked for over HTTP");
    const std::string pid = "pid " + std::to_string(::getpid());
    EXPECT_NE(page("/stack").find(pid), std::string::npos);
    const std::string stacks = page("/stacks");
    EXPECT_EQ(stacks.find("rank 0"), 0U) << stacks;
    EXPECT_NE(stacks.find("rank 1 ("), std::string::npos) << stacks;
}

TEST_F(PagesOfAJob, are_missing_without_a_secret_or_a_port) {
    ::unsetenv("TUTTI_JOB_SECRET");
    EXPECT_EQ(serve_pages(2, {of_rank_0, metrics}), nullptr);
    ::setenv("TUTTI_JOB_SECRET", "a secret of the tests", 1);
    EXPECT_EQ(serve_pages(65536 - port_, {of_rank_0, metrics}), nullptr);
    EXPECT_EQ(serve_pages(0, {of_rank_0, metrics}), nullptr);  // its port is in use
    ::unsetenv("TUTTI_STATUS_PORT");
    EXPECT_EQ(serve_pages(2, {of_rank_0, metrics}), nullptr);
}

}  // namespace
}  // namespace tutti::record
