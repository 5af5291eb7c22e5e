// Redis as a contender: its own server, without persistence; our client speaks RESP over a plain blocking socket, one
// command at a time. A wait is BLPOP, a wake RPUSH. Threads: one.
#include "processes.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <thread>

namespace tutti::bench {
namespace {

using namespace std::chrono_literals;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

class RedisClient : public Client {
 public:
    explicit RedisClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_in address = loopback(port);
        const int on = 1;
        ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            ::close(fd_);
            throw std::runtime_error("cannot connect to redis");
        }
    }
    ~RedisClient() override { ::close(fd_); }
    RedisClient(const RedisClient&) = delete;
    RedisClient& operator=(const RedisClient&) = delete;

    void set(std::string_view key, std::string_view value) override {
        send({"SET", key, value});
        expect(line() == "+OK");
    }
    std::string_view get(std::string_view key) override {
        send({"GET", key});
        return bulk();
    }
    std::int64_t add(std::string_view key, std::int64_t amount) override {
        std::array<char, 24> text;
        const auto end = std::to_chars(text.data(), text.data() + text.size(), amount).ptr;
        send({"INCRBY", key, {text.data(), static_cast<std::size_t>(end - text.data())}});
        return number(':');
    }
    void wait(std::string_view key) override {
        send({"BLPOP", key, "0"});
        expect(number('*') == 2);
        (void)bulk();
        (void)bulk();
    }
    void wake(std::string_view key) override {
        send({"RPUSH", key, "1"});
        (void)number(':');
    }
    /// redis_version of INFO.
    std::string version() {
        send({"INFO", "server"});
        const std::string_view text = bulk();
        const auto at = text.find("redis_version:");
        return std::string(text.substr(at + 14, text.find('\r', at) - at - 14));
    }

 private:
    static void expect(bool good) {
        if (!good) throw std::runtime_error("redis: not the answer that was expected");
    }

    void send(std::initializer_list<std::string_view> words) {
        char* to = output_.data();
        const auto put = [&](std::string_view text) { to = std::copy(text.begin(), text.end(), to); };
        const auto put_count = [&](char kind, std::size_t count) {
            *to++ = kind;
            to = std::to_chars(to, to + 20, count).ptr;
            put("\r\n");
        };
        put_count('*', words.size());
        for (const auto word : words) {
            put_count('$', word.size());
            put(word);
            put("\r\n");
        }
        const auto size = to - output_.data();
        if (::send(fd_, output_.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL) != size) {
            throw std::runtime_error("redis: cannot send");
        }
        begin_ = end_ = 0;  // the last answer has been read
    }
    void more() {
        const ssize_t got = ::recv(fd_, input_.data() + end_, input_.size() - end_, 0);
        if (got <= 0) throw std::runtime_error("redis: the server is gone");
        end_ += static_cast<std::size_t>(got);
    }
    std::string_view line() {
        while (true) {
            const std::string_view text(input_.data() + begin_, end_ - begin_);
            if (const auto at = text.find("\r\n"); at != std::string_view::npos) {
                begin_ += at + 2;
                return text.substr(0, at);
            }
            more();
        }
    }
    std::int64_t number(char kind) {
        const std::string_view text = line();
        std::int64_t value = 0;
        expect(!text.empty() && text.front() == kind);
        expect(std::from_chars(text.data() + 1, text.data() + text.size(), value).ec == std::errc());
        return value;
    }
    std::string_view bulk() {
        const auto size = static_cast<std::size_t>(number('$'));
        while (end_ - begin_ < size + 2) more();
        const std::string_view text(input_.data() + begin_, size);
        begin_ += size + 2;
        return text;
    }

    int fd_;
    std::array<char, 1024> output_;
    std::array<char, 16384> input_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

class Redis : public Contender {
 public:
    explicit Redis(const std::string& program) : port_(free_port()) {
        const std::string port = std::to_string(port_);
        server_ = Process([&] {
            const int nowhere = ::open("/dev/null", O_RDWR);
            ::dup2(nowhere, STDOUT_FILENO);
            ::dup2(nowhere, STDERR_FILENO);
            ::execlp(program.c_str(), program.c_str(), "--port", port.c_str(), "--bind", "127.0.0.1", "--save", "",
                     "--appendonly", "no", "--dir", "/", static_cast<char*>(nullptr));
        });
        const auto patience = std::chrono::steady_clock::now() + 5s;
        while (true) {
            try {
                version_ = RedisClient(port_).version();
                return;
            } catch (const std::runtime_error&) {
                if (std::chrono::steady_clock::now() > patience) throw;
            }
            std::this_thread::sleep_for(20ms);
        }
    }
    std::string name() const override { return "redis " + version_; }
    Figures run(const Task& task) override {
        return run_clients(task, [this] { return std::make_unique<RedisClient>(port_); });
    }

 private:
    std::uint16_t port_;
    Process server_;
    std::string version_;
};

}  // namespace

std::unique_ptr<Contender> make_redis(const std::string& server_program, std::string& why) {
    const std::string question = "command -v '" + server_program + "' > /dev/null 2>&1";
    if (std::system(question.c_str()) != 0) {
        why = "redis is left out: there is no program " + server_program + " (Debian's package redis-server has it)";
        return nullptr;
    }
    return std::make_unique<Redis>(server_program);
}

}  // namespace tutti::bench
