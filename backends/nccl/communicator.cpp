#include "nccl/communicator.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tutti::nccl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr unsigned config_magic = 0xcafebeef;
constexpr int shrink_abort = 1;         // NCCL_SHRINK_ABORT: ends the parent's work under way
constexpr auto time_for_calls = 200ms;  // for calls under way, before the handle goes
constexpr auto time_for_end = 1000ms;   // for ncclCommAbort and ncclCommDestroy

int or_undefined(const std::optional<int>& value) {
    return value.value_or(undefined_int);
}

const char* or_null(const std::optional<std::string>& value) {
    return value ? value->c_str() : nullptr;
}

// Runs `call` in a thread of its own, as it may never return; waits at most `limit`.
void run_within(std::chrono::milliseconds limit, std::function<void()> call) noexcept {
    struct Signal {
        std::mutex mutex;
        std::condition_variable changed;
        bool over = false;
    };
    try {
        const auto signal = std::make_shared<Signal>();
        std::thread([signal, call] {
            call();
            const std::lock_guard lock(signal->mutex);
            signal->over = true;
            signal->changed.notify_all();
        }).detach();
        std::unique_lock lock(signal->mutex);
        signal->changed.wait_for(lock, limit, [&] { return signal->over; });
    } catch (const std::system_error&) {  // no thread: better late than never
        call();
    }
}

// The hint behind NCCL's messages about ranks that share a GPU, which differ by version.
std::string hint(std::string_view text) {
    for (const std::string_view known : {"Duplicate GPU", "Multiple Ranks are using the same GPU"}) {
        if (text.find(known) != std::string_view::npos)
            return "; several ranks are on one GPU: expected one rank for each GPU, or NCCL_MULTI_RANK_GPU_ENABLE=1 "
                   "with NCCL 2.30 or later";
    }
    return {};
}

// The store's key for an id that is longer than NCCL's.
std::string key_of(const UniqueId& id) {
    return "id/" + std::string(id.bytes, sizeof id.bytes);
}

class Naps {
 public:
    void take() {
        std::this_thread::sleep_for(length_);
        length_ = std::min<std::chrono::microseconds>(length_ * 3 / 2, 2ms);
    }

 private:
    std::chrono::microseconds length_{20};
};

}  // namespace

Communicator::Use::Use(const Communicator& communicator) : communicator_(communicator) {
    communicator_.users_.fetch_add(1, std::memory_order_seq_cst);
    if (!communicator_.over_.load(std::memory_order_seq_cst)) return;
    communicator_.users_.fetch_sub(1, std::memory_order_release);
    throw Aborted(communicator_.options_.name + ": its communicator has ended");
}

UniqueId Communicator::make_id(const Library& library, Store& store) {
    const Interface& calls = library.calls();
    UniqueId id{};
    std::string long_id(calls.id_bytes, '\0');
    const Result result = calls.GetLongId != nullptr ? calls.GetLongId(long_id.data()) : calls.GetUniqueId(&id);
    if (result != Result::success) {
        const char* more = library.calls().GetLastError(nullptr);
        throw DistBackendError(library.vendor().backend + ": no id for a communicator could be made: " +
                               library.calls().GetErrorString(result) + " (" + std::to_string(code_of(result)) +
                               (more == nullptr || *more == '\0' ? "" : ", " + std::string(more)) + "), from " +
                               library.describe());
    }
    if (calls.GetLongId != nullptr) {
        std::random_device chance;
        for (char& byte : id.bytes) byte = static_cast<char>('a' + chance() % 26);
        store.set(key_of(id), long_id);
    }
    return id;
}

Communicator::Communicator(std::shared_ptr<const Library> library, CommunicatorOptions options,
                           const std::atomic<bool>* given_up)
    : library_(std::move(library)), options_(std::move(options)), given_up_(given_up) {}

