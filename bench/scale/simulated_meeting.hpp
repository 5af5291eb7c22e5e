// SimulatedMeeting: many ranks meet in one store, in one process and in a simulated time. Each rank is the coroutine of
// a rendezvous::Meeting, the store is the real data of a TCP store's server (store::ServerData), with its frames. Each
// message takes a latency on its way; the server's one thread takes a while for each request and each answer, and its
// card carries so many Gbit/s each way.
//
// What all ranks get is made and measured once, and only a short text travels instead: only its bytes are counted.
//
// Threads: one. While it exists the Clock of its thread is the simulation's.
#pragma once

#include "core/deadline.hpp"
#include "rendezvous/meeting.hpp"
#include "store/server_data.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::bench {

class SimulatedMeeting {
 public:
    enum class Kind {
        world,  ///< as ranks join a world: rank 0 makes the table of all cards
        group   ///< as the members of a group alone make it (new_group with use_local_synchronization)
    };
    struct Costs {
        std::chrono::nanoseconds latency{50'000}, message{4'000};
        double gbit = 100;
        std::chrono::milliseconds within{0};  ///< ranks come one after the other within this time
    };
    struct Figures {
        double seconds = 0;                           ///< until the last rank has the outcome
        std::uint64_t requests = 0;                   ///< of all ranks
        std::uint64_t of_rank_0 = 0, of_another = 0;  ///< of rank 0; the most of one of the others
        double bytes_in = 0, bytes_out = 0;           ///< of the store
        double outcome_bytes = 0, card_bytes = 0;     ///< what each rank gets; what rank 1 gives
        double store_cpu_s = 0;                       ///< that the server's data took here, in real time
        int met = 0;                                  ///< ranks
    };

    SimulatedMeeting(Kind kind, int ranks, int ranks_per_host, Costs costs);
    ~SimulatedMeeting();
    SimulatedMeeting(const SimulatedMeeting&) = delete;
    SimulatedMeeting& operator=(const SimulatedMeeting&) = delete;

    Figures run();

 private:
    struct Rank;
    struct Event;

    Rank& rank(std::uint64_t number) { return *ranks_[number]; }
    MeetingTerms terms_of(int rank) const;
    std::string card_of(int rank) const;
    std::string conclude(const std::vector<std::string>& cards);
    void add(Event event);
    void handle(Event& event);
    void ask(Rank& rank);
    void send(Rank& rank, store::Op op, std::uint64_t request, std::span<const std::string_view> fields);
    void take_answer(std::uint64_t to, std::uint64_t request, std::span<const store::Field> fields);
    void go_on(Rank& rank, std::vector<std::string> fields);
    Instant carry(Instant& busy, std::size_t bytes) const;

    const Kind kind_;
    const int ranks_per_host_;
    const Costs costs_;
    Instant now_{std::chrono::hours(1)}, server_busy_ = now_, in_busy_ = now_, out_busy_ = now_;
    std::vector<std::unique_ptr<Rank>> ranks_;
    store::ServerData data_;
    std::vector<Event> events_;  // a heap
    std::uint64_t next_event_ = 0;
    Figures figures_;
};

}  // namespace tutti::bench
