#include "core/socket.hpp"
#include "security/handshake.hpp"
#include "security/local_secret.hpp"
#include "security/secret.hpp"
#include "support/no_descriptors.hpp"
#include "support/patience.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tutti/error.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

namespace tutti::security {
namespace {

using namespace std::chrono_literals;

using Bytes = std::vector<std::byte>;

Deadline soon() {
    return Deadline::after(10s);
}
Secret the_secret() {
    return Secret::from_text("a secret of the tests");
}

/// An environment variable for the length of a test.
class Setting {
 public:
    Setting(const char* name, const char* value) : name_(name) {
        if (const char* old = std::getenv(name)) old_ = old;
        value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
    }
    ~Setting() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

 private:
    const char* name_;
    std::optional<std::string> old_;
};

struct NoEnvironment {
    Setting secret{"TUTTI_JOB_SECRET", nullptr};
    Setting file{"TUTTI_JOB_SECRET_FILE", nullptr};
    Setting insecure{"TUTTI_INSECURE", nullptr};
};

template <class Function>
std::string security_error(Function function) {
    try {
        function();
    } catch (const DistNetworkError& error) {
        EXPECT_EQ(error.code(), ErrorCode::security);
        return error.what();
    }
    return "(nothing was thrown)";
}

Bytes take_output(Handshake& machine) {
    const auto output = machine.output();
    Bytes bytes(output.begin(), output.end());
    machine.sent(bytes.size());
    return bytes;
}

/// Lets both ends talk, `piece` bytes at a time, until neither has more to say.
void converse(Handshake& a, Handshake& b, std::size_t piece) {
    const auto carry = [piece](Handshake& from, Handshake& to) {
        const Bytes bytes = take_output(from);
        for (std::size_t at = 0; at < bytes.size(); at += piece) {
            to.consume(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
        }
        return !bytes.empty();
    };
    while (carry(a, b) || carry(b, a)) {
    }
}

TEST(Secret, is_random_and_survives_its_text_form) {
    const Secret a = Secret::generate();
    EXPECT_FALSE(a == Secret::generate());
    EXPECT_TRUE(a == Secret::from_text(a.to_text()));
    EXPECT_EQ(a.to_text().size(), 64U);
    EXPECT_THROW((void)Secret::from_text(""), InvalidArgument);
    EXPECT_THROW((void)Secret::from_text(std::string(5000, 'x')), InvalidArgument);
}

TEST(Secret, computes_the_hmac_sha_256_of_rfc_4231) {
    // Test case 2.
    const Secret key = Secret::from_text("Jefe");
    const std::string_view text = "what do ya want for nothing?";
    const Mac whole = key.mac({std::as_bytes(std::span(text))});
    std::string hex;
    for (const std::byte b : whole) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(b));
        hex += digits;
    }
    EXPECT_EQ(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    const Mac parts = key.mac({std::as_bytes(std::span(text.substr(0, 5))), std::as_bytes(std::span(text.substr(5)))});
    EXPECT_TRUE(equal(whole, parts));
    EXPECT_FALSE(equal(whole, Mac{}));
}

TEST(Secret, computes_the_hmac_of_a_key_longer_than_a_block) {
    // Test case 6 of RFC 4231.
    const Secret key = Secret::from_text(std::string(131, '\xaa'));
    const std::string_view text = "Test Using Larger Than Block-Size Key - Hash Key First";
    const Mac sum = key.mac({std::as_bytes(std::span(text))});
    constexpr std::array<unsigned, 8> begin{0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f};
    for (std::size_t i = 0; i < begin.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(sum[i]), begin[i]) << i;
}

TEST(Secret, derives_other_secrets_for_other_purposes) {
    const Secret secret = the_secret();
    EXPECT_TRUE(secret.derive("a") == secret.derive("a"));
    EXPECT_FALSE(secret.derive("a") == secret.derive("b"));
    EXPECT_FALSE(secret.derive("a") == secret);
}

TEST(Secret, comes_from_the_environment_or_from_a_file_that_only_its_owner_can_read) {
    const NoEnvironment none;
    EXPECT_FALSE(Secret::from_environment());
    const std::string path = "/tmp/tutti-secret-test-" + std::to_string(::getpid());
    std::ofstream(path) << "a secret from the file\nsecond line\n";
    {
        const Setting file("TUTTI_JOB_SECRET_FILE", path.c_str());
        ::chmod(path.c_str(), 0644);
        const std::string text = security_error([] { (void)Secret::from_environment(); });
        EXPECT_NE(text.find(path), std::string::npos) << text;
        EXPECT_NE(text.find("0644"), std::string::npos) << text;
        EXPECT_EQ(text.find("from the file"), std::string::npos) << text;
        ::chmod(path.c_str(), 0600);
        EXPECT_EQ(Secret::from_environment().value().to_text(), "a secret from the file");
        const Setting variable("TUTTI_JOB_SECRET", "from the variable");
        EXPECT_EQ(Secret::from_environment().value().to_text(), "from the variable");
    }
    for (const char* text : {"\n", "fifteen bytes..\n"}) {
        std::ofstream(path, std::ios::trunc) << text;
        const std::string said = security_error([&] { (void)Secret::from_file(path); });
        EXPECT_NE(said.find("expected 16 to 4096"), std::string::npos) << said;
    }
    ::unlink(path.c_str());
    EXPECT_THROW((void)Secret::from_file(path), DistNetworkError);
    EXPECT_THROW((void)Secret::from_file("/dev/zero"), DistNetworkError);
}

TEST(Secret, that_is_short_is_refused_where_a_user_gives_it) {
    const NoEnvironment none;
    const SecretRequest local{.host = "127.0.0.1", .port = 1, .is_master = true, .explicit_secret = "letmein"};
    const auto refused = [](auto&& take, const std::string& from) {
        try {
            take();
            ADD_FAILURE() << "taken";
        } catch (const InvalidArgument& error) {
            const std::string text = error.what();
            EXPECT_EQ(text, from +
                                ": a secret of 7 bytes: expected 16 to 4096, since short ones can be found by trying; "
                                "make one: openssl rand -hex 32");
        }
    };
    refused([&] { (void)resolve_secret(local, soon()); }, "TCPStore: secret");
    const Setting variable("TUTTI_JOB_SECRET", "letmein");
    refused([&] { (void)Secret::from_environment(); }, "TUTTI_JOB_SECRET");
    const Setting longer("TUTTI_JOB_SECRET", "sixteen bytes...");
    EXPECT_EQ(Secret::from_environment()->to_text(), "sixteen bytes...");
}

TEST(Handshake, succeeds_with_one_secret_however_the_bytes_are_cut) {
    for (const std::size_t piece : {1, 7, 32, 1000}) {
        Handshake client(the_secret(), Role::connecting, "store");
        Handshake server(the_secret(), Role::accepting, "store");
        converse(client, server, piece);
        EXPECT_EQ(client.state(), Handshake::State::done);
        EXPECT_EQ(server.state(), Handshake::State::done);
    }
}

TEST(Handshake, fails_on_both_ends_with_another_secret_or_purpose) {
    const auto fails = [](const Secret& secret, std::string_view purpose) {
        Handshake client(secret, Role::connecting, purpose);
        Handshake server(the_secret(), Role::accepting, "store");
        converse(client, server, 1000);
        EXPECT_EQ(client.state(), Handshake::State::failed);
        EXPECT_EQ(server.state(), Handshake::State::failed);
        EXPECT_EQ(client.error(), "the peer does not know this job's secret");
    };
    fails(Secret::from_text("another"), "store");
    fails(the_secret(), "mesh");
}

TEST(Handshake, leaves_what_follows_it_to_the_caller) {
    Handshake client(the_secret(), Role::connecting, "store");
    Handshake server(the_secret(), Role::accepting, "store");
    server.consume(take_output(client));
    client.consume(take_output(server));
    Bytes proof = take_output(client);
    proof.resize(proof.size() + 100);
    EXPECT_EQ(server.consume(proof), proof.size() - 100);
    EXPECT_EQ(server.state(), Handshake::State::done);
    EXPECT_EQ(server.consume(proof), 0U);
    Bytes answer = take_output(server);
    answer.push_back(std::byte{42});
    EXPECT_EQ(client.consume(answer), answer.size() - 1);
    EXPECT_EQ(client.state(), Handshake::State::done);
}

TEST(Handshake, an_accepting_end_tells_a_stranger_nothing_that_depends_on_the_secret) {
    const auto said_to_stranger = [](const char* secret) {
        Handshake server(Secret::from_text(secret), Role::accepting, "store");
        Handshake stranger(Secret::from_text("a guess"), Role::connecting, "store");
        server.consume(take_output(stranger));
        Bytes said = take_output(server);
        EXPECT_EQ(said.size(), 40U);  // a magic, and a random number
        std::fill(said.begin() + 8, said.end(), std::byte{0});
        server.consume(Bytes(32, std::byte{7}));
        EXPECT_EQ(server.state(), Handshake::State::failed);
        const Bytes refusal = take_output(server);
        said.insert(said.end(), refusal.begin(), refusal.end());
        return said;
    };
    EXPECT_EQ(said_to_stranger("a secret"), said_to_stranger("another"));
}

TEST(Handshake, a_peer_of_another_version_hears_that) {
    Handshake server(the_secret(), Role::accepting, "store");
    Bytes old(40, std::byte{1});
    std::memcpy(old.data(), "TUTTIHS\x01", 8);
    server.consume(old);
    EXPECT_EQ(server.state(), Handshake::State::failed);
    const Bytes said = take_output(server);
    Handshake client(the_secret(), Role::connecting, "store");
    EXPECT_EQ(std::memcmp(said.data(), client.output().data(), 8), 0);
    EXPECT_EQ(said.size(), 8U);
}

TEST(Handshake, refuses_its_own_words_played_back) {
    // Reflection: the attacker answers a client with the words of another accepting end of ours to the client's nonce,
    // and an accepting end with its own proof.
    Handshake server(the_secret(), Role::accepting, "store");
    Handshake stranger(Secret::from_text("unknown"), Role::connecting, "store");
    server.consume(take_output(stranger));
    const Bytes answer = take_output(server);
    server.consume(std::span(answer).last(32));
    EXPECT_EQ(server.state(), Handshake::State::failed);

    Handshake client(the_secret(), Role::connecting, "store");
    client.consume(take_output(client));
    client.consume(take_output(client));
    EXPECT_EQ(client.state(), Handshake::State::failed);
}

TEST(Handshake, refuses_a_recorded_conversation) {
    Handshake client(the_secret(), Role::connecting, "store");
    Handshake server(the_secret(), Role::accepting, "store");
    const Bytes hello = take_output(client);
    server.consume(hello);
    client.consume(take_output(server));
    const Bytes proof = take_output(client);
    Handshake later(the_secret(), Role::accepting, "store");
    later.consume(hello);
    (void)take_output(later);
    later.consume(proof);
    EXPECT_EQ(later.state(), Handshake::State::failed);
}

TEST(Handshake, notices_a_stranger_at_its_first_wrong_byte) {
    Handshake server(the_secret(), Role::accepting, "store");
    const std::string_view request = "GET / HTTP/1.1\r\n";
    EXPECT_LT(server.consume(std::as_bytes(std::span(request.substr(0, 1)))), 2U);
    EXPECT_EQ(server.state(), Handshake::State::failed);
    EXPECT_TRUE(server.output().empty());
}

TEST(Handshake, no_flipped_bit_and_no_random_bytes_pass) {
    std::mt19937 random(4711);
    for (std::size_t bit = 0; bit < 72 * 8; bit += 5) {
        Handshake client(the_secret(), Role::connecting, "store");
        Handshake server(the_secret(), Role::accepting, "store");
        server.consume(take_output(client));
        auto pass_on = [&, at = std::size_t{0}](std::size_t bytes) mutable {
            Bytes answer = take_output(server);
            EXPECT_EQ(answer.size(), bytes);
            if (bit / 8 >= at && bit / 8 < at + bytes) answer[bit / 8 - at] ^= std::byte{1} << (bit % 8);
            at += bytes;
            client.consume(answer);
            server.consume(take_output(client));
        };
        pass_on(40);
        // A changed number fails the proof at the server, which then has no answer but the refusal.
        if (client.state() == Handshake::State::needs_more) pass_on(32);
        EXPECT_EQ(client.state(), Handshake::State::failed) << bit;
    }
    for (int i = 0; i < 2000; ++i) {
        Handshake server(the_secret(), Role::accepting, "store");
        Bytes noise(random() % 200);
        for (auto& b : noise) b = static_cast<std::byte>(random());
        if (i % 2 == 0 && noise.size() > 8) std::memcpy(noise.data(), "TUTTIHS\x02", 8);
        std::span<const std::byte> rest(noise);
        while (!rest.empty() && server.state() == Handshake::State::needs_more) {
            rest = rest.subspan(server.consume(rest));
            (void)take_output(server);
        }
        EXPECT_NE(server.state(), Handshake::State::done);
    }
}

struct Sockets {
    Sockets() {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
        client.reset(ends[0]);
        server.reset(ends[1]);
    }
    UniqueFd client;
    UniqueFd server;
};

TEST(Authenticate, works_on_sockets_and_reads_nothing_behind_the_handshake) {
    Sockets sockets;
    std::thread other([&] {
        authenticate(sockets.client.get(), the_secret(), Role::connecting, "store", soon(), nullptr);
        const std::byte next{7};
        net::send_all(sockets.client.get(), {&next, 1}, soon(), nullptr, "test");
    });
    authenticate(sockets.server.get(), the_secret(), Role::accepting, "store", soon(), nullptr);
    std::byte got{};
    net::recv_all(sockets.server.get(), {&got, 1}, soon(), nullptr, "test");
    other.join();
    EXPECT_EQ(got, std::byte{7});
}

TEST(Authenticate, a_wrong_secret_is_a_security_error_with_a_hint) {
    Sockets sockets;
    std::thread other([&] {
        EXPECT_THROW(authenticate(sockets.server.get(), the_secret(), Role::accepting, "store", soon(), nullptr),
                     DistNetworkError);
    });
    const std::string text = security_error([&] {
        authenticate(sockets.client.get(), Secret::from_text("wrong"), Role::connecting, "store", soon(), nullptr);
    });
    sockets.client.reset();
    other.join();
    EXPECT_NE(text.find("TUTTI_JOB_SECRET"), std::string::npos) << text;
    EXPECT_EQ(text.find("wrong"), std::string::npos) << text;
}

TEST(Authenticate, an_accepting_end_gives_a_silent_peer_up_after_the_handshakes_own_limit) {
    const Setting limit("TUTTI_HANDSHAKE_TIMEOUT_MS", "50");
    Sockets sockets;
    const Instant start = Clock::now();
    EXPECT_THROW(authenticate(sockets.server.get(), the_secret(), Role::accepting, "store", soon(), nullptr), Timeout);
    EXPECT_LT(Clock::now() - start, test::patience(2s));
}

std::uint16_t free_port(UniqueFd& keep) {
    keep = net::listen_tcp("127.0.0.1", 0);
    return net::local_address(keep.get()).port;
}

TEST(LocalSecret, is_served_later_where_the_process_has_no_descriptor_left) {
    UniqueFd keep;
    const std::uint16_t port = free_port(keep);
    LocalSecretServer server(port, Secret::generate());
    std::atomic<bool> fetched{false};
    std::thread client([&] { fetched = fetch_local_secret(port, Deadline::after(10s)).has_value(); });
    pollfd asked{server.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&asked, 1, 10'000), 1);
    {
        const test::NoDescriptorsLeft none(server.fd());
        EXPECT_NO_THROW(server.serve());
    }
    EXPECT_EQ(::poll(&asked, 1, 0), 1);
    server.serve();
    client.join();
    EXPECT_TRUE(fetched);
}

TEST(LocalSecret, reaches_processes_of_the_same_user_also_when_they_come_first) {
    UniqueFd keep;
    const std::uint16_t port = free_port(keep);
    std::optional<Secret> got;
    std::thread client([&] { got = fetch_local_secret(port, soon()); });
    std::this_thread::sleep_for(30ms);
    const Secret secret = Secret::generate();
    LocalSecretServer server(port, secret);
    while (true) {
        net::wait_for(server.fd(), 1, soon(), nullptr, "test");
        server.serve();
        break;
    }
    client.join();
    ASSERT_TRUE(got);
    EXPECT_TRUE(*got == secret);
    EXPECT_THROW(LocalSecretServer(port, secret), DistNetworkError);
}

// Any user that can connect may ask; only the first request is worth a line.
TEST(LocalSecret, another_user_who_asks_again_and_again_gets_one_line_in_the_log) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
    UniqueFd keep;
    const std::uint16_t port = free_port(keep);
    LocalSecretServer server(port, Secret::generate());
    ::testing::internal::CaptureStderr();
    const pid_t stranger = ::fork();
    if (stranger == 0) {
        if (::setresuid(12345, 12345, 12345) != 0) ::_exit(2);
        for (int i = 0; i < 50; ++i) {
            if (fetch_local_secret(port, Deadline::after(10s))) ::_exit(3);
        }
        ::_exit(0);
    }
    int status = -1;
    const auto is_asked = [&] {
        pollfd asked{server.fd(), POLLIN, 0};
        return ::poll(&asked, 1, 10) == 1;
    };
    // It may have gone before its first question is looked at.
    for (bool lives = true; lives || is_asked();) {
        lives = lives && ::waitpid(stranger, &status, WNOHANG) == 0;
        if (is_asked()) server.serve();
    }
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, 0);
    EXPECT_NE(text.find("user 12345 asked for the secret"), std::string::npos) << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST(LocalSecret, is_absent_when_nobody_serves_it) {
    UniqueFd keep;
    EXPECT_FALSE(fetch_local_secret(free_port(keep), Deadline::after(50ms)));
}

TEST(ResolveSecret, prefers_the_option_to_the_environment_to_the_local_secret) {
    const NoEnvironment none;
    const SecretRequest local{.host = "127.0.0.1", .port = 1, .is_master = true};
    {
        const Setting variable("TUTTI_JOB_SECRET", "from the environment");
        EXPECT_EQ(resolve_secret(local, soon()).secret.to_text(), "from the environment");
        SecretRequest request = local;
        request.explicit_secret = "from an option, too";
        const JobSecret found = resolve_secret(request, soon());
        EXPECT_EQ(found.secret.to_text(), "from an option, too");
        EXPECT_FALSE(found.serve_locally);
    }
    const JobSecret made = resolve_secret(local, soon());
    EXPECT_TRUE(made.serve_locally);
    EXPECT_FALSE(made.secret == resolve_secret(local, soon()).secret);
}

TEST(ResolveSecret, a_job_on_several_hosts_without_one_is_refused_unless_told_otherwise) {
    const NoEnvironment none;
    for (const char* host : {"10.1.2.3", "", "0.0.0.0"}) {
        const SecretRequest request{.host = host, .port = 1, .is_master = true};
        const std::string text = security_error([&] { (void)resolve_secret(request, soon()); });
        EXPECT_NE(text.find("set TUTTI_JOB_SECRET"), std::string::npos) << text;
        const Setting insecure("TUTTI_INSECURE", "1");
        EXPECT_FALSE(resolve_secret(request, soon()).serve_locally);
    }
}

TEST(ResolveSecret, a_client_whose_master_serves_no_secret_hears_what_to_do) {
    const NoEnvironment none;
    UniqueFd keep;
    const SecretRequest request{.host = "127.0.0.1", .port = free_port(keep), .is_master = false};
    const std::string text = security_error([&] { (void)resolve_secret(request, Deadline::after(50ms)); });
    EXPECT_NE(text.find("127.0.0.1:" + std::to_string(request.port)), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::security
