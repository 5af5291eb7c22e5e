#include "core/thread.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <system_error>
#include <utility>

namespace tutti::thread {
namespace {

constexpr int plenty = -1;
std::atomic<int> left_for_tests{plenty};

void run(const Options& options, const std::function<void()>& body) noexcept {
    ::pthread_setname_np(::pthread_self(), options.name);
    std::exception_ptr error;
    try {
        return body();
    } catch (const std::exception& failure) {
        TUTTI_ERROR("the thread for {} has failed: {}", options.purpose, failure.what());
        error = std::current_exception();
    } catch (...) {
        TUTTI_ERROR("the thread for {} has failed", options.purpose);
        error = std::current_exception();
    }
    if (options.escaped) options.escaped(error);
}

// While it lives, new threads start with all signals blocked.
class SignalsBlocked {
 public:
    SignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
    sigset_t before_{};
};

std::string limit() {
    rlimit processes{};
    if (::getrlimit(RLIMIT_NPROC, &processes) != 0 || processes.rlim_cur == RLIM_INFINITY) return "unlimited";
    return std::to_string(processes.rlim_cur);
}

}  // namespace

std::thread start(Options options, std::function<void()> body) {
    TUTTI_ASSERT(options.name != nullptr && std::string_view(options.name).size() <= 15);
    TUTTI_ASSERT(!options.purpose.empty() && body != nullptr);
    const std::string purpose = options.purpose;
    try {
        if (left_for_tests != plenty && left_for_tests-- <= 0) {
            left_for_tests = 0;
            throw std::system_error(EAGAIN, std::generic_category());
        }
        const SignalsBlocked blocked;
        return std::thread([options = std::move(options), body = std::move(body), environment = env::snapshot()] {
            const env::Reading reading(environment);
            run(options, body);
        });
    } catch (const std::system_error& error) {
        throw DistBackendError(
            fmt::format("no thread to be had for {} ({}): this user may have {} processes and threads (ulimit -u), and "
                        "a container may have a limit of its own (pids.max)",
                        purpose, error.code().message(), limit()));
    }
}

Scarcity::Scarcity(int started) {
    TUTTI_ASSERT(started >= 0);
    left_for_tests = started;
}
Scarcity::~Scarcity() {
    left_for_tests = plenty;
}

}  // namespace tutti::thread
