// A job of a few ranks in one process and in a time of its own: each has a mailbox, executions and what it hears of the
// others, over a Network. All issue the same collectives and messages; one fault may come, by the seed.
//
// A rank here does in a few lines what a world does about news and findings: it fails, and tells the others.
//
// Threads: one.
#pragma once

#include "algorithm/request.hpp"
#include "engine/execution.hpp"
#include "failure/health.hpp"
#include "operation/channel.hpp"
#include "schedule/contract.hpp"
#include "simulation/network.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tutti::simulation {

/// `surplus`: in an all_to_all one rank sends to another that expects nothing of it.
enum class Fault : std::uint8_t { none, death, cut, damage, mismatch, surplus };

class Job {
 public:
    explicit Job(std::uint64_t seed);
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// Runs it to its end. Returns the first promise that it breaks, in words; empty: it keeps all.
    std::string run();
    Fault fault() const noexcept { return fault_; }
    Network& network() noexcept { return network_; }
    /// Ranks that ended with a verdict.
    int failed() const;

 private:
    /// How a rank comes to a message: by a receive; or it probes or claims the message first, and may give it back.
    enum class Way : std::uint8_t;
    struct Step;
    struct Message;
    class Rank;
    struct News {
        Instant when;
        int rank;
        rendezvous::Verdict verdict;
    };

    void write_script();
    void add_messages();
    Step make(schedule::Contract contract, std::uint64_t sequence, std::string algorithm);
    void add_surplus(std::uint64_t sequence);
    bool awaits_surplus(int rank) const;
    void strike();
    void tell(int from, const rendezvous::Verdict& verdict, int latency_us);
    void deliver_news();
    void pass_time();
    bool is_excused(const rendezvous::Verdict& verdict) const;
    std::string state() const;

    std::uint64_t seed_;
    std::mt19937_64 chance_;
    Instant start_{std::chrono::hours(1)}, now_ = start_, strikes_at_;
    int size_;
    Fault fault_ = Fault::none;
    bool struck_ = false;
    int culprit_ = -1, other_ = -1;  // of the fault
    bool lifelines_tell_ = true;     // of a death
    algorithm::Layout layout_;
    std::vector<Step> script_;
    Network network_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    std::list<News> news_;
    std::string wrong_;
};

}  // namespace tutti::simulation
