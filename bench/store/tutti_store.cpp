// tutti's TCPStore as a contender. Threads: one (the server's process has the server's own as well).
#include "processes.hpp"

#include <tutti/store.hpp>
#include <tutti/version.hpp>

#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace tutti::bench {
namespace {

constexpr const char* secret = "the benchmark's secret";

class TuttiClient : public Client {
 public:
    explicit TuttiClient(std::uint16_t port) : store_({.port = port, .secret = secret}) {}
    void set(std::string_view key, std::string_view value) override { store_.set(key, value); }
    std::string_view get(std::string_view key) override { return value_ = store_.get(key); }
    std::int64_t add(std::string_view key, std::int64_t amount) override { return store_.add(key, amount); }
    void wait(std::string_view key) override { store_.wait({std::string(key)}); }
    void wake(std::string_view key) override { store_.set(key, "1"); }

 private:
    TCPStore store_;
    std::string value_;
};

class Tutti : public Contender {
 public:
    explicit Tutti(Way way) : way_(way) {
        int ends[2];
        if (::pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
        server_ = Process([&] {
            take_the_way();
            const TCPStore store({.is_master = true, .secret = secret});
            const std::uint16_t port = store.port();
            if (::write(ends[1], &port, sizeof port) != sizeof port) return;
            while (true) ::pause();
        });
        if (::read(ends[0], &port_, sizeof port_) != sizeof port_) throw std::runtime_error("no store");
        ::close(ends[0]);
        ::close(ends[1]);
    }
    std::string name() const override {
        return std::string("tutti ") + version() + (way_ == Way::tcp_only ? " (TCP only)" : "");
    }
    Figures run(const Task& task) override {
        return run_clients(task, [this] {
            take_the_way();
            return std::make_unique<TuttiClient>(port_);
        });
    }
    std::string remark() const override {
        if (way_ == Way::tcp_only) return {};
        return "tutti's clients on the server's host use a Unix socket; the line \"TCP only\" is without it\n"
               "a set of tutti or torch returns when it is on its way, redis's when it is done; ops/s counts to the "
               "end";
    }

 private:
    /// In a process of the contender's own.
    void take_the_way() const { ::setenv("TUTTI_STORE_LOCAL", way_ == Way::tcp_only ? "0" : "1", 1); }

    Way way_;
    std::uint16_t port_ = 0;
    Process server_;
};

}  // namespace

std::unique_ptr<Contender> make_tutti(Way way) {
    return std::make_unique<Tutti>(way);
}

}  // namespace tutti::bench
