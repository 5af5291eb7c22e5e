// tutti's TCPStore as a contender. Threads: one (the server's process has the server's own as well).
#include "processes.hpp"

#include <tutti/store.hpp>
#include <tutti/version.hpp>

#include <unistd.h>

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
    Tutti() {
        int ends[2];
        if (::pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
        server_ = Process([&] {
            const TCPStore store({.is_master = true, .secret = secret});
            const std::uint16_t port = store.port();
            if (::write(ends[1], &port, sizeof port) != sizeof port) return;
            while (true) ::pause();
        });
        if (::read(ends[0], &port_, sizeof port_) != sizeof port_) throw std::runtime_error("no store");
        ::close(ends[0]);
        ::close(ends[1]);
    }
    std::string name() const override { return std::string("tutti ") + version(); }
    Figures run(const Task& task) override {
        return run_clients(task, [this] { return std::make_unique<TuttiClient>(port_); });
    }

 private:
    std::uint16_t port_ = 0;
    Process server_;
};

}  // namespace

std::unique_ptr<Contender> make_tutti() {
    return std::make_unique<Tutti>();
}

}  // namespace tutti::bench
