// Running: a collective that is under way on this rank.
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

/// A function of a user's, which a step calls, has thrown. The execution runs no further.
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
    /// Steps done, steps in all, and what it waits for; for messages.
    virtual std::string where() const = 0;
    /// Whether nothing is left to be sent to that rank, as far as it can tell.
    virtual bool has_sent_all(int /*peer*/) const noexcept { return false; }
    /// Adds the ranks that it waits for now to `ranks`, which is empty.
    virtual void add_waits(std::vector<int>& ranks) const = 0;
    std::vector<int> waits_for() const {
        std::vector<int> ranks;
        add_waits(ranks);
        return ranks;
    }
    /// A peer of this host that does something else at this sequence number: (rank, its fingerprint).
    virtual const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept = 0;
    /// Once it is done: why it failed; null: it did not.
    virtual std::exception_ptr error() const noexcept { return nullptr; }
    /// Whether another library runs it, so that nobody can say which ranks it waits for.
    virtual bool is_opaque() const noexcept { return false; }
    /// Adds the descriptors that tell that it can go on, besides those of the mailbox.
    virtual void pollables(std::vector<transport::Pollable>& /*into*/) const {}
};

/// An operation has several channels where its messages would meet the wrong receives otherwise: these bits, which no
/// sequence number reaches, hold the number of the channel. They begin here.
inline constexpr int part_of_channel_shift = 41;

}  // namespace tutti::engine
