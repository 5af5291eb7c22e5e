#include "core/names.hpp"

#include "core/assert.hpp"
#include "core/thread.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti::net {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration fresh = 2s;              // an answer with addresses counts for so long
constexpr Clock::duration least_validity = 500ms;  // of one that a connection is to be made with
constexpr Clock::duration first_try = 50ms;        // between two questions for an unknown name: at first, and at most
constexpr Clock::duration last_try = 2s;
constexpr Clock::duration answer_time = 10s;  // the least that a question is waited for

Answer resolve(const std::string& host, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    Answer answer;
    if (error != 0) {
        answer.cause = error == EAI_SYSTEM ? std::system_category().message(errno) : ::gai_strerror(error);
        return answer;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    TUTTI_ASSERT(list != nullptr);
    if (list->ai_canonname != nullptr) answer.full_name = list->ai_canonname;
    for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
        if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
        SocketAddress& address = answer.addresses.emplace_back();
        std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
        address.size = at->ai_addrlen;
        TUTTI_ASSERT(address.size > 0);
    }
    return answer;
}

bool can_be_name(std::string_view host) {
    constexpr std::size_t name_max = 253, label_max = 63;
    if (host.ends_with('.')) host.remove_suffix(1);
    if (host.empty() || host.size() > name_max) return false;
    bool only_digits = true;
    std::size_t label = 0;
    for (const char c : host) {
        const auto byte = static_cast<unsigned char>(c);
        const bool digit = c >= '0' && c <= '9';
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || byte >= 0x80;
        if (!digit && !letter && c != '-' && c != '_' && c != '.') return false;
        only_digits = only_digits && (digit || c == '.');
        label = c == '.' ? 0 : label + 1;
        if (label > label_max) return false;
    }
    return !only_digits && !host.starts_with('.') && host.find("..") == std::string_view::npos;
}

struct Question {
    Instant asked = Clock::now();
    std::optional<Answer> answer;  // guarded by the table's mutex
    std::condition_variable answered;
};

struct Name {
    std::shared_ptr<Question> question;  // under way
    Answer last;
    Instant due{};  // of the next question
    int times_in_vain = 0;
};

struct Table {
    std::mutex mutex;
    std::map<std::string, Name> names;
};

// Threads that ask may outlive all else in the process. A child has none of them.
Table& table() {
    static Table& instance = *new Table;
    static const int once = ::pthread_atfork([] { instance.mutex.lock(); }, [] { instance.mutex.unlock(); },
                                             [] {
                                                 for (auto& [host, name] : instance.names) name.question.reset();
                                                 instance.mutex.unlock();
                                             });
    (void)once;
    return instance;
}

void note(const std::string& host, const std::shared_ptr<Question>& question, Answer answer) {
    const std::lock_guard lock(table().mutex);
    TUTTI_ASSERT(question != nullptr && !question->answer);
    const auto found = table().names.find(host);
    if (found != table().names.end() && found->second.question == question) {
        Name& name = found->second;
        name.question.reset();
        name.last = answer;
        name.times_in_vain = answer.is_known() ? 0 : name.times_in_vain + 1;
        TUTTI_ASSERT(name.times_in_vain >= 0);
        const Clock::duration back_off =
            std::min(last_try, first_try * (1 << std::clamp(name.times_in_vain - 1, 0, 10)));
        name.due = Clock::now() + (answer.is_known() ? fresh : back_off);
    }
    TUTTI_ASSERT(answer.is_known() || !answer.cause.empty());
    question->answer = std::move(answer);
    question->answered.notify_all();
}

// A process asks for few names; one that asks for many forgets those that nobody waits for.
void forget_old(std::map<std::string, Name>& names) {
    constexpr std::size_t many = 1000;
    if (names.size() < many) return;
    const Instant long_ago = Clock::now() - last_try;
    std::erase_if(names, [&](const auto& entry) { return !entry.second.question && entry.second.due < long_ago; });
}

