// The congestion control of the connections between ranks.
#include "transport/tcp/congestion.hpp"

#include "core/socket.hpp"

#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <tutti/error.hpp>

#include <cstdlib>
#include <string>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

// A connection whose congestion control is `name` before TUTTI_TCP_CONGESTION=`setting` is applied, and its congestion
// control afterwards; empty where this system does not let us choose `name`.
std::string applied(const char* setting, const std::string& name) {
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    const UniqueFd fd =
        net::connect_tcp({"127.0.0.1", net::local_address(listener.get()).port}, Deadline::after(10s), nullptr);
    if (::setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) != 0)
        return {};
    ::setenv("TUTTI_TCP_CONGESTION", setting, 1);
    Congestion::from_environment().apply(fd.get());
    ::unsetenv("TUTTI_TCP_CONGESTION");
    return congestion_of(fd.get());
}

TEST(Congestion, is_the_one_that_is_named) {
    const std::string other = applied("system", "cubic");
    if (other != "cubic") GTEST_SKIP() << "this system offers no cubic";
    EXPECT_EQ(applied("cubic", "reno"), "cubic");
    EXPECT_EQ(applied("reno", "cubic"), "reno");
}

TEST(Congestion, stays_what_it_is_unless_it_paces_a_near_connection) {
    EXPECT_EQ(applied("system", "reno"), "reno");
    EXPECT_EQ(applied("auto", "reno"), "reno");
    if (applied("system", "bbr") != "bbr") GTEST_SKIP() << "this system offers no BBR";
    EXPECT_EQ(applied("auto", "bbr"), "reno");
}

TEST(Congestion, that_the_system_does_not_have_is_refused_with_those_that_it_has) {
    ::setenv("TUTTI_TCP_CONGESTION", "warp", 1);
    try {
        Congestion::from_environment();
        ADD_FAILURE() << "nothing was thrown";
    } catch (const InvalidArgument& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("TUTTI_TCP_CONGESTION=warp: expected auto, system or"), std::string::npos) << text;
        EXPECT_NE(text.find("reno"), std::string::npos) << text;
    }
    ::unsetenv("TUTTI_TCP_CONGESTION");
}

}  // namespace
}  // namespace tutti::transport
