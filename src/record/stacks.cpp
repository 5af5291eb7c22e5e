#include "record/stacks.hpp"

#include "core/assert.hpp"
#include "core/deadline.hpp"
#include "core/text.hpp"
#include "record/call_site.hpp"
#include "record/source_lines.hpp"

#include <execinfo.h>
#include <fmt/format.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::record {
namespace {

using std::chrono::milliseconds;

constexpr int frames_max = 64;
constexpr std::size_t threads_max = 64;
constexpr milliseconds patience_of_thread{200};
constexpr int frames_of_signal = 2;  // the handler, and the frame by which it returns

int own_thread() noexcept {
    return static_cast<int>(::syscall(SYS_gettid));
}

// The question to one thread; in static memory, since its signal may come late.
struct Question {
    enum class State : int { none, asked, running, answered };
    std::atomic<State> state{State::none};
    std::atomic<int> thread{0};
    std::array<void*, frames_max + frames_of_signal> frames{};
    int count = 0;
    sem_t answered{};
};
Question& question() noexcept {
    static Question& instance = *new Question;
    return instance;
}

void answer(int) {
    const int saved = errno;
    Question& q = question();
    auto asked = Question::State::asked;
    if (q.thread.load() == own_thread() && q.state.compare_exchange_strong(asked, Question::State::running)) {
        q.count = ::backtrace(q.frames.data(), static_cast<int>(q.frames.size()));
        q.state = Question::State::answered;
        ::sem_post(&q.answered);
    }
    errno = saved;
}

// The highest signal of real time that nobody handles or ignores; 0: there is none.
int take_signal() {
    for (int signal = SIGRTMAX; signal >= SIGRTMIN; --signal) {
        struct sigaction action {};
        if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
        action.sa_handler = answer;
        action.sa_flags = SA_RESTART | SA_ONSTACK;
        ::sigemptyset(&action.sa_mask);
        if (::sigaction(signal, &action, nullptr) == 0) return signal;
    }
    return 0;
}

/// What the kernel tells of a thread of this process.
struct Thread {
    int id = 0;
    std::string name;
    std::uint64_t blocked = 0;  ///< signals, by bit
    std::string state;          ///< "S (sleeping)"
};

Thread thread_of(int id) {
    Thread thread{.id = id};
    std::ifstream status(fmt::format("/proc/self/task/{}/status", id));
    for (std::string line; std::getline(status, line);) {
        const auto value = [&line](std::string_view name) -> std::string {
            return line.starts_with(name) ? line.substr(std::min(line.size(), name.size() + 1)) : std::string();
        };
        if (const std::string name = value("Name:"); !name.empty()) thread.name = name;
        if (const std::string state = value("State:"); !state.empty()) thread.state = state;
        if (const std::string blocked = value("SigBlk:"); !blocked.empty())
            thread.blocked = number_in<std::uint64_t>(blocked, 16).value_or(0);
    }
    return thread;
}

std::vector<Thread> all_threads() {
    std::vector<Thread> threads;
    std::error_code error;
    for (const auto& folder : std::filesystem::directory_iterator("/proc/self/task", error)) {
        const int id = number_in<int>(folder.path().filename().string(), 10).value_or(0);
        if (id != 0) threads.push_back(thread_of(id));
    }
    std::ranges::sort(threads, {}, &Thread::id);  // the main thread first
    return threads;
}

bool wait_for(sem_t& semaphore, milliseconds time) {
    TUTTI_ASSERT(time.count() >= 0);
    timespec until{};
    ::clock_gettime(CLOCK_REALTIME, &until);
    const std::int64_t ns = until.tv_nsec + std::chrono::nanoseconds(time).count();
    until.tv_sec += ns / 1'000'000'000;
    until.tv_nsec = ns % 1'000'000'000;
    int result = -1;
    do result = ::sem_timedwait(&semaphore, &until);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

// The semaphore alone does not tell: it may be raised late, for the answer to an earlier question.
bool wait_for_answer(Question& q, milliseconds patience) {
    const Deadline deadline = Deadline::after(patience);
    while (q.state != Question::State::answered) {
        if (!wait_for(q.answered, deadline.timeout())) return q.state == Question::State::answered;
    }
    return true;
}

// The stack of one thread, from the innermost frame out; empty: it gives no answer.
std::span<void* const> stack_of(int thread, int signal, milliseconds patience) {
    Question& q = question();
    TUTTI_ASSERT(thread > 0 && signal >= SIGRTMIN && signal <= SIGRTMAX);
    if (q.state == Question::State::running) return {};  // a thread that was asked before is still at it
    while (::sem_trywait(&q.answered) == 0) {
    }
    q.thread = thread;
    q.state = Question::State::asked;
    if (::syscall(SYS_tgkill, ::getpid(), thread, signal) != 0) return {};
    if (!wait_for_answer(q, patience)) {
        auto asked = Question::State::asked;
        if (q.state.compare_exchange_strong(asked, Question::State::none)) return {};
        if (!wait_for_answer(q, patience)) return {};  // the walk through the stack takes long
    }
    const auto count = static_cast<std::size_t>(std::max(q.count, 0));
    TUTTI_ASSERT(count <= q.frames.size());
    return std::span(q.frames).first(count).subspan(std::min<std::size_t>(count, frames_of_signal));
}

// The innermost address is of an instruction, the others are return addresses.
std::string in_words(std::span<void* const> stack, SourceLines& lines) {
    std::string text;
    for (std::size_t i = 0; i < stack.size(); ++i) {
        std::string place = i == 0 ? lines.at(stack[i]) : lines.of(stack[i]);
        if (place.empty()) place = describe_call_site(stack[i]);
        text += fmt::format("    #{} {}\n", i, place);
    }
    return text;
}

class Stacks {
 public:
    static Stacks& instance() {
        static Stacks& stacks = *new Stacks;  // pages may outlive static objects
        return stacks;
    }
    void set_source(std::function<std::string(milliseconds)> source) {
        const std::lock_guard lock(mutex_);
        source_ = std::move(source);
    }
    std::string text(milliseconds patience) {
        const std::lock_guard lock(mutex_);
        const Deadline deadline = Deadline::after(patience);
        std::string text = source_ ? source_(patience / 2) : std::string();
        if (signal_ == 0 && !prepare()) return text + "  the program handles all signals of real time: no stacks\n";
        std::size_t left_out = 0, asked = 0;
        SourceLines lines(patience / 2);
        const std::vector<Thread> threads = all_threads();
        std::erase_if(asked_before_, [&](int id) { return !std::ranges::binary_search(threads, id, {}, &Thread::id); });
        for (const Thread& thread : threads) {
            if (thread.id == own_thread() || thread.name.starts_with("tutti-")) continue;
            if (++asked > threads_max || deadline.expired()) {
                ++left_out;
                continue;
            }
            text += fmt::format("  thread {} ({}), {}\n", thread.id, thread.name, thread.state);
            if (blocks_signal(thread)) {
                text += "    it blocks signals: no stack\n";
                continue;
            }
            asked_before_.insert(thread.id);
            const auto stack = stack_of(thread.id, signal_, patience_of_thread);
            text += stack.empty() ? "    no answer: it is in the kernel, or has ended\n" : in_words(stack, lines);
        }
        if (left_out > 0) text += fmt::format("  and {} more threads\n", left_out);
        return text;
    }

 private:
    // The first walk through a stack loads a library, which no handler may do.
    bool prepare() {
        TUTTI_ASSERT(signal_ == 0);
        std::array<void*, 4> frames{};
        (void)::backtrace(frames.data(), static_cast<int>(frames.size()));
        ::sem_init(&question().answered, 0, 0);
        signal_ = take_signal();
        return signal_ != 0;
    }

    // A thread that was asked before may not be out of the handler yet, in which it blocks the signal; else it does so
    // by itself.
    bool blocks_signal(Thread thread) {
        TUTTI_ASSERT(signal_ >= 1 && signal_ <= 64);
        const auto does = [this](const Thread& one) { return (one.blocked >> (signal_ - 1) & 1) != 0; };
        if (!does(thread)) return false;
        if (asked_before_.erase(thread.id) == 0) return true;
        const Deadline deadline = Deadline::after(patience_of_thread);
        while (does(thread) && !deadline.expired()) {
            std::this_thread::sleep_for(milliseconds(1));
            thread = thread_of(thread.id);
        }
        return does(thread);
    }

    std::mutex mutex_;
    int signal_ = 0;
    std::set<int> asked_before_;  // threads that live
    std::function<std::string(milliseconds)> source_;
};

}  // namespace

std::string stacks_of_threads(milliseconds patience) {
    return Stacks::instance().text(patience);
}
void set_stack_source(std::function<std::string(milliseconds patience)> source) {
    Stacks::instance().set_source(std::move(source));
}

}  // namespace tutti::record
