#include "gloo/lanes.hpp"

#include "common/meet.hpp"
#include "common/own_address.hpp"

#include <tutti/error.hpp>

#include <ifaddrs.h>
#include <netinet/in.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

namespace tutti::backends::gloo {
namespace {

using namespace std::chrono_literals;

std::string text_of(const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr ? value : "";
}

std::vector<std::string> interface_names() {
    const std::string text = text_of("GLOO_SOCKET_IFNAME");
    std::vector<std::string> names;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        names.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return names;
}

// Checked here, as Gloo would leak its list of interfaces if none has that name.
bool has_address(const std::string& interface_name) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return false;
    bool found = false;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        found |= one->ifa_addr != nullptr && interface_name == one->ifa_name &&
                 (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6);
    }
    ::freeifaddrs(all);
    return found;
}

std::vector<::gloo::transport::tcp::attr> attributes(const Store& store) {
    std::vector<::gloo::transport::tcp::attr> list;
    for (const std::string& name : interface_names()) {
        if (!has_address(name)) {
            throw DistBackendError("gloo: GLOO_SOCKET_IFNAME=" + text_of("GLOO_SOCKET_IFNAME") +
                                   ": this host has no \"" + name +
                                   "\" with an IP address: expected interfaces as `ip addr` lists them");
        }
        list.emplace_back();
        list.back().iface = name;
    }
    if (list.empty()) {
        list.emplace_back();
        list.back().hostname = own_address(store);
    }
    return list;
}

constexpr const char* counts_meeting = "interfaces";

// All ranks publish their number of lanes before any rank connects, so that none waits for a lane that others lack.
void compare_counts(const DistributedBackendOptions& o, const std::string& own) {
    const std::vector<std::string> counts = meet(o, "gloo", counts_meeting, own);
    if (std::ranges::all_of(counts, [&](const std::string& count) { return count == own; })) return;
    std::string text;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        text += (rank > 0 ? ", rank " : "rank ") + std::to_string(rank) + ": " + counts[rank];
    }
    throw DistBackendError("gloo: GLOO_SOCKET_IFNAME: the ranks of group \"" + o.group_id +
                           "\" use different numbers of interfaces (" + text + "): expected the same number on all");
}

class GlooStore final : public ::gloo::rendezvous::Store {
 public:
    GlooStore(tutti::Store store, std::chrono::milliseconds timeout) : store_(std::move(store)), timeout_(timeout) {}
    void set(const std::string& key, const std::vector<char>& data) override {
        store_.set(key, {data.data(), data.size()});
    }
    std::vector<char> get(const std::string& key) override {
        const std::string value = store_.get(key, timeout_);
        return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override { store_.wait(keys, timeout_); }
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
    tutti::Store store_;
    const std::chrono::milliseconds timeout_;
};

}  // namespace

QuietPipes::QuietPipes() {
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
    was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

QuietPipes::~QuietPipes() {
    if (was_blocked_) return;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now{};
    if (!was_pending_) (void)::sigtimedwait(&pipe, nullptr, &now);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

std::vector<std::shared_ptr<::gloo::Context>> connect_lanes(const DistributedBackendOptions& o) {
    const QuietPipes quiet;  // Gloo's threads begin here, and inherit it
    std::vector<std::shared_ptr<::gloo::transport::Device>> devices;
    try {
        for (const auto& one : attributes(o.store)) devices.push_back(::gloo::transport::tcp::CreateDevice(one));
    } catch (const std::exception& error) {
        say_cannot_meet(o, "gloo", counts_meeting, error);
        if (dynamic_cast<const DistError*>(&error) != nullptr) throw;
        throw DistBackendError(std::string("gloo: ") + error.what());
    }
    compare_counts(o, std::to_string(devices.size()));
    std::vector<std::shared_ptr<::gloo::Context>> lanes;
    try {
        for (std::size_t lane = 0; lane < devices.size(); ++lane) {
            auto context = std::make_shared<::gloo::rendezvous::Context>(o.group_rank, o.group_size);
            context->setTimeout(std::max(o.timeout / 5, std::chrono::milliseconds(1s)));  // connecting takes five of it
            GlooStore store(PrefixStore("lane/" + std::to_string(lane), o.store), o.timeout);
            context->connectFullMesh(store, devices[lane]);
            context->setTimeout(100h);  // tutti watches the operations
            lanes.push_back(std::move(context));
        }
    } catch (const ::gloo::Exception& error) {
        throw DistBackendError("gloo: the ranks of group \"" + o.group_id + "\" cannot be connected: " + error.what());
    }
    // Gloo's own end of connecting is local: a rank that leaves at once would close connections that others still wait
    // for.
    (void)meet(o, "gloo", "connected", "");
    return lanes;
}

// Gloo ends all waits on a context when one of its waits times out: this function makes one time out.
void close_connections(const std::shared_ptr<::gloo::Context>& lane) noexcept {
    try {
        const QuietPipes quiet;
        char nothing = 0;
        lane->createUnboundBuffer(&nothing, 1)->waitRecv(1ms);
    } catch (const ::gloo::Exception&) {  // NOLINT(bugprone-empty-catch): it has
    }
}

}  // namespace tutti::backends::gloo
