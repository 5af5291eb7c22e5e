// LibraryCollective: a collective that the library of a group's transport runs. LibraryAgreement: the check before it.
// The library does not compare arguments: if ranks make different calls, it mixes their values, fails, or hangs. So all
// ranks first run a barrier whose messages carry the collective's fingerprint in their headers: no rank leaves the
// barrier before all have entered it with the same call.
//
// An error of the library after a rank's death is a symptom: the collective fails with it only if no cause becomes
// known within a second.
//
// Threads: one at a time (the world's lock).
#pragma once

#include "core/deadline.hpp"
#include "engine/execution.hpp"

#include <tutti/backend.hpp>
#include <tutti/transport.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace tutti::detail {

class LibraryAgreement {
 public:
    /// `barrier`: the schedule to run. `context`: that of the group's collectives; only its mailbox is replaced by
    /// `mailbox`, which carries the barrier's messages.
    LibraryAgreement(engine::RankContext context, std::shared_ptr<const schedule::Schedule> barrier,
                     transport::Mailbox& mailbox)
        : context_(std::move(context)), barrier_(std::move(barrier)) {
        context_.mailbox = &mailbox;
    }
    LibraryAgreement(const LibraryAgreement&) = delete;
    LibraryAgreement& operator=(const LibraryAgreement&) = delete;

    transport::Mailbox& mailbox() const noexcept { return *context_.mailbox; }
    /// Begins the barrier before a collective. The previous barrier must have ended.
    std::unique_ptr<engine::Running> begin(std::uint64_t channel, std::uint64_t fingerprint);
    /// Takes back a barrier that has ended, to reuse its memory for the next one.
    void end(std::unique_ptr<engine::Running> barrier);

 private:
    engine::RankContext context_;
    const std::shared_ptr<const schedule::Schedule> barrier_;
    std::unique_ptr<engine::Execution> over_;
};

class LibraryCollective final : public engine::Running {
 public:
    /// The library computes the sum of an average; this division follows it.
    struct Division {
        std::uint64_t elements = 0;  ///< of this rank's result
        std::uint64_t divisor = 1;
    };
    /// `call` refers to `request`.
    LibraryCollective(std::unique_ptr<const BackendRequest> request, std::unique_ptr<transport::LibraryCall> call,
                      Division division)
        : request_(std::move(request)), call_(std::move(call)), division_(division) {}

    bool progress() override;
    bool done() const noexcept override { return done_; }
    std::string where() const override { return "in the transport's library"; }
    void add_waits(std::vector<int>& /*ranks*/) const override {}
    const std::optional<std::pair<int, std::uint64_t>>& mismatch() const noexcept override { return none_; }
    std::exception_ptr error() const noexcept override { return done_ ? error_ : nullptr; }
    bool is_opaque() const noexcept override { return true; }
    void pollables(std::vector<transport::Pollable>& into) const override;

 private:
    void divide() const;

    const std::unique_ptr<const BackendRequest> request_;
    const std::unique_ptr<transport::LibraryCall> call_;  // destroyed before the request
    const Division division_;
    bool done_ = false;
    std::exception_ptr error_;
    Instant failed_;
    const std::optional<std::pair<int, std::uint64_t>> none_;
};

}  // namespace tutti::detail
