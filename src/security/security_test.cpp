#include "core/socket.hpp"
#include "security/handshake.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tutti/error.hpp>

#include <cstdlib>
#include <fstream>
#include <thread>

namespace tutti::security {
namespace {

using namespace std::chrono_literals;
using State = Handshake::State;

// Runs both machines against each other, a byte at a time.
std::pair<State, State> run(const Secret& client_secret, const Secret& server_secret, std::string_view client_purpose = "test") {
    Handshake client(client_secret, Handshake::Role::client, client_purpose);
    Handshake server(server_secret, Handshake::Role::server, "test");
    for (int turn = 0; turn < 4; ++turn) {
        for (const std::byte b : client.take_output()) {
            if (server.state() == State::running) server.consume({&b, 1});
        }
        for (const std::byte b : server.take_output()) {
            if (client.state() == State::running) client.consume({&b, 1});
        }
    }
    return {client.state(), server.state()};
}

TEST(Handshake, ends_well_only_with_one_secret_and_one_purpose) {
    const Secret secret = Secret::generate();
    EXPECT_EQ(run(secret, secret), std::pair(State::done, State::done));
    EXPECT_EQ(run(secret, Secret::generate()).first, State::failed);
    EXPECT_EQ(run(secret, secret, "another").first, State::failed);
    EXPECT_NE(run(secret, Secret::generate()).second, State::done);
}

TEST(Handshake, rejects_garbage_at_its_first_byte) {
    Handshake server(Secret::generate(), Handshake::Role::server, "test");
    const std::byte b{'G'};
    server.consume({&b, 1});
    EXPECT_EQ(server.state(), State::failed);
}

TEST(Handshake, cannot_be_reflected) {
    // A server that is sent its own messages back does not accept them as a client's.
    const Secret secret = Secret::generate();
    Handshake victim(secret, Handshake::Role::client, "test");
    const auto hello = victim.take_output();
    std::vector<std::byte> reflected(hello);
    reflected.resize(victim.wanted());
    victim.consume(reflected);
    EXPECT_EQ(victim.state(), State::failed);
}

TEST(Handshake, runs_over_a_socket_and_names_the_hint) {
    const Secret secret = Secret::generate();
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    const Deadline deadline = Deadline::after(10s);
    for (const bool right : {true, false}) {
        std::thread server([&] {
            const UniqueFd fd = net::accept_one(listener.get(), deadline, nullptr, "accept");
            try {
                authenticate(fd.get(), secret, Handshake::Role::server, "test", deadline, nullptr);
            } catch (const DistNetworkError&) {
                EXPECT_FALSE(right);
            }
        });
        const UniqueFd fd = net::connect_tcp(net::local_address(listener.get()), deadline, nullptr);
        try {
            authenticate(fd.get(), right ? secret : Secret::generate(), Handshake::Role::client, "test", deadline, nullptr);
            EXPECT_TRUE(right);
        } catch (const DistNetworkError& error) {
            EXPECT_FALSE(right);
            EXPECT_EQ(error.code(), ErrorCode::security);
            EXPECT_NE(std::string(error.what()).find("TUTTI_JOB_SECRET"), std::string::npos);
        }
        ::shutdown(fd.get(), SHUT_RDWR);
        server.join();
    }
}

TEST(Secret, comes_from_an_owner_only_file) {
    const std::string path = ::testing::TempDir() + "secret";
    std::ofstream(path) << "abc\n";
    ::chmod(path.c_str(), 0644);
    ::setenv("TUTTI_JOB_SECRET_FILE", path.c_str(), 1);
    ::unsetenv("TUTTI_JOB_SECRET");
    EXPECT_THROW(Secret::from_environment(), InvalidArgument);
    ::chmod(path.c_str(), 0600);
    EXPECT_EQ(Secret::from_environment()->text(), "abc");
    ::unsetenv("TUTTI_JOB_SECRET_FILE");
    ::unlink(path.c_str());
    EXPECT_NE(Secret::generate().text(), Secret::generate().text());
    EXPECT_NE(Secret::from_text("a").derive("x").text(), Secret::from_text("a").derive("y").text());
}

TEST(Sockets, fail_with_a_sentence) {
    const UniqueFd listener = net::listen_tcp("127.0.0.1", 0);
    const auto address = net::local_address(listener.get());
    try {
        net::listen_tcp("127.0.0.1", address.port);
        FAIL();
    } catch (const DistNetworkError& error) {
        EXPECT_NE(std::string(error.what()).find("another job may be using it"), std::string::npos);
    }
    EXPECT_THROW(net::connect_tcp({"127.0.0.1", 1}, Deadline::after(30ms), nullptr), DistNetworkError);
    EXPECT_TRUE(net::is_loopback("localhost"));
    EXPECT_TRUE(net::is_multicast("239.1.1.1"));
    EXPECT_FALSE(net::is_multicast("10.1.1.1"));
}

}  // namespace
}  // namespace tutti::security