Communicator::Communicator(std::shared_ptr<const Library> library, std::span<const UniqueId> ids,
                           CommunicatorOptions options, const std::atomic<bool>* given_up)
    : Communicator(std::move(library), std::move(options), given_up) {
    const std::string what = "making its communicator";
    const Interface& calls = library_->calls();
    Config settings = config();
    try {
        if (calls.CommInitRankLongId != nullptr) {
            Store store = options_.store;
            const std::string id = store.get(key_of(ids.front()));
            check(calls.CommInitRankLongId(&handle_, options_.size, id.data(), options_.rank, options_.store),
                  "CommInitRank", what);
        } else if (ids.size() > 1 && calls.CommInitRankScalable != nullptr) {
            std::vector<UniqueId> all(ids.begin(), ids.end());
            check(calls.CommInitRankScalable(&handle_, options_.size, options_.rank, static_cast<int>(all.size()),
                                             all.data(), &settings),
                  "CommInitRankScalable", what);
        } else {
            check(calls.CommInitRankConfig(&handle_, options_.size, ids.front(), options_.rank, &settings),
                  "CommInitRankConfig", what);
        }
        wait_while_in_progress(*this, "CommInitRankConfig", what, options_.timeout);
    } catch (...) {
        abort();
        throw;
    }
}

std::shared_ptr<Communicator> Communicator::split(Communicator& parent, int color, int key, CommunicatorOptions options,
                                                  const std::atomic<bool>* given_up) {
    const std::string what = "splitting its communicator";
    const std::shared_ptr<Communicator> part(new Communicator(parent.library_, std::move(options), given_up));
    Config settings = part->config();
    const auto timeout = part->options_.timeout;
    try {
        {
            const Use use(parent);
            parent.check(part->library_->calls().CommSplit(parent.handle_, color < 0 ? -1 : color, key, &part->handle_,
                                                           &settings),
                         "CommSplit", what);
        }
        part->wait_while_in_progress(parent, "CommSplit", what, timeout);
        if (color < 0) return nullptr;
        part->wait_while_in_progress(*part, "CommSplit", what, timeout);
    } catch (...) {
        part->abort();
        throw;
    }
    return part;
}

std::shared_ptr<Communicator> Communicator::shrink(Communicator& parent, std::vector<int> left_out,
                                                   CommunicatorOptions options, std::chrono::milliseconds timeout) {
    const std::string what = "making a communicator of the ranks that are left";
    const std::shared_ptr<Communicator> rest(new Communicator(parent.library_, std::move(options), nullptr));
    const Interface& calls = rest->library_->calls();
    Config settings = rest->config();
    try {
        rest->check(calls.CommShrink(parent.handle_, left_out.data(), static_cast<int>(left_out.size()), &rest->handle_,
                                     &settings, shrink_abort),
                    "CommShrink", what);
        // Of the parent's own state only one fact is useful: it has failed.
        Result now = Result::in_progress;
        const auto until = Clock::now() + timeout;
        for (Naps naps; now == Result::in_progress && Clock::now() < until; naps.take())
            if (calls.CommGetAsyncError(parent.handle_, &now) != Result::success) break;
        if (rest->handle_ == nullptr) rest->check(Result::internal_error, "CommShrink", what);
        rest->wait_while_in_progress(*rest, "CommShrink", what, timeout);
    } catch (...) {
        rest->abort();
        throw;
    }
    return rest;
}

Communicator::~Communicator() {
    if (is_kept_)
        run_within(time_for_end, [end = library_->calls().CommAbort, handle = handle_] { (void)end(handle); });
    finalize(Clock::now() + time_for_end);
}

Config Communicator::config() const {
    const NcclConfig& from = options_.config;
    return {
        .size = sizeof(Config),
        .magic = config_magic,
        .version = static_cast<unsigned>(library_->version()),
        .blocking = 0,
        .cga_cluster_size = or_undefined(from.cga_cluster_size),
        .min_ctas = or_undefined(from.min_ctas),
        .max_ctas = or_undefined(from.max_ctas),
        .net_name = or_null(from.net_name),
        .split_share = or_undefined(from.split_share),
        .traffic_class = or_undefined(from.traffic_class),
        .comm_name = or_null(from.comm_name),
        .collnet_enable = or_undefined(from.collnet_enable),
        .cta_policy = or_undefined(from.cta_policy),
        .shrink_share = or_undefined(from.shrink_share),
        .nvls_ctas = or_undefined(from.nvls_ctas),
        .n_channels_per_net_peer = or_undefined(from.n_channels_per_net_peer),
        .nvlink_centric_sched = or_undefined(from.nvlink_centric_sched),
    };
}