// Begins a question where one is due. Null: the last answer counts.
std::shared_ptr<Question> question_for(const std::string& host, Clock::duration valid_for, Answer& last) {
    TUTTI_ASSERT(!host.empty() && valid_for.count() >= 0);
    std::unique_lock lock(table().mutex);
    forget_old(table().names);
    Name& name = table().names[host];
    last = name.last;
    if (name.question) return name.question;
    const Instant now = Clock::now();
    if ((last.is_known() ? now + valid_for : now) < name.due) return nullptr;
    const auto question = name.question = std::make_shared<Question>();
    lock.unlock();
    const auto body = [host, question] { note(host, question, resolve(host, AI_CANONNAME)); };
    try {
        thread::start({"tutti-names", "the question for a host's address"}, body).detach();
    } catch (const DistError&) {
        body();  // no thread is to be had: the caller waits for as long as the system does
    }
    return question;
}

struct Look {
    Answer answer;
    Clock::duration took{};
};

Look look(const std::string& host, const Deadline& deadline, const AbortFlag* abort, Clock::duration valid_for = {}) {
    Answer literal = resolve(host, AI_NUMERICHOST);
    if (literal.is_known()) return {std::move(literal)};
    if (!can_be_name(host)) {
        literal.cause = fmt::format("\"{}\" is neither an address nor the name of a host", host);
        literal.is_final = true;
        return {std::move(literal)};
    }
    const Instant start = Clock::now();
    Look look;
    const auto question = question_for(host, valid_for, look.answer);
    if (!question) return look;
    TUTTI_ASSERT(question->asked <= Clock::now());
    const Deadline end = Deadline::at(std::max(deadline.when(), question->asked + answer_time));
    std::unique_lock lock(table().mutex);
    while (!question->answer) {
        const Instant now = Clock::now();
        if (end.expired(now)) {
            look.answer = {};
            look.answer.cause = fmt::format("no name server has answered for {:.1f} s",
                                            std::chrono::duration<double>(now - question->asked).count());
            return look;
        }
        lock.unlock();
        check_wait(Deadline::never(), abort, "look-up of a name");
        lock.lock();
        if (!question->answer)
            question->answered.wait_for(lock, std::min<Clock::duration>(end.remaining(), wait_slice));
    }
    TUTTI_ASSERT(lock.owns_lock());
    return {*question->answer, Clock::now() - start};
}

Look await_look(const std::string& host, const Deadline& deadline, const AbortFlag* abort, Clock::duration valid_for) {
    while (true) {
        Look found = look(host, deadline, abort, valid_for);
        if (found.answer.is_known() || found.answer.is_final || deadline.expired()) return found;
        pause(first_try, deadline, abort);
    }
}

}  // namespace

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
    TUTTI_ASSERT(family() == AF_INET || family() == AF_INET6);
    SocketAddress copy = *this;
    if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(copy.storage).sin_port = htons(port);
    if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(copy.storage).sin6_port = htons(port);
    return copy;
}

bool can_be_host(const std::string& host) {
    return can_be_name(host) || numeric_address({.host = host});
}

std::optional<SocketAddress> numeric_address(const Address& address) {
    const Answer answer = resolve(address.host, AI_NUMERICHOST);
    if (!answer.is_known()) return std::nullopt;
    TUTTI_ASSERT(answer.addresses.front().size > 0);
    return answer.addresses.front().with_port(address.port);
}

Answer ask_for(const std::string& host, const AbortFlag* abort) {
    return look(host, Deadline::after(Clock::duration::zero()), abort).answer;
}

Answer await_name(const std::string& host, const Deadline& deadline, const AbortFlag* abort, Clock::duration* took) {
    Look found = await_look(host, deadline, abort, Clock::duration::zero());
    TUTTI_ASSERT(found.took.count() >= 0);
    TUTTI_ASSERT(found.answer.is_known() || found.answer.is_final || deadline.expired());
    if (took != nullptr) *took = found.took;
    return std::move(found.answer);
}

std::string why_unknown(const std::string& host) {
    const std::lock_guard lock(table().mutex);
    const auto found = table().names.find(host);
    if (found == table().names.end()) return {};
    const Name& name = found->second;
    if (!name.last.cause.empty()) return fmt::format("the name is not known: {}", name.last.cause);
    return name.question && !name.last.is_known() ? "no name server has answered yet" : "";
}

Deadline after_name(const std::string& host, const Deadline& deadline, const AbortFlag* abort) {
    const Clock::duration took = await_look(host, deadline, abort, least_validity).took;
    TUTTI_ASSERT(took.count() >= 0);
    return deadline.is_never() ? deadline : Deadline::at(deadline.when() + took);
}

}  // namespace tutti::net
