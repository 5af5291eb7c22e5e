#include "store_line.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

namespace tutti::torch {
namespace {

constexpr int reach_patience_ms = 1000;
constexpr int last_look_up = 4;
constexpr std::chrono::milliseconds first_pause{100};

const c10d::TCPStore* find_tcp(c10::intrusive_ptr<c10d::Store> store) {
    while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) store = prefixed->getUnderlyingStore();
    return dynamic_cast<const c10d::TCPStore*>(store.get());
}

// Calls `use(socket, address, length)` for each address of a host, until it returns true. The program's store has
// resolved the host's name before, so a resolver that does not know it now is asked again, for a second and a half.
// Nothing: in vain.
template <class Use>
std::optional<bool> for_addresses(const std::string& host, int port, int type, Use use) {
    addrinfo hints{};
    hints.ai_socktype = type;
    addrinfo* found = nullptr;
    for (int turn = 0; ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0; ++turn) {
        if (turn == last_look_up) return std::nullopt;
        std::this_thread::sleep_for(first_pause * (1 << turn));
    }
    bool done = false;
    for (const addrinfo* one = found; one && !done; one = one->ai_next) {
        const int fd = ::socket(one->ai_family, type | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        done = use(fd, one->ai_addr, one->ai_addrlen);
        ::close(fd);
    }
    ::freeaddrinfo(found);
    return done;
}

// -1: nobody listens there. Nothing: as for_addresses().
std::optional<int> connect_to(const std::string& host, int port) {
    int connected = -1;
    const auto done = for_addresses(host, port, SOCK_STREAM, [&](int fd, const sockaddr* address, socklen_t length) {
        (void)!::fcntl(fd, F_SETFL, O_NONBLOCK);
        pollfd entry{fd, POLLOUT, 0};
        int error = 0;
        socklen_t size = sizeof error;
        const bool there = ::connect(fd, address, length) == 0 ||
                           (errno == EINPROGRESS && ::poll(&entry, 1, reach_patience_ms) > 0 &&
                            ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0);
        if (there) connected = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
        return there;
    });
    return done ? std::optional(connected) : std::nullopt;
}

}  // namespace

// Connecting a datagram socket sends nothing.
std::string address_towards(const std::string& host, int port) {
    std::string result;
    for_addresses(host, port, SOCK_DGRAM, [&](int fd, const sockaddr* address, socklen_t address_length) {
        sockaddr_storage own{};
        socklen_t length = sizeof own;
        char text[NI_MAXHOST] = {};
        if (::connect(fd, address, address_length) != 0 ||
            ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
            ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
                0)
            return false;
        result = text;
        return true;
    });
    return result;
}

StoreLine::StoreLine(c10::intrusive_ptr<c10d::Store> program)
    : program_(std::move(program)), tcp_(find_tcp(program_)) {}

StoreLine::~StoreLine() {
    if (silent_ >= 0) ::close(silent_);
}

Milliseconds StoreLine::begin(const char* operation, Milliseconds patience) {
    if (!has_connection_) patience = std::max(patience, first_patience);
    const auto end = std::chrono::steady_clock::now() + patience;
    std::unique_lock lock(turn_mutex_);
    if (!free_.wait_until(lock, end, [this] { return !busy_; })) no_answer(operation);
    busy_ = true;
    return std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
}

void StoreLine::end() {
    const std::lock_guard lock(turn_mutex_);
    busy_ = false;
    free_.notify_one();
}

void StoreLine::on_thread(std::function<void()> request) {
    try {
        std::thread(std::move(request)).detach();
    } catch (const std::system_error& error) {
        end();
        throw DistStoreError(std::string("no thread to ask ") + server() + ": " + error.what());
    }
}

void StoreLine::no_answer(const char* operation) const {
    throw DistStoreError(std::string("Store.") + operation + ": no answer in time from " + server(),
                         {.operation = operation}, ErrorCode::timeout);
}

c10::intrusive_ptr<c10d::Store> StoreLine::connection() {
    if (is_of_program_) return program_;
    const std::lock_guard lock(mutex_);
    // PyTorch's client would try to connect again and again, and logs its own stack when a connection ends.
    if (tcp_ && !has_server()) throw DistStoreError(server() + " is gone");
    if (own_) return own_;
    try {
        own_ = program_->clone();
    } catch (const std::exception&) {
        if (tcp_) throw;
        own_ = program_;  // a store of the program's own without clone()
    }
    has_connection_ = true;
    return own_;
}

// The server sends nothing on a connection without requests; when the server ends, the connection ends. One connection
// serves all checks: for each one that it accepts the server looks up a name, and serves nobody meanwhile.
bool StoreLine::has_server() {
    if (silent_ < 0) {
        const auto connected = connect_to(tcp_->getHost(), tcp_->getPort());
        if (!connected) return true;  // PyTorch's client, which asks for the name as well, has patience
        silent_ = *connected;
    }
    pollfd entry{silent_, POLLIN | POLLRDHUP, 0};
    return silent_ >= 0 && ::poll(&entry, 1, 0) == 0;
}

std::string StoreLine::server() const {
    return tcp_ ? "TCPStore(" + tcp_->getHost() + ":" + std::to_string(tcp_->getPort()) + ")" : "the store";
}

}  // namespace tutti::torch
