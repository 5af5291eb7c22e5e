// Waiting processes: a will of a process that ended wakes them, and a long wait is no silent one.
#include "core/deadline.hpp"
#include "store/process_test_support.hpp"
#include "store/tcp_test_support.hpp"
#include "support/forwarding_store.hpp"
#include "support/message_of.hpp"
#include "support/patience.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <tutti/error.hpp>
#include <tutti/store.hpp>

#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::a_client;
using test::a_master;
using test::Child;
using test::expect_contains;
using test::Pipe;
using test::TempPath;

enum class Kind { tcp, door, file, file_of_three };

class Wills : public ::testing::TestWithParam<Kind> {
 protected:
    Wills() {
        if (GetParam() == Kind::tcp) ::setenv("TUTTI_STORE_LOCAL", "0", 1);
        if (GetParam() == Kind::tcp || GetParam() == Kind::door) master_.emplace(a_master());
    }
    ~Wills() override { ::unsetenv("TUTTI_STORE_LOCAL"); }
    Store store() const {
        if (master_) return a_client(master_->port());
        return FileStore(file_.path, GetParam() == Kind::file ? -1 : 3);
    }
    /// A process that makes its will and then waits to be killed.
    std::unique_ptr<Child> testator(std::function<void(Store&)> then = {}) const {
        auto child = std::make_unique<Child>([&] {
            Store own = store();
            if (!PrefixStore("world", own).backend()->set_will("ended", "rank 1", 5s)) return 3;
            if (then) then(own);
            ready_.put('r');
            ::pause();
            return 0;
        });
        ready_.take<char>();
        return child;
    }

    TempPath file_{"will"};
    std::optional<TCPStore> master_;
    Pipe ready_;
};

TEST_P(Wills, of_a_killed_process_are_done_at_once_and_wake_who_waits) {
    Store mine = store();
    auto child = testator();
    EXPECT_FALSE(mine.check({"world/ended"}));
    Instant killed;
    std::thread killer([&] {
        std::this_thread::sleep_for(300ms);
        killed = Clock::now();
        child->kill();
    });
    EXPECT_EQ(mine.get("world/ended", 20s), "rank 1");
    killer.join();
    EXPECT_LT(Clock::now() - killed, test::patience(1s));
}

TEST_P(Wills, are_void_once_their_key_exists) {
    Store mine = store();
    auto child = testator([](Store& own) { own.set("world/ended", "something else"); });
    child->kill();
    EXPECT_THROW(mine.wait({"another secret of the tests"}, 700ms), DistStoreError);
    EXPECT_EQ(mine.get("world/ended"), "something else");
}

TEST_P(Wills, are_done_when_a_process_lets_go_of_its_store) {
    Store mine = store();
    {
        const Store other = store();
        ASSERT_TRUE(other.backend()->set_will("left", "rank 2", 5s));
        EXPECT_FALSE(mine.check({"left"}));
    }
    EXPECT_EQ(mine.get("left", 5s), "rank 2");
}

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
    constexpr const char* names[] = {"tcp", "door", "file", "file_of_three"};
    return names[static_cast<int>(kind.param)];
}
INSTANTIATE_TEST_SUITE_P(All, Wills, ::testing::Values(Kind::tcp, Kind::door, Kind::file, Kind::file_of_three),
                         name_of);

TEST(WillsOfAStoreWithoutThem, do_not_exist) {
    EXPECT_FALSE(Store(std::make_shared<test::ForwardingStore>()).backend()->set_will("key", "value", 1s));
    EXPECT_TRUE(HashStore().backend()->set_will("key", "value", 1s)) << "it ends with the process";
}

TEST(Waiting, for_a_key_a_server_or_a_lock_is_told_after_five_seconds) {
    const TempPath file("waiting");
    const std::uint16_t nobody = a_master().port();
    TCPStore master = a_master();
    FileStore in_file(file.path);
    HashStore hash;
    ::testing::internal::CaptureStderr();
    const auto fails = [](auto call) { return std::thread([call]() mutable { EXPECT_THROW(call(), DistError); }); };
    std::vector<std::thread> waits;
    waits.push_back(fails([=]() mutable { master.wait({"over tcp", "too"}, 5500ms); }));
    waits.push_back(fails([=]() mutable { (void)in_file.get("in a file", 5500ms); }));
    waits.push_back(fails([=]() mutable { (void)hash.get("in memory", 5500ms); }));
    waits.push_back(fails([=] { (void)a_client(nobody, 5500ms); }));
    waits.push_back(fails([=] { (void)TCPStore({.port = nobody, .timeout = 5500ms}); }));  // no secret
    waits.push_back(fails([=] {
        (void)TCPStore({.world_size = 2, .is_master = true, .timeout = 5500ms, .secret = "a secret of the tests"});
    }));
    for (std::thread& wait : waits) wait.join();
    const std::string text = ::testing::internal::GetCapturedStderr();
    for (const std::string& part :
         {std::string("for keys \"over tcp\", \"too\" of TCPStore(127.0.0.1:"),
          "for key \"in a file\" of FileStore(" + file.path + ") to be set",
          std::string("for key \"in memory\" of Hash"),
          fmt::format("for a connection to 127.0.0.1:{}: Connection refused", nobody),
          fmt::format("for the secret of the job on port {}", nobody), std::string("for 2 users of TCPStore(")}) {
        expect_contains(text, "still waiting after 5 s " + part);
    }
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
}

TEST(Listening, of_a_master_with_a_secret_reaches_every_address_and_without_one_only_its_own) {
    const auto reaches = [](const std::string& host, std::uint16_t port) {
        try {
            (void)net::connect_tcp({host, port}, Deadline::after(0s), nullptr);
            return true;
        } catch (const DistNetworkError&) {
            return false;
        }
    };
    for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "127.0.1.1"}) {
        TCPStore open({.host = host, .is_master = true, .secret = "a secret of the tests"});
        EXPECT_TRUE(reaches("127.9.9.9", open.port())) << host;
        EXPECT_EQ(open.backend()->local_host(), "0.0.0.0") << host;
        open.set("key", "value");
        EXPECT_EQ(TCPStore({.host = "127.5.5.5", .port = open.port(), .secret = "a secret of the tests"}).get("key"),
                  "value");
    }
    const TCPStore closed({.is_master = true});
    EXPECT_TRUE(reaches("127.0.0.1", closed.port()));
    EXPECT_FALSE(reaches("127.9.9.9", closed.port()));
    EXPECT_EQ(closed.backend()->local_host(), "127.0.0.1");
    EXPECT_GT(closed.backend()->round_trip().count(), 0);
    EXPECT_EQ(PrefixStore("in it", closed).backend()->round_trip(), closed.backend()->round_trip());
    EXPECT_EQ(HashStore().backend()->round_trip().count(), 0);
}

TEST(Listening, says_once_that_somebody_has_another_secret) {
    ::testing::internal::CaptureStderr();
    const TCPStore master = a_master();
    for (int i = 0; i < 5; ++i) {
        EXPECT_THROW(TCPStore({.port = master.port(), .timeout = 5s, .secret = "another secret of the tests"}),
                     DistNetworkError);
    }
    const std::string text = ::testing::internal::GetCapturedStderr();
    expect_contains(text, "did not prove the job's secret");
    expect_contains(text, "127.0.0.1:");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

}  // namespace
}  // namespace tutti
