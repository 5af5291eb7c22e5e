// Plans: persistent operations, for calls that a program repeats on the same buffers.
//
// tutti::plan::NAME takes the arguments of tutti::NAME, checks them and chooses the algorithm, once; Plan::run() then
// runs the call. A plan sends the same messages as the plain call tutti::NAME: one rank may use a plan where another
// makes the plain call. Making a plan moves no data and waits for no other rank.
//
//     tutti::Plan step = tutti::plan::all_reduce(gradient);
//     for (;;) { fill(gradient); step.run(); }
//
// The plan's buffers must live as long as the plan; each run reads and writes their contents at that time. Follows
// MPI 4.0's persistent operations (MPI_Allreduce_init, MPI_Send_init).
#pragma once

#include <tutti/distributed.hpp>

#include <memory>

namespace tutti {

namespace detail {
class PlannedCall;
}

/// A call with its buffers, group and options. May be moved, not copied. Threads: one at a time for each plan; all
/// ranks run the plans of one group in the same order, like other calls. A plan keeps the group object alive, but the
/// group may be left: after ProcessGroup::destroy() each run throws Aborted. After its first runs a plan allocates no
/// memory, unless the program keeps the Work of an earlier run.
class TUTTI_API Plan {
 public:
    /// Empty: run() and start() throw InvalidArgument.
    Plan() noexcept;
    Plan(Plan&& other) noexcept;
    Plan& operator=(Plan&& other) noexcept;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    /// Does not wait for a call that start() has begun: the call continues, on the same buffers.
    ~Plan();
    explicit Plan(std::unique_ptr<detail::PlannedCall> call) noexcept;

    explicit operator bool() const noexcept { return call_ != nullptr; }

    /// Makes the call and blocks until it is complete. Throws the errors of the plain call; InvalidArgument while a
    /// call that start() began is not complete.
    void run();
    /// Begins the call, as tutti::async::NAME. Throws InvalidArgument while the previous call is not complete.
    [[nodiscard]] Work start();
    /// For a receive, the rank of the last message's sender. InvalidArgument for other calls and before the first run;
    /// after start() use Work::source_rank().
    int source_rank() const;

 private:
    detail::PlannedCall& checked(const char* method) const;
    std::unique_ptr<detail::PlannedCall> call_;
};

/// One plan for each blocking function of distributed.hpp, with its arguments, defaults and errors (InvalidArgument
/// here, all others in run()): tutti::plan::all_reduce, …, made from the table of collectives. If the timeout is zero,
/// each run uses the group's timeout at that time.
namespace plan {

#define TUTTI_OR_NONE = {}
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...) \
    [[nodiscard]] TUTTI_API Plan name(TUTTI_PARAMETERS_##tensors(Options));
#define TUTTI_FORMER_FUNCTION(former, name, tensors, Options)               \
    [[nodiscard]] inline Plan former(TUTTI_PARAMETERS_##tensors(Options)) { \
        return plan::name(TUTTI_ARGUMENTS_##tensors(options));              \
    }
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE
[[nodiscard]] TUTTI_API Plan send(ConstTensorView tensor, int dst, const SendOptions& options = {});
[[nodiscard]] TUTTI_API Plan recv(TensorView tensor, const RecvOptions& options = {});

}  // namespace plan

}  // namespace tutti
