// Matching: which message meets which receive. Of one source and channel the n-th message meets the n-th receive;
// whichever comes first waits for the other here.
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

namespace tutti::transport {

/// A message that has come before its receive.
struct Unexpected {
    int source = 0;
    Frame frame{};
    SpareMemory::Block bytes{};      ///< eager; frame.length of them
    bool complete = false;           ///< all bytes are here (request: always)
    Transfer* bound = nullptr;       ///< a receive that waits for the rest
    Transfer* local_send = nullptr;  ///< a message to oneself

    std::span<const std::byte> message() const { return {bytes.get(), frame.length}; }
};

class Matching {
 public:
    // ---- Receives that wait
    void post(Transfer& receive);
    /// The receive that a message meets, which waits no longer; null: none does.
    Transfer* take_posted(int source, std::uint64_t channel);
    bool is_posted(int source, std::uint64_t channel) const;
    /// A receive of that source alone; null: none waits.
    const Transfer* posted_for(int source, std::uint64_t channel) const;
    /// False: it does not wait.
    bool withdraw(const Transfer& receive);
    /// A message of any rank may meet a receive.
    bool waits_for_any() const noexcept { return posted_for_any_ > 0; }

    // ---- Messages that wait
    bool has_unexpected(std::uint64_t channel) const { return !unexpected_.empty() && unexpected_.contains(channel); }
    Unexpected& keep(int source, const Frame& frame);
    /// With memory for its bytes.
    Unexpected& keep_with_bytes(int source, const Frame& frame);
    /// The message that a receive meets; null: none waits.
    Unexpected* find(const Transfer& receive);
    void forget(const Unexpected& message);
    void forget_if(std::uint64_t channel, const std::function<bool(const Unexpected&)>& condition);
    void forget_if(const std::function<bool(const Unexpected&)>& condition);
    /// Calls `see` for each.
    void for_each_unexpected(const std::function<void(const Unexpected&)>& see) const { unexpected_.for_each(see); }
    /// All on a channel, in the order of their arrival.
    const std::list<Unexpected>& on(std::uint64_t channel) const;

    void drop_all();

 private:
    ByChannel<Transfer*> posted_;
    ByChannel<Unexpected> unexpected_;  // in order of arrival
    SpareMemory memory_;                // of their bytes
    std::size_t posted_for_any_ = 0;    // receives of any source
};

}  // namespace tutti::transport
