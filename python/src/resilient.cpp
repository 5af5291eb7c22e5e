// A loop of steps that outlives its ranks, with steps of Python's.
#include <tutti/resilient.hpp>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "calls.hpp"
#include "errors.hpp"
#include "groups.hpp"
#include "parts.hpp"
#include "stores.hpp"
#include "work.hpp"

namespace tutti::python {
namespace {

/// What the step gets: the loop, as long as that runs.
struct LoopOfSteps {
    Resilience* loop = nullptr;
    Resilience& get() const {
        if (loop == nullptr) throw InvalidArgument("Resilience: its loop has ended: expected a use in the step");
        return *loop;
    }
};

// On the thread that runs the loop, which has given the interpreter's lock away.
void with_lock(const std::function<void()>& call) {
    if (!with_gil(call)) throw std::runtime_error("the interpreter has ended");
}
std::function<void()> function_without_arguments(nb::handle function) {
    if (function.is_none()) return {};
    return [function] { with_lock([&] { function(); }); };
}

/// Errors that another group does not mend.
bool ends_the_loop(const std::exception_ptr& error) {
    bool ends = false;
    with_lock([&] {
        try {
            std::rethrow_exception(error);
        } catch (const nb::python_error& python) {
            const nb::module_ errors = nb::module_::import_("tutti.errors");
            ends = !python.matches(PyExc_Exception) || python.matches(errors.attr("InvalidArgument")) ||
                   python.matches(errors.attr("CollectiveMismatch"));
        } catch (...) {  // the loop knows tutti's own
        }
    });
    return ends;
}

nb::object run_resilient(nb::handle step, nb::handle state, std::int64_t steps, std::int64_t first, nb::handle save,
                         nb::handle load, nb::handle keep, nb::handle undo, nb::handle group, nb::handle place,
                         const std::string& name, nb::handle wait, int min_size, int max_size, int max_failures,
                         nb::handle timeout, nb::handle patience) {
    constexpr const char* caller = "resilient";
    const ArrayList arrays(state, Array::Access::write, caller, "state");
    ResilientOptions o{.state = arrays.views(),
                       .keep = function_without_arguments(keep),
                       .undo = function_without_arguments(undo),
                       .steps = steps,
                       .first = first,
                       .group = group.is_none() ? ProcessGroup() : group_of(group, caller),
                       .name = name,
                       .wait = duration_of(wait, caller, "wait"),
                       .min_size = min_size,
                       .max_size = max_size,
                       .max_failures = max_failures,
                       .timeout = timeout_of(timeout, caller),
                       .patience = duration_of(patience, caller, "patience"),
                       .ends = ends_the_loop};
    if (!place.is_none()) o.place = store_of(place, caller);
    if (!save.is_none()) {
        o.save = [save] {
            std::string bytes;
            with_lock([&] {
                const nb::object saved = save();
                if (!nb::isinstance<nb::bytes>(saved)) throw_type_error("resilient", "save", saved, "bytes from it");
                const auto view = nb::cast<nb::bytes>(saved);
                bytes.assign(view.c_str(), view.size());
            });
            return bytes;
        };
    }
    if (!load.is_none()) {
        o.load = [load](const std::string& bytes) { with_lock([&] { load(nb::bytes(bytes.data(), bytes.size())); }); };
    }
    LoopOfSteps own;
    const nb::object seen = nb::cast(own);
    auto& loop = nb::cast<LoopOfSteps&>(seen);
    struct End {
        LoopOfSteps& loop;
        ~End() { loop.loop = nullptr; }
    } const end{loop};
    const auto call = [&](Resilience& r) {
        with_lock([&] {
            loop.loop = &r;
            step(seen);
        });
    };
    return group_object(without_gil([&] { return resilient(o, call); }));
}

}  // namespace

void bind_resilient(nb::module_& m) {
    nb::class_<LoopOfSteps>(m, "Resilience", "The loop of tutti.distributed.resilient, as a step sees it.")
        .def_prop_ro(
            "group", [](const LoopOfSteps& self) { return GroupObject(group_object(self.get().group())); },
            "The ranks of this step; a step that is done again may have others.")
        .def_prop_ro(
            "step", [](const LoopOfSteps& self) { return self.get().step(); }, "The number of this step, from 0.")
        .def_prop_ro(
            "is_new_group", [](const LoopOfSteps& self) { return self.get().is_new_group(); },
            "Whether the group has completed no step yet: what was made of its predecessor has to be made anew.")
        .def_prop_ro(
            "recoveries", [](const LoopOfSteps& self) { return self.get().recoveries(); },
            "How many groups this rank has seen fail and be replaced.")
        .def(
            "stop", [](const LoopOfSteps& self) { self.get().stop(); },
            "All ranks end the loop when this step is completed; any rank may say so.");
    m.def("resilient", &run_resilient, nb::sig("def resilient(*arguments: typing.Any) -> ProcessGroup"));
}

}  // namespace tutti::python
