// ArrayPlan, and the two ways of making a call: at once, or as a plan that runs later. One function describes the
// arguments of a collective, with the way as its first argument.
#pragma once

#include "calls.hpp"

#include <tutti/plan.hpp>

#include <utility>
#include <vector>

namespace tutti::python {

/// A Plan with the arrays that it was made with. Threads: one at a time.
class ArrayPlan {
 public:
    ArrayPlan(Plan plan, std::vector<Array> arrays, nb::object outputs)
        : plan_(std::move(plan)), arrays_(std::move(arrays)), outputs_(std::move(outputs)) {}

    /// A graph that captures the call keeps the plan, `self`.
    void run(const nb::object& self) {
        (void)keep_if_captured(self);
        const InStream in_stream(source_of(arrays_));
        without_gil([&] { plan_.run(); });
    }
    /// The plan owns the arrays, so the plan, `self`, lives as long as the operation.
    nb::object start(const nb::object& self) {
        StreamSource source = source_of(arrays_);
        const InStream in_stream(source);
        Work work = without_gil([&] { return plan_.start(); });
        if (!work) return nb::none();
        return PendingWork::object(std::move(work), outputs_, self, std::move(source));
    }
    int source_rank() const { return plan_.source_rank(); }

 private:
    Plan plan_;
    std::vector<Array> arrays_;
    nb::object outputs_;
};

/// The way that makes the call itself, blocking or not.
struct Now {
    bool async_op = false;

    /// The function's name for messages, from that of its plan: "plan.all_reduce".
    static constexpr const char* name(const char* planned) { return planned + sizeof("plan.") - 1; }
    template <class Blocking, class Async, class Planned>
    OptionalWork operator()(std::vector<Array> arrays, nb::object outputs, Blocking blocking, Async asynchronous,
                            Planned) const {
        if (async_op) return begin(std::move(arrays), std::move(outputs), asynchronous);
        block(arrays, blocking);
        return OptionalWork(nb::none());
    }
};

inline Now now(nb::handle async_op, const char* operation) {
    return {flag_of(async_op, operation, "async_op")};
}

/// The way that makes a plan of the call.
struct Later {
    static constexpr const char* name(const char* planned) { return planned; }
    template <class Blocking, class Async, class Planned>
    ArrayPlan operator()(std::vector<Array> arrays, nb::object outputs, Blocking, Async, Planned planned) const {
        Plan plan = without_gil(planned);
        return {std::move(plan), std::move(arrays), std::move(outputs)};
    }
};
/// A function that makes plans, for Python, which knows nothing of ways.
template <class... A>
auto later(ArrayPlan (*make)(Later, A...)) {
    return [make](A... arguments) { return make(Later{}, arguments...); };
}

}  // namespace tutti::python
