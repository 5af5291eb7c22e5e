// For tests: one of two ranks, in the test's thread, over an arena that both share. It makes progress only when the
// test asks; the test tells it which ranks have died or left, and decides about its failures.
#pragma once

#include "group/collectives.hpp"
#include "operation/fingerprint.hpp"
#include "world/world.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::detail::test {

inline constexpr int two = 2;

/// All ranks share memory, so there are no connections.
struct NoConnector final : transport::Connector {
    security::Connection connect(int /*peer*/, const Deadline& /*limit*/) override {
        throw DistNetworkError("nobody is elsewhere");
    }
    bool has_incoming() const noexcept override { return false; }
    std::vector<std::pair<int, security::Connection>> take_incoming() override { return {}; }
    std::uint64_t next_round() const noexcept override { return 1; }
    bool is_through(std::uint64_t /*round*/) const noexcept override { return true; }
};

/// Records accusations, and leaves the verdict to the accusing rank.
struct Judge final : WorldFailures {
    explicit Judge(OperationsInFlight& of) : flight(of) {}
    bool accuse(const rendezvous::Verdict& accusation) override {
        accusations.push_back(accusation);
        return false;
    }
    void fail_as_told(ErrorContext context) override {
        fail(std::make_exception_ptr(Timeout(accusations.back().text, std::move(context))));
    }
    void tell(const rendezvous::Verdict& /*verdict*/, bool /*here*/) override {}
    std::optional<rendezvous::Verdict> gone(int /*rank*/) const override { return {}; }
    std::vector<int> departed() const override { return {}; }
    std::vector<int> silent() const override { return {}; }
    void fail(const std::exception_ptr& error) override { flight.fail(error); }
    bool failing() const override { return flight.failing(); }
    OperationsInFlight& flight;
    std::vector<rendezvous::Verdict> accusations;
};

inline algorithm::Layout layout_of_two() {
    algorithm::Layout layout;
    layout.host_of = {0, 0};
    layout.shared_memory = true;
    layout.slot_bytes = transport::ArenaLayout::of(two, two).slot_bytes;
    layout.slots = transport::ArenaLayout::of(two, two).slots;
    return layout;
}

struct RankInThread {
    RankInThread(int rank, const std::shared_ptr<transport::Arena>& arena)
        : neighbours(rank, two, {0, 1}, {0, 0}, arena, transport::Reads::no),
          links({.rank = rank,
                 .congestion = transport::Congestion::from_environment(),
                 .lanes = transport::Lanes::from_environment(),
                 .checksums = std::vector(two, transport::Checksums::off),
                 .patience = std::chrono::seconds(1),
                 .short_copy = &policies.small_copy},
                neighbours, connector),
          verdicts(rank, two, "test", groups, flight, no_membership),
          flight(groups, verdicts),
          mailbox(rank, two, 1, links, groups, &neighbours),
          all({}, rank, two),
          recorder("test", rank, two, &group::Fingerprint::describe) {
        verdicts.attach(links, mailbox);
        flight.attach({.neighbours = &neighbours, .links = &links, .mailbox = &mailbox});
        collectives.emplace(parts());
    }

    Collectives::Parts parts() {
        return {.index = 0,
                .ranks = all,
                .planner = planner,
                .memory = memory,
                .recorder = recorder,
                .inquiry = inquiry,
                .flight = flight,
                .verdicts = verdicts,
                .groups = groups,
                .policies = policies,
                .neighbours = neighbours};
    }
    // Issues an in-place all_reduce of these values, without progress.
    std::shared_ptr<Operation> all_reduce(std::vector<float>& values) { return all_reduce(values, *collectives); }
    std::shared_ptr<Operation> all_reduce(std::vector<float>& values, Collectives& of) {
        auto operation = description_of_all_reduce(values);
        operation->run.started = Clock::now();
        operation->deadline = Deadline::after(operation->timeout);
        operation->run.sequence = of.next_number();
        const OperationsInFlight::Guard guard(flight);
        of.push(operation);
        return operation;
    }
    // An all_reduce that is not issued.
    std::shared_ptr<Operation> description_of_all_reduce(std::vector<float>& values) const {
        auto operation = std::make_shared<Operation>();
        operation->name = "all_reduce";
        auto* const data = reinterpret_cast<std::byte*>(values.data());
        operation->call = {
            .collective = Collective::all_reduce,
            .input = data,
            .output = data,
            .dtype = DType::float32,
            .in_place = true,
            .fingerprint = group::Fingerprint::pack(static_cast<int>(Collective::all_reduce), DType::float32,
                                                    ReduceOp::Kind::sum, -1, values.size())};
        operation->call.set_count(values.size());
        operation->timeout = std::chrono::seconds(1);
        return operation;
    }
    void hear(rendezvous::VerdictKind kind) { verdicts.hear({kind, 1 - all.rank(), "the other has gone"}); }

    LocalPolicies policies;
    transport::Neighbours neighbours;
    NoConnector connector;
    transport::Links links;
    HashStore store;
    GroupTable groups{"test", store};
    std::unique_ptr<rendezvous::Membership> no_membership;
    Verdicts verdicts;
    OperationsInFlight flight;
    transport::Mailbox mailbox;
    Ranks all;
    Planner planner{layout_of_two(), all.rank(), false};
    record::Recorder recorder;
    Judge judge{flight};
    FailureInquiry inquiry{"test", 0, all, recorder, store, judge};
    GroupMemory memory{all, {0, 0}, 0, {}, neighbours, flight.mutex()};
    std::optional<Collectives> collectives;
};

inline std::string text_of(const Operation& operation) {
    try {
        if (operation.error()) std::rethrow_exception(operation.error());
        return "no error";
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace tutti::detail::test
