// The server of pages: its answers to each client, and the bounds on a client's cost.
#include "record/http.hpp"

#include "core/socket.hpp"
#include "core/unix_socket.hpp"
#include "support/patience.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

namespace tutti::record {
namespace {

using namespace std::chrono_literals;

const std::string known = "Authorization: Bearer opensesame\r\n";

// A port of this test alone. A socket stays bound to it without listening: so no other process gets it, neither to
// listen there nor to connect from there, and a server, which sets SO_REUSEADDR, can listen.
class OwnPort {
 public:
    OwnPort() {
        const int on = 1;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
            ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw std::runtime_error("no port is free");
    }
    std::uint16_t number() const { return net::local_address(socket_.get()).port; }

 private:
    UniqueFd socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

class Http : public testing::Test {
 protected:
    static UniqueFd connect() { return net::connect_tcp({"127.0.0.1", port}, Deadline::after(10s), nullptr); }
    static void say(const UniqueFd& fd, const std::string& text) {
        net::send_all(fd.get(), std::as_bytes(std::span(text)), Deadline::after(10s), nullptr, "test");
    }
    /// All that comes until the server closes.
    static std::string listen(const UniqueFd& fd) {
        std::string text;
        char buffer[4096];
        while (net::wait_for(fd.get(), POLLIN, Deadline::after(20s), nullptr, "test") != 0) {
            const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
            if (got <= 0) break;
            text.append(buffer, static_cast<std::size_t>(got));
        }
        return text;
    }
    static std::string ask(const std::string& line, const std::string& more) {
        const UniqueFd fd = connect();
        say(fd, line + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n");
        return listen(fd);
    }
    static std::string first_line(const std::string& text) { return text.substr(0, text.find("\r\n")); }

    static inline const OwnPort own_port;
    static inline const std::uint16_t port = own_port.number();
    static inline std::atomic<bool> blocked{false};
    HttpServer server{port, security::Secret::from_text("opensesame"),
                      [](const std::string& path, const AbortFlag& stop) -> std::optional<HttpPage> {
                          if (path == "/slow") {
                              blocked = true;
                              while (!stop.raised()) std::this_thread::sleep_for(1ms);
                          }
                          if (path == "/broken") throw std::runtime_error("out of order");
                          if (path != "/page" && path != "/slow") return std::nullopt;
                          return HttpPage{"text/plain", "hello"};
                      }};
};

TEST_F(Http, gives_a_page_to_who_knows_the_secret) {
    const std::string answer = ask("GET /page?x=1", known);
    EXPECT_EQ(first_line(answer), "HTTP/1.1 200 OK");
    EXPECT_TRUE(answer.ends_with("\r\n\r\nhello")) << answer;
    EXPECT_NE(answer.find("Content-Length: 5\r\n"), std::string::npos);
    EXPECT_EQ(first_line(ask("GET /page", "authorization:   bearer opensesame  \r\n")), "HTTP/1.1 200 OK");
}

TEST_F(Http, answers_HEAD_without_the_page) {
    const std::string answer = ask("HEAD /page", known);
    EXPECT_EQ(first_line(answer), "HTTP/1.1 200 OK");
    EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(Http, tells_nothing_without_the_secret) {
    for (const std::string wrong : {"", "Authorization: Bearer opensesam\r\n", "Authorization: Bearer opensesame2\r\n",
                                    "Authorization: Bearer \r\n", "Authorization: Basic opensesame\r\n",
                                    "X-Authorization: Bearer opensesame\r\n"}) {
        const std::string answer = ask("GET /page", wrong);
        EXPECT_EQ(first_line(answer), "HTTP/1.1 401 Unauthorized") << wrong;
        EXPECT_NE(answer.find("WWW-Authenticate: Bearer"), std::string::npos);
    }
    for (const char* line : {"GET /none", "POST /page"})
        EXPECT_EQ(first_line(ask(line, "")), "HTTP/1.1 401 Unauthorized");
    EXPECT_EQ(first_line(ask("GET /page?secret=opensesame", "")), "HTTP/1.1 401 Unauthorized");
}

TEST_F(Http, says_what_it_cannot_do) {
    EXPECT_EQ(first_line(ask("GET /none", known)), "HTTP/1.1 404 Not Found");
    const std::string answer = ask("POST /page", known);
    EXPECT_EQ(first_line(answer), "HTTP/1.1 405 Method Not Allowed");
    EXPECT_NE(answer.find("Allow: GET, HEAD\r\n"), std::string::npos);
    EXPECT_EQ(first_line(ask("GET /broken", known)), "HTTP/1.1 500 Internal Server Error");
    const UniqueFd fd = connect();
    say(fd, "hello\r\n\r\n");
    EXPECT_EQ(first_line(listen(fd)), "HTTP/1.1 400 Bad Request");
}

TEST_F(Http, refuses_a_request_that_has_no_end) {
    const UniqueFd fd = connect();
    say(fd, "GET /page HTTP/1.1\r\nX: " + std::string(9000, 'x'));
    EXPECT_EQ(first_line(listen(fd)), "HTTP/1.1 431 Request Header Fields Too Large");
}

TEST_F(Http, serves_others_while_some_say_nothing_or_wait_for_a_page) {
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 8; ++i) silent.push_back(connect());
    const UniqueFd slow = connect();
    blocked = false;
    say(slow, "GET /slow HTTP/1.1\r\n" + known + "\r\n");
    while (!blocked) std::this_thread::sleep_for(1ms);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(first_line(ask("GET /page", known)), "HTTP/1.1 200 OK");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(5s));
}

TEST_F(Http, takes_more_clients_than_it_serves_at_once_one_after_the_other) {
    std::atomic<int> well{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 40; ++i)
        clients.emplace_back([&] { well += first_line(ask("GET /page", known)) == "HTTP/1.1 200 OK" ? 1 : 0; });
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(well, 40);
}

TEST_F(Http, is_asked_by_other_processes_on_several_ports_at_once) {
    const AbortFlag stop;
    const auto secret = security::Secret::from_text("opensesame");
    const OwnPort nobodys, deaf_ones;
    const std::uint16_t nobody = nobodys.number(), deaf_port = deaf_ones.number();
    // It accepts by the kernel's queue, and never answers.
    const UniqueFd deaf = net::listen_unix("tutti-pages-" + std::to_string(deaf_port));
    const auto begin = std::chrono::steady_clock::now();
    const auto answers = http_get({port, nobody, deaf_port}, "/page", secret, Deadline::after(1s), stop);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(5s));
    ASSERT_EQ(answers.size(), 3U);
    EXPECT_EQ(answers[0].body, "hello");
    EXPECT_FALSE(answers[1].body);
    EXPECT_TRUE(answers[1].refused);
    EXPECT_FALSE(answers[2].body);
    EXPECT_FALSE(answers[2].refused);
    EXPECT_FALSE(http_get({port}, "/none", secret, Deadline::after(5s), stop).at(0).body);
    EXPECT_FALSE(http_get({port}, "/page", security::Secret::from_text("other"), Deadline::after(5s), stop).at(0).body);
}

TEST_F(Http, a_newcomer_takes_the_place_of_those_that_say_nothing) {
    std::vector<UniqueFd> silent;
    for (std::size_t i = 0; i < 3 * HttpServer::connections_max; ++i) {
        silent.push_back(connect());
        if (i % 2 == 0) say(silent.back(), "GET /page HTTP/1.1\r\n");
    }
    const auto begin = std::chrono::steady_clock::now();
    // Each takes the place of one at most, the oldest: so the youngest keeps its own.
    for (std::size_t i = 0; i < HttpServer::connections_max / 2; ++i)
        EXPECT_EQ(first_line(ask("GET /page", known)), "HTTP/1.1 200 OK");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(5s)) << "the silent ones' own time is longer";
    EXPECT_EQ(listen(silent.front()), "");
    say(silent.back(), "GET /page HTTP/1.1\r\n" + known + "\r\n");
    EXPECT_EQ(first_line(listen(silent.back())), "HTTP/1.1 200 OK");  // the youngest may still ask
}

// The process that listens at a rank's port, or in place of its server, may be another user's: nobody sends it a token.
TEST(HttpGet, tells_the_token_to_no_port_and_no_process_of_another_user) {
    const AbortFlag stop;
    const auto token = security::Secret::from_text("opensesame");
    const UniqueFd thief = net::listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = net::local_address(thief.get()).port;
    const auto nobody = http_get({port}, "/trace", token, Deadline::after(1s), stop).at(0);
    EXPECT_TRUE(nobody.refused);
    EXPECT_FALSE(net::try_accept(thief.get()));

    if (::geteuid() != 0) GTEST_SKIP() << "needs root for a process of another user";
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setuid(12345) != 0) ::_exit(1);
        const UniqueFd squatter = net::listen_unix("tutti-pages-" + std::to_string(port));
        (void)!::write(ready[1], "x", 1);
        const UniqueFd asker = net::accept_one(squatter.get(), Deadline::after(10s), nullptr, "test");
        char byte = 0;
        ::_exit(::recv(asker.get(), &byte, 1, MSG_WAITALL) > 0 ? 2 : 0);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    const auto foreign = http_get({port}, "/trace", token, Deadline::after(5s), stop).at(0);
    EXPECT_EQ(foreign.foreign_user, 12345U);
    EXPECT_FALSE(foreign.body);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST(HttpGet, takes_no_more_of_an_answer_than_a_page_may_have) {
    const AbortFlag stop;
    const OwnPort own_port;
    const std::uint16_t port = own_port.number();
    const UniqueFd listener = net::listen_unix("tutti-pages-" + std::to_string(port));
    std::thread endless([&] {
        const UniqueFd asker = net::accept_one(listener.get(), Deadline::after(10s), nullptr, "test");
        const std::string text(std::size_t{1} << 16, 'x');
        pollfd entry{asker.get(), POLLOUT, 0};
        while (::poll(&entry, 1, 10'000) > 0 && ::send(asker.get(), text.data(), text.size(), MSG_NOSIGNAL) > 0) {
        }
    });
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(http_get({port}, "/trace", security::Secret::from_text("x"), Deadline::after(60s), stop).at(0).body);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(20s));
    endless.join();
}

TEST(HttpServer, ends_at_once_with_pages_under_way) {
    const auto begin = std::chrono::steady_clock::now();
    const OwnPort own_port;
    const std::uint16_t port = own_port.number();
    UniqueFd fd;
    std::atomic<bool> inside{false};
    {
        const HttpServer server(port, security::Secret::from_text("opensesame"),
                                [&](const std::string&, const AbortFlag& stop) -> std::optional<HttpPage> {
                                    inside = true;
                                    while (!stop.raised()) std::this_thread::sleep_for(1ms);
                                    return std::nullopt;
                                });
        fd = net::connect_tcp({"127.0.0.1", port}, Deadline::after(10s), nullptr);
        const std::string text = "GET / HTTP/1.1\r\n" + known + "\r\n";
        net::send_all(fd.get(), std::as_bytes(std::span(text)), Deadline::after(10s), nullptr, "test");
        while (!inside) std::this_thread::sleep_for(1ms);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, test::patience(8s));
}

}  // namespace
}  // namespace tutti::record
