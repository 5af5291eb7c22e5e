#include "record/dump_writer.hpp"

#include "core/assert.hpp"
#include "core/env.hpp"
#include "core/log.hpp"
#include "core/thread.hpp"
#include "core/unique_fd.hpp"
#include "record/flight.hpp"
#include "record/metrics.hpp"
#include "record/pages.hpp"
#include "record/wanted.hpp"

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
#include <optional>
#include <thread>

namespace tutti::record {
namespace {

constexpr int metrics_period_ms = 1000;
constexpr std::chrono::milliseconds pause_between_flights{500};

std::atomic<int> request_fd{-1};  // for the signal's handler

void on_request(int) {
    const int saved = errno;
    (void)!::eventfd_write(request_fd.load(std::memory_order_relaxed), 1);
    errno = saved;
}

void write_flight_if_wanted() noexcept {
    try {
        if (wants_flight_files()) dump_flight(*trace_directory());
    } catch (const std::exception& error) {
        TUTTI_WARN("no dumps for torchfrtrace: {}", error.what());
    }
}

class DumpWriter {
 public:
    static DumpWriter& instance() {
        static DumpWriter* const keeper = new DumpWriter;  // groups may outlive static objects
        return *keeper;
    }

    void add(Recorder& recorder) {
        const bool torch = env::get("TUTTI_TRACE_FORMAT") == "torch";
        if (torch != wants_flight_files() && !warned_.exchange(true))  // throws for an unknown format
            TUTTI_WARN("TUTTI_TRACE_FORMAT=torch is for the files of TUTTI_TRACE_DIR, which is not set");
        const std::lock_guard lifecycle(lifecycle_);
        if (process_ != ::getpid()) adopt_process();
        {
            const std::lock_guard lock(mutex_);
            TUTTI_ASSERT(std::ranges::find(recorders_, &recorder) == recorders_.end());
            recorders_.push_back(&recorder);
        }
        if (!thread_.joinable()) start();
        if (!pages_) pages_ = serve_pages(recorder.world_rank(), {live_dumps, prometheus_text});
    }
    void remove(Recorder& recorder) noexcept {
        const std::lock_guard lifecycle(lifecycle_);
        const bool is_own = process_ == ::getpid();
        const bool served = is_own && thread_.joinable();
        if (served && metrics_) write_metrics(*metrics_);  // the last figures of a group, and all of a short one
        if (is_own) retain(recorder);
        {
            const std::lock_guard lock(mutex_);
            std::erase(recorders_, &recorder);
            if (!recorders_.empty()) return;
        }
        if (is_own) {
            write_last_flight();
            pages_.reset();
        }
        if (served) stop();
    }
    /// Of all groups of this process, also of those that have ended.
    std::vector<Dump> all_dumps(const std::string& reason) const {
        const std::lock_guard lock(mutex_);
        std::vector<Dump> dumps = ended_;
        for (const Recorder* recorder : recorders_) dumps.push_back(recorder->snapshot(reason));
        return dumps;
    }
    template <class F>
    void for_each(F f) const {
        const std::lock_guard lock(mutex_);
        for (const Recorder* recorder : recorders_) f(*recorder);
    }

 private:
    DumpWriter() = default;

    // Keeps the records of a group that ends for the files with all groups of a rank: those of the last groups, at most
    // twice as many as one group may hold.
    void retain(const Recorder& recorder) noexcept {
        try {
            if (!wants_flight_files()) return;
            const std::lock_guard lock(mutex_);
            ended_.push_back(recorder.snapshot("its group has ended"));
            std::size_t entries = 0;
            for (const Dump& dump : ended_) entries += dump.entries.size();
            for (; entries > 2 * Recorder::capacity; ended_.erase(ended_.begin()))
                entries -= ended_.front().entries.size();
            TUTTI_ASSERT(!ended_.empty());
        } catch (const std::exception& error) {
            TUTTI_WARN("no dumps: {}", error.what());
        }
    }
    void write_last_flight() noexcept {
        if (ended_.empty()) return;
        write_flight_if_wanted();
        ended_.clear();
    }
    // A forked child has neither its parent's thread nor a part in its groups.
    void adopt_process() {
        process_ = ::getpid();
        if (thread_.joinable()) thread_.detach();
        (void)pages_.release();  // their threads are the parent's
        const std::lock_guard lock(mutex_);
        recorders_.clear();
        ended_.clear();
        wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        TUTTI_ASSERT(process_ == ::getpid() && recorders_.empty());
        request_fd.store(wake_.get());
    }
    void start() {
        TUTTI_ASSERT(!thread_.joinable() && !handles_signal_);
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
        TUTTI_ASSERT(thread_.joinable() && thread_.get_id() != std::this_thread::get_id());
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
        TUTTI_ASSERT(fd >= 0);
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
            write_flight_if_wanted();
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
    std::vector<Dump> ended_;
    int process_ = -1;
    UniqueFd wake_;
    std::optional<std::string> metrics_;
    std::thread thread_;
    std::atomic<bool> stop_requested_{false};
    std::unique_ptr<HttpServer> pages_;
    std::atomic<bool> warned_{false};
    struct sigaction previous_ {};
    bool handles_signal_ = false;
};

void make_folder(const std::filesystem::path& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (!std::filesystem::is_directory(directory, error))
        throw InvalidArgument(
            fmt::format("{}: expected a folder, or a place where one can be made", directory.string()));
}

}  // namespace

void add(Recorder& recorder) {
    DumpWriter::instance().add(recorder);
}
void remove(Recorder& recorder) noexcept {
    DumpWriter::instance().remove(recorder);
}

std::vector<std::filesystem::path> dump_flight(const std::filesystem::path& directory) {
    make_folder(directory);
    std::vector<std::filesystem::path> files;
    for (const FlightFile& file : flight_files(DumpWriter::instance().all_dumps(""))) {
        files.push_back(directory / file.name);
        write_file(files.back(), file.bytes);
    }
    return files;
}

void write_flight_after_failure() noexcept {
    static std::atomic<Clock::rep> latest{0};
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep before = latest.load();
    if (before != 0 && now - before < Clock::duration(pause_between_flights).count()) return;
    if (latest.compare_exchange_strong(before, now)) write_flight_if_wanted();
}

std::vector<std::filesystem::path> dump_all(const std::filesystem::path& directory, const std::string& reason) {
    make_folder(directory);
    std::vector<Dump> dumps;
    DumpWriter::instance().for_each([&](const Recorder& recorder) { dumps.push_back(recorder.snapshot(reason)); });
    std::vector<std::filesystem::path> files;
    for (const Dump& dump : dumps) {
        files.push_back(directory / file_name(dump));
        write_file(files.back(), encode(dump));
    }
    return files;
}

std::vector<Dump> live_dumps(const std::string& reason, std::size_t count) {
    std::vector<Dump> dumps;
    DumpWriter::instance().for_each(
        [&](const Recorder& recorder) { dumps.push_back(recorder.snapshot(reason, count)); });
    return dumps;
}

std::vector<Counters> all_counters() {
    std::vector<Counters> all;
    DumpWriter::instance().for_each([&](const Recorder& recorder) { all.push_back(recorder.counters()); });
    return all;
}

std::string prometheus_text() {
    return prometheus_text_of(all_counters());
}

}  // namespace tutti::record
