// The contenders of the store benchmark: key/value servers, each in a process of its own, and the work done on them.
//
// Threads: one. Clients are processes with one connection each, the same way for all contenders.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

enum class Work {
    get,  ///< of a key that is there
    set,  ///< of a key that is there; each client its own
    add,  ///< 1 to a counter that all clients share
    wake  ///< from the start of a set to the return of the wait for it in another process
};
inline constexpr std::array<std::string_view, 4> work_names{"get", "set", "add", "wake"};
inline std::string_view name_of(Work work) {
    return work_names[static_cast<std::size_t>(work)];
}

inline constexpr std::size_t value_bytes = 64;

struct Task {
    Work work{};
    int clients = 1;
    std::chrono::milliseconds time{};
};

struct Figures {
    double median_us = 0;
    double ops_per_s = 0;
};

class Contender {
 public:
    virtual ~Contender() = default;
    /// With the version.
    virtual std::string name() const = 0;
    /// Throws std::runtime_error when an answer was wrong.
    virtual Figures run(const Task& task) = 0;
    /// A sentence for the report; may be empty.
    virtual std::string remark() const { return {}; }
};

enum class Way { usual, tcp_only };
std::unique_ptr<Contender> make_tutti(Way way);
/// Null: it cannot run here, and `why` says so in a sentence.
std::unique_ptr<Contender> make_redis(const std::string& server_program, std::string& why);
std::unique_ptr<Contender> make_torch(const std::string& python, const std::string& script, std::string& why);

double median(std::vector<double> values);

}  // namespace tutti::bench
