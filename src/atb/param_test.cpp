#include "atb/param.hpp"

#include "support/covers.hpp"
#include "support/message_of.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti::atb {
namespace {

using tutti::test::covers;
using tutti::test::message_of;

void expect_refused(const AllToAllVV2Param& param, const std::vector<std::string>& words) {
    try {
        check(param);
        ADD_FAILURE() << "accepted; expected: " << words.front();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ERROR_INVALID_PARAM);
        EXPECT_STREQ(to_string(error.code()), "ERROR_INVALID_PARAM");
        EXPECT_EQ(static_cast<const DistError&>(error).code(), ErrorCode::invalid_argument);
        for (const std::string& word : words)
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << "\n" << error.what();
    }
}

TEST(AllToAllVV2Parameters, have_the_documents_members_and_defaults) {
    covers("S21-003", "S21-004", "S21-005", "S21-006", "S21-007", "S21-008", "S21-009", "S21-010", "S21-011",
           "S21-012");
    const AllToAllVV2Param p;
    const auto& [rank, rank_size, rank_root, backend, comm, mode, file, domain, reserved] = p;  // nine, in this order
    static_assert(std::is_same_v<decltype(p.rank), int> && std::is_same_v<decltype(p.rankSize), int> &&
                  std::is_same_v<decltype(p.rankRoot), int> && sizeof p.rsv == 64);
    EXPECT_EQ(rank, -1);
    EXPECT_EQ(rank_size, 0);
    EXPECT_EQ(rank_root, 0);
    EXPECT_EQ(backend, "hccl");
    EXPECT_FALSE(comm);
    EXPECT_TRUE(comm == nullptr);
    EXPECT_EQ(mode, COMM_MULTI_PROCESS);
    EXPECT_EQ(file, "");
    EXPECT_EQ(domain, "");
    for (const std::uint8_t byte : reserved) EXPECT_EQ(byte, 0);
}

TEST(AllToAllVV2Parameters, have_the_documents_modes) {
    covers("S21-013", "S21-014", "S21-015");
    EXPECT_EQ(COMM_UNDEFINED, -1);
    EXPECT_EQ(COMM_MULTI_PROCESS, 0);
    EXPECT_EQ(COMM_MULTI_THREAD, 1);
    expect_refused({.rank = 0, .rankSize = 1, .commMode = COMM_UNDEFINED}, {"commMode is -1"});
    expect_refused({.rank = 0, .rankSize = 1, .commMode = static_cast<CommMode>(2)}, {"commMode is 2"});
}

TEST(AllToAllVV2Parameters, that_cannot_be_are_refused_with_name_value_and_rule) {
    check({.rankSize = 1});
    check({.rank = 1, .rankSize = 2, .rankRoot = 1});
    expect_refused({}, {"rankSize is 0", "1 or more"});
    expect_refused({.rank = 0, .rankSize = -2}, {"rankSize is -2"});
    expect_refused({.rankSize = 2}, {"rank is -1", "0 to 1"});
    expect_refused({.rank = 2, .rankSize = 2}, {"rank is 2", "0 to 1"});
    expect_refused({.rank = -3, .rankSize = 2}, {"rank is -3"});
    expect_refused({.rank = 0, .rankSize = 2, .rankRoot = 2}, {"rankRoot is 2", "0 to 1"});
    expect_refused({.rank = 0, .rankSize = 2, .backend = "lccl"}, {"backend is \"lccl\"", "\"hccl\""});
    expect_refused({.rank = 0, .rankSize = 2, .commDomain = std::string(129, 'd')}, {"129 characters", "128"});
    expect_refused({.rank = 0, .rankSize = 2, .rankTableFile = "/no/such/table.json"},
                   {"/no/such/table.json", "no such"});
    AllToAllVV2Param reserved{.rankSize = 1};
    reserved.rsv[3] = 7;
    expect_refused(reserved, {"rsv[3] is 7"});
    expect_refused({.hcclComm = ProcessGroup::non_member()}, {"hcclComm", "not in that group"});
}

TEST(AllToAllVV2Parameters, come_from_a_text) {
    covers("S21-023");
    const AllToAllVV2Param p = param_from_json(R"({"rank": 1, "rankSize": 2, "rankRoot": 0, "backend": "hccl"})");
    EXPECT_EQ(p.rank, 1);
    EXPECT_EQ(p.rankSize, 2);
    EXPECT_EQ(p.commMode, COMM_MULTI_PROCESS);
    const AllToAllVV2Param q = param_from_json(
        R"({"rank": "3", "commMode": 1, "rankTableFile": "/a/b", "commDomain": "d", "hcclComm": null, "rsv": [0, 0]})");
    EXPECT_EQ(q.rank, 3);
    EXPECT_EQ(q.rankSize, 0);
    EXPECT_EQ(q.commMode, COMM_MULTI_THREAD);
    EXPECT_EQ(q.rankTableFile, "/a/b");
    EXPECT_EQ(q.commDomain, "d");
    EXPECT_EQ(param_from_json(R"({"commMode": "COMM_MULTI_THREAD"})").commMode, COMM_MULTI_THREAD);
}

TEST(AllToAllVV2Parameters, of_a_text_that_cannot_be_are_refused_with_the_place) {
    const auto refused = [](const std::string& text, const std::string& words) {
        const std::string message = message_of<Error>([&] { param_from_json(text); });
        EXPECT_NE(message.find(words), std::string::npos) << words << "\n" << message;
    };
    refused("{\"rank\": 1,", "set_param: it is no JSON text (line 1, column");
    refused("[1]", "set_param: [1]: expected an object");
    refused(R"({"ranksize": 2})", "\"ranksize\" is no parameter: expected backend, commDomain");
    refused(R"({"rank": 1.5})", "set_param, /rank: 1.5: expected an integer");
    refused(R"({"rank": 99999999999})", "set_param, /rank: 99999999999");
    refused(R"({"backend": ["hccl"]})", "set_param, /backend: [\"hccl\"]: expected a string");
    refused(R"({"commMode": "threads"})", "set_param, /commMode");
    refused(R"({"hcclComm": 5})", "give set_param a structure");
}

}  // namespace
}  // namespace tutti::atb
