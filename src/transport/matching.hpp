// Matching: which message matches which receive. The n-th message of a source and channel matches the n-th receive;
// whichever comes first waits here for the other.
//
// Threads: one at a time.
#pragma once

#include "transport/by_channel.hpp"
#include "transport/frame.hpp"
#include "transport/spare_memory.hpp"
#include "transport/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

namespace tutti::transport {

/// A message that has come before its receive.
struct Unexpected {
    int source = 0;
    std::uint64_t number = 0;  ///< in order of arrival, from 1
    bool claimed = false;      ///< only a receive with its number may take it
    Frame frame{};
    SpareMemory::Block bytes{};      ///< eager: the frame.length bytes of the message
    bool complete = false;           ///< all bytes have arrived; always true for a request to send, which carries none
    Transfer* bound = nullptr;       ///< the receive that has matched it and waits for the remaining bytes
    Transfer* local_send = nullptr;  ///< set for a message of this rank to itself

    std::span<const std::byte> message() const { return {bytes.get(), frame.length}; }
};

class Matching {
 public:
    // ---- Receives that wait
    void post(Transfer& receive);
    /// Removes and returns the waiting receive that a message matches; null: there is none.
    Transfer* take_posted(int source, std::uint64_t channel);
    bool is_posted(int source, std::uint64_t channel) const;
    /// The waiting receive that names this source (not any_source); null: there is none.
    const Transfer* posted_for(int source, std::uint64_t channel) const;
    /// Takes out a receive, probe or claim; false: it was not waiting.
    bool withdraw(const Transfer& receive);
    /// Removes and returns the waiting probe or claim that a message, which no receive waits for, matches; null: none.
    Transfer* take_probe(const Unexpected& message);
    /// Whether a receive, probe or claim of any source waits, beside the standing receives.
    bool waits_for_any() const noexcept { return posted_for_any_ > 0; }
    bool stands_ready() const noexcept { return standing_ > 0; }

    // ---- Messages that wait
    bool has_unexpected(std::uint64_t channel) const { return !unexpected_.empty() && unexpected_.contains(channel); }
    Unexpected& keep(int source, const Frame& frame);
    /// As keep(), with memory for the bytes of the message.
    Unexpected& keep_with_bytes(int source, const Frame& frame);
    /// The message that a receive, probe or claim matches; null: none waits. cost: the messages on its channel; of a
    /// probe or claim with fewer channel_bits, all that wait.
    Unexpected* find(const Transfer& receive);
    /// The claimed message with this number; null: it has been dropped.
    Unexpected* claimed(std::uint64_t channel, std::uint64_t number);
    void forget(const Unexpected& message);
    void forget_if(std::uint64_t channel, const std::function<bool(const Unexpected&)>& condition);
    void forget_if(const std::function<bool(const Unexpected&)>& condition);
    /// Calls `see` for each waiting message.
    void for_each_unexpected(const std::function<void(const Unexpected&)>& see) const { unexpected_.for_each(see); }
    /// All messages that wait on a channel, in the order of their arrival.
    const std::list<Unexpected>& on(std::uint64_t channel) const;

    void drop_all();

 private:
    void count_of_any(const Transfer& waiting, int by);

    ByChannel<Transfer*> posted_;
    ByChannel<Unexpected> unexpected_;  // in order of arrival
    SpareMemory memory_;                // the memory of their bytes
    std::vector<Transfer*> probes_;     // and claims, that wait
    std::size_t posted_for_any_ = 0;    // receives, probes and claims of any source but standing ones
    std::size_t standing_ = 0;          // standing receives
    std::uint64_t last_number_ = 0;
};

}  // namespace tutti::transport