std::exception_ptr Communicator::failure(Result result, const char* call, const std::string& what) const {
    const Interface& calls = library_->calls();
    const char* text = calls.GetErrorString(result);
    std::string more;
    if (!over_ && calls.GetLastError != nullptr) {
        if (const char* last = calls.GetLastError(handle_); last != nullptr) more = last;
        while (!more.empty() && (more.back() == '\n' || more.back() == ' ')) more.pop_back();
    }
    return std::make_exception_ptr(
        DistBackendError(options_.name + ": " + what + ": " + library_->vendor().prefix + call + ": " +
                             (text == nullptr ? "error" : text) + " (" + std::to_string(code_of(result)) +
                             (more.empty() ? "" : ", " + more) + "), from " + library_->describe() + hint(more),
                         {.operation = what, .rank = options_.rank}));
}

void Communicator::check(Result result, const char* call, const std::string& what) const {
    if (result != Result::success && result != Result::in_progress) std::rethrow_exception(failure(result, call, what));
}

void Communicator::finish(Result result, const char* call, const std::string& what, std::chrono::milliseconds timeout) {
    check(result, call, what);
    if (result == Result::in_progress)
        wait_while_in_progress(*this, call, what, timeout.count() > 0 ? timeout : options_.timeout);
}

Result Communicator::state() const {
    users_.fetch_add(1, std::memory_order_seq_cst);
    Result now = Result::success;
    if (!over_.load(std::memory_order_seq_cst) && handle_ != nullptr) {
        const Result asked = library_->calls().CommGetAsyncError(handle_, &now);
        if (asked != Result::success && now == Result::success) now = asked;
    }
    users_.fetch_sub(1, std::memory_order_release);
    return now;
}

void Communicator::wait_while_in_progress(const Communicator& of, const char* call, const std::string& what,
                                          std::chrono::milliseconds timeout) {
    const auto until = Clock::now() + timeout;
    for (Naps naps;; naps.take()) {
        if (over_ || of.over_ || (given_up_ != nullptr && *given_up_))
            throw Aborted(options_.name + ": " + what + ": the group has ended", {.operation = what});
        const Result result = of.state();
        if (result == Result::success) return;
        check(result, call, what);
        if (Clock::now() > until) {
            throw Timeout(options_.name + ": " + what + ": " + library_->vendor().prefix + call +
                              " is not over after " + std::to_string(timeout.count()) +
                              " ms: expected all ranks to come to it; from " + library_->describe(),
                          {.operation = what, .rank = options_.rank, .elapsed = timeout});
        }
    }
}

// Returns true to one caller, when the calls under way are over or have had their time.
bool Communicator::take_handle() noexcept {
    if (over_.exchange(true)) return false;
    const auto until = Clock::now() + time_for_calls;
    while (users_.load(std::memory_order_acquire) > 0 && Clock::now() < until) std::this_thread::sleep_for(50us);
    return handle_ != nullptr;
}

void Communicator::keep_for_shrink() noexcept {
    may_be_kept_ = library_->calls().CommRevoke != nullptr && library_->calls().CommShrink != nullptr;
}

void Communicator::stop() noexcept {
    if (!may_be_kept_) return abort();
    if (!take_handle()) return;
    const Interface& calls = library_->calls();
    const auto result = std::make_shared<std::atomic<Result>>(Result::in_progress);
    run_within(time_for_end, [calls, handle = handle_, result] { *result = calls.CommRevoke(handle, 0); });
    if (*result == Result::success || *result == Result::in_progress)
        is_kept_ = true;
    else
        run_within(time_for_end, [end = calls.CommAbort, handle = handle_] { (void)end(handle); });
}

void Communicator::abort() noexcept {
    if (!take_handle()) return;
    run_within(time_for_end, [end = library_->calls().CommAbort, handle = handle_] { (void)end(handle); });
}

void Communicator::finalize(Clock::time_point until) noexcept {
    if (over_) return;
    const Interface& calls = library_->calls();
    try {
        Result now = Result::success;
        {
            const Use use(*this);
            if (handle_ == nullptr) return;
            now = calls.CommFinalize(handle_);
        }
        for (Naps naps; now == Result::success || now == Result::in_progress; naps.take()) {
            now = state();
            if (now == Result::success || Clock::now() > until) break;
        }
        if (now != Result::success) return abort();
    } catch (const std::exception&) {  // it is over already
        return;
    }
    if (!take_handle()) return;
    run_within(time_for_end, [end = calls.CommDestroy, handle = handle_] { (void)end(handle); });
}

}  // namespace tutti::nccl
