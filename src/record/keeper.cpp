#include "record/keeper.hpp"

#include "core/env.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"
#include "core/unique_fd.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <thread>

namespace tutti::record {
namespace {

constexpr int metrics_period_ms = 1000;

std::atomic<int> request_fd{-1};  // for the signal's handler

void on_request(int) {
    const int saved = errno;
    (void)!::eventfd_write(request_fd.load(std::memory_order_relaxed), 1);
    errno = saved;
}

class Keeper {
 public:
    static Keeper& instance() {
        static Keeper* const keeper = new Keeper;  // groups may outlive static objects
        return *keeper;
    }

    void add(Recorder& recorder) {
        const std::lock_guard lifecycle(lifecycle_);
        if (process_ != ::getpid()) adopt_process();
        {
            const std::lock_guard lock(mutex_);
            recorders_.push_back(&recorder);
        }
        if (!thread_.joinable()) start();
    }
    void remove(Recorder& recorder) noexcept {
        const std::lock_guard lifecycle(lifecycle_);
        const bool served = process_ == ::getpid() && thread_.joinable();
        if (served && metrics_) write_metrics(*metrics_);  // the last figures of a group, and all of a short one
        {
            const std::lock_guard lock(mutex_);
            std::erase(recorders_, &recorder);
            if (!recorders_.empty()) return;
        }
        if (served) stop();
    }
    template <class F>
    void for_each(F f) const {
        const std::lock_guard lock(mutex_);
        for (const Recorder* recorder : recorders_) f(*recorder);
    }

 private:
    Keeper() = default;

    // A forked child has neither its parent's thread nor a part in its groups.
    void adopt_process() {
        process_ = ::getpid();
        if (thread_.joinable()) thread_.detach();
        const std::lock_guard lock(mutex_);
        recorders_.clear();
        wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        request_fd.store(wake_.get());
    }
    void start() {
        const auto directory = trace_directory();
        metrics_ = env::get("TUTTI_METRICS_FILE");
        if (!directory && !metrics_) return;
        stop_requested_ = false;
        try {
            thread_ = thread::start({"tutti-record", "TUTTI_TRACE_DIR and TUTTI_METRICS_FILE"},
                                    [this, fd = wake_.get(), metrics = metrics_] { serve(fd, metrics); });
        } catch (const DistBackendError& error) {
            return TUTTI_WARN("{}; SIGUSR2 writes no dumps, and there are no metrics", error.what());
        }
        if (directory) take_signal();
    }
    void stop() noexcept {
        if (handles_signal_) ::sigaction(SIGUSR2, &previous_, nullptr);
        handles_signal_ = false;
        stop_requested_ = true;
        (void)!::eventfd_write(wake_.get(), 1);
        thread_.join();
    }
    void take_signal() {
        struct sigaction action {};
        if (::sigaction(SIGUSR2, nullptr, &previous_) != 0 || previous_.sa_handler != SIG_DFL) return;
        action.sa_handler = on_request;
        sigemptyset(&action.sa_mask);
        action.sa_flags = SA_RESTART;
        handles_signal_ = ::sigaction(SIGUSR2, &action, nullptr) == 0;
    }
    void serve(int fd, const std::optional<std::string>& metrics) {
        for (;;) {
            pollfd entry{fd, POLLIN, 0};
            ::poll(&entry, 1, metrics ? metrics_period_ms : -1);
            eventfd_t requests = 0;
            const bool requested = ::eventfd_read(fd, &requests) == 0;
            if (stop_requested_) return;
            if (metrics) write_metrics(*metrics);
            if (requested) dump_on_request();
        }
    }
    static void dump_on_request() noexcept {
        try {
            if (const auto directory = trace_directory()) dump_all(*directory, "asked for by SIGUSR2");
        } catch (const std::exception& error) {
            TUTTI_WARN("no dumps: {}", error.what());
        }
    }
    static void write_metrics(const std::string& path) noexcept {
        try {
            write_file(path, prometheus_text());
        } catch (const std::exception& error) {
            TUTTI_WARN("no metrics: {}", error.what());
        }
    }

    std::mutex lifecycle_;  // taken first: everything but recorders_
    mutable std::mutex mutex_;
    std::vector<Recorder*> recorders_;
    int process_ = -1;
    UniqueFd wake_;
    std::optional<std::string> metrics_;
    std::thread thread_;
    std::atomic<bool> stop_requested_{false};
    struct sigaction previous_ {};
    bool handles_signal_ = false;
};

// As the format wants label values.
std::string label_value(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '\\' || c == '"') result += '\\';
        if (c == '\n')
            result += "\\n";
        else
            result += c;
    }
    return result + '"';
}

}  // namespace

void add(Recorder& recorder) {
    Keeper::instance().add(recorder);
}
void remove(Recorder& recorder) noexcept {
    Keeper::instance().remove(recorder);
}

std::optional<std::filesystem::path> trace_directory() {
    const auto directory = env::get("TUTTI_TRACE_DIR");
    return directory ? std::optional<std::filesystem::path>(*directory) : std::nullopt;
}

std::vector<std::filesystem::path> dump_all(const std::filesystem::path& directory, const std::string& reason) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (!std::filesystem::is_directory(directory, error))
        throw InvalidArgument(
            fmt::format("{}: expected a folder, or a place where one can be made", directory.string()));
    std::vector<Dump> dumps;
    Keeper::instance().for_each([&](const Recorder& recorder) { dumps.push_back(recorder.snapshot(reason)); });
    std::vector<std::filesystem::path> files;
    for (const Dump& dump : dumps) {
        files.push_back(directory / file_name(dump));
        write_file(files.back(), encode(dump));
    }
    return files;
}

std::vector<Counters> all_counters() {
    std::vector<Counters> all;
    Keeper::instance().for_each([&](const Recorder& recorder) { all.push_back(recorder.counters()); });
    return all;
}

std::string prometheus_text() {
    const auto all = all_counters();
    std::string text;
    const auto metric = [&](const char* name, const char* help, auto value) {
        text += fmt::format("# HELP {0} {1}\n# TYPE {0} counter\n", name, help);
        for (const Counters& c : all) {
            text += fmt::format("{}{{group={},rank=\"{}\"}} {}\n", name, label_value(c.group), c.rank, value(c));
        }
    };
    metric("tutti_operations_issued_total", "Operations that were called.", [](const auto& c) { return c.issued; });
    metric("tutti_operations_completed_total", "Operations that succeeded.", [](const auto& c) { return c.completed; });
    metric("tutti_operations_failed_total", "Operations that failed.", [](const auto& c) { return c.failed; });
    metric("tutti_bytes_total", "Bytes that this rank contributed or received in messages.",
           [](const auto& c) { return c.bytes; });
    metric("tutti_operation_seconds_total",
           "Time from call to completion, of operations that were not over in a moment.",
           [](const auto& c) { return c.seconds; });
    text +=
        "# HELP tutti_waited_seconds_total Time spent waiting for a rank, in waits of more than some 10 ms.\n"
        "# TYPE tutti_waited_seconds_total counter\n";
    for (const Counters& c : all) {
        for (std::size_t peer = 0; peer < c.waited_s.size(); ++peer) {
            if (c.waited_s[peer] == 0) continue;
            text += fmt::format("tutti_waited_seconds_total{{group={},rank=\"{}\",peer=\"{}\"}} {}\n",
                                label_value(c.group), c.rank, peer, c.waited_s[peer]);
        }
    }
    return text;
}

}  // namespace tutti::record
