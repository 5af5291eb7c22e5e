// Running: a collective in progress on this rank.
//
// Never blocks: progress() does all that it can do now and returns. Threads: one at a time (the group's lock).
#pragma once

#include <tutti/transport.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tutti::engine {

/// A user's function, called by a step, has thrown. The execution stops.
class StepFailed : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

class Running {
 public:
    Running() = default;
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    virtual ~Running() = default;

    /// True if anything moved.
    virtual bool progress() = 0;
    virtual bool done() const noexcept = 0;
    /// Describes the progress for error messages: the number of steps done, of all steps, and what the collective waits
    /// for.
    virtual std::string where() const = 0;
    /// Whether nothing is left to send to `peer`, as far as is known.
    virtual bool has_sent_all(int /*peer*/) const noexcept { return false; }
    /// Adds the ranks that the collective waits for now to `ranks`, which is empty.
    virtual void add_waits(std::vector<int>& ranks) const = 0;
    std::vector<int> waits_for() const {
        std::vector<int> ranks;
        add_waits(ranks);
        return ranks;
    }
    /// A peer of this host that runs another call at this sequence number: (rank, its fingerprint).
    virtual const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept = 0;
    /// Once it is done: why it failed; null: it did not.
    virtual std::exception_ptr error() const noexcept { return nullptr; }
    /// Whether another library runs it, so that the ranks that it waits for are unknown.
    virtual bool is_opaque() const noexcept { return false; }
    /// Adds the descriptors, besides the mailbox's, that become ready when the collective can continue.
    virtual void pollables(std::vector<transport::Pollable>& /*into*/) const {}
};

/// The lowest of the bits that number the channels of one operation, above all sequence numbers. An operation has
/// several channels if its messages would otherwise match wrong receives.
inline constexpr int part_of_channel_shift = 41;

}  // namespace tutti::engine
