#include "groups.hpp"

#include "calls.hpp"
#include "pg_options.hpp"
#include "stores.hpp"

#include <tutti/coalescing.hpp>
#include <tutti/debug.hpp>
#include <tutti/device_mesh.hpp>
#include <tutti/groups.hpp>
#include <tutti/newcomers.hpp>
#include <tutti/spawn.hpp>

#include <fmt/format.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <map>
#include <mutex>

namespace tutti::python {
namespace {

struct PickleGroups {
    nb::ft_mutex mutex;
    std::map<std::weak_ptr<tutti::detail::Group>, bool, std::owner_less<>> allowed;
};
PickleGroups& pickle_groups() {
    static auto* groups = new PickleGroups();
    return *groups;
}

// Arrays of the calls that a coalescing scope of this thread has collected.
thread_local std::vector<Array>* collected = nullptr;

GroupList group_objects(const std::vector<ProcessGroup>& groups) {
    GroupList result;
    for (const ProcessGroup& group : groups) result.append(group_object(group));
    return result;
}

std::vector<int> ranks_of(nb::handle ranks, const char* operation, const char* argument) {
    try {
        return nb::cast<std::vector<int>>(nb::list(nb::borrow(ranks)));
    } catch (const nb::cast_error&) {
        throw_type_error(operation, argument, ranks, "a list of ranks");
    } catch (nb::python_error&) {
        throw_type_error(operation, argument, ranks, "a list of ranks");
    }
}

std::vector<std::vector<int>> rank_lists_of(nb::handle lists, const char* operation, const char* argument) {
    std::vector<std::vector<int>> result;
    for (const nb::handle ranks : nb::list(nb::borrow(lists))) result.push_back(ranks_of(ranks, operation, argument));
    return result;
}

NewGroupOptions new_group_options(nb::handle timeout, const std::string& backend, bool local,
                                  const std::string& description, nb::handle device_id, nb::handle pg_options,
                                  const char* operation) {
    NewGroupOptions options{.timeout = duration_of(timeout, operation, "timeout"),
                            .backend = backend,
                            .use_local_synchronization = local,
                            .group_desc = description};
    if (!device_id.is_none()) options.device_id = device_of(device_id, operation);
    // Without a backend it is the world's, with other options.
    options.pg_options = pg_options_of(pg_options, backend, operation);
    return options;
}

TransportKind transport_of(const std::string& name) {
    if (name == "automatic") return TransportKind::automatic;
    if (name == "shm") return TransportKind::shm;
    if (name == "tcp") return TransportKind::tcp;
    throw InvalidArgument(fmt::format("init_process_group: transport is '{}': expected automatic, shm or tcp", name));
}
Determinism determinism_of(const std::string& name) {
    if (name == "fast") return Determinism::fast;
    if (name == "run_to_run") return Determinism::run_to_run;
    if (name == "layout_invariant") return Determinism::layout_invariant;
    throw InvalidArgument(
        fmt::format("init_process_group: determinism is '{}': expected fast, run_to_run or layout_invariant", name));
}

void init(const std::string& backend, const std::string& init_method, nb::handle timeout, int world_size, int rank,
          nb::handle store, const std::string& group_name, nb::handle pg_options, nb::handle device_id,
          const std::string& transport, const std::string& determinism) {
    constexpr const char* operation = "init_process_group";
    InitOptions options{.backend = backend,
                        .init_method = init_method,
                        .timeout = duration_of(timeout, operation, "timeout"),
                        .world_size = world_size,
                        .rank = rank,
                        .group_name = group_name,
                        .transport = transport_of(transport),
                        .determinism = determinism_of(determinism)};
    if (!store.is_none()) options.store = store_of(store, operation);
    if (!device_id.is_none()) options.device_id = device_of(device_id, operation);
    options.pg_options = pg_options_of(pg_options, backend, operation);
    without_gil([&] { init_process_group(options); });
}

class CoalescingScope {
 public:
    explicit CoalescingScope(ProcessGroup group) : group_(std::move(group)) {}

    void enter() {
        scope_ = std::make_unique<Coalescing>(CoalescingOptions{.group = group_});
        outer_ = std::exchange(collected, &arrays_);
    }
    nb::object end() {
        leave();
        const InStream in_stream(source_of(arrays_));
        Work work = without_gil([&] { return scope_->end(); });
        scope_.reset();
        if (!work) return nb::none();
        return PendingWork::object(std::move(work), std::move(arrays_), nb::object());
    }
    void drop() {
        leave();
        // Drops the collected calls: the scope ends as after an exception.
        try {
            const std::unique_ptr<Coalescing> scope = std::move(scope_);
            throw InvalidArgument("dropped");
        } catch (const InvalidArgument&) {
        }
        arrays_.clear();
    }
    void abort() {
        ProcessGroup group = group_ ? group_ : default_group();
        without_gil([&] { group.abort(fmt::format("rank {} was interrupted by a signal", group.rank())); });
    }

 private:
    void leave() { collected = std::exchange(outer_, nullptr); }
    ProcessGroup group_;
    std::unique_ptr<Coalescing> scope_;
    std::vector<Array> arrays_;
    std::vector<Array>* outer_ = nullptr;
};

void bind_process_group(nb::module_& m) {
    nb::class_<ProcessGroup>(m, "ProcessGroup",
                             "Ranks that communicate. A handle: equal handles name the same group.\n\n"
                             "Calls from several threads are safe one by one, but collectives of one group must be\n"
                             "issued in the same order on all ranks.\n\n"
                             "Example:\n"
                             "    >>> group = dist.new_group()\n"
                             "    >>> group.rank(), group.size(), group.ranks\n"
                             "    (0, 1, [0])")
        .def(
            "__init__",
            [](ProcessGroup* self, nb::handle store, int rank, int size, nb::handle timeout, const std::string& name,
               const std::string& backend) {
                ProcessGroupOptions options{.store = store_of(store, "ProcessGroup"),
                                            .rank = rank,
                                            .world_size = size,
                                            .name = name,
                                            .backend = backend};
                if (const auto time = duration_of(timeout, "ProcessGroup", "timeout")) options.timeout = *time;
                new (self) ProcessGroup(without_gil([&] { return ProcessGroup(options); }));
            },
            nb::arg("store"), nb::arg("rank"), nb::arg("size"), nb::arg("timeout") = nb::none(),
            nb::arg("name") = "world", nb::arg("backend") = "",
            nb::sig("def __init__(self, store: Store, rank: int, size: int, timeout: datetime.timedelta | None = None, "
                    "name: str = 'world', backend: str = '') -> None"),
            "Joins a world of its own, beside the default group; returns when all ranks have.")
        .def(
            "rank", [](const ProcessGroup& self) { return get_rank(self); }, "-1: not a member.")
        .def(
            "size", [](const ProcessGroup& self) { return get_world_size(self); }, "-1: not a member.")
        .def(
            "name", [](const ProcessGroup& self) { return self.backend(); }, "The backend's name.")
        .def_prop_ro("group_name", [](const ProcessGroup& self) { return self.name(); })
        .def_prop_ro("group_desc", [](const ProcessGroup& self) { return self.description(); })
        .def_prop_ro("ranks", &ProcessGroup::ranks, "Global ranks, by group rank.")
        .def_prop_ro("hosts", &ProcessGroup::hosts, "The index of each rank's host.")
        .def_prop_ro("is_non_member", &ProcessGroup::is_non_member)
        .def_prop_rw(
            "timeout", [](const ProcessGroup& self) { return timedelta(self.timeout()); },
            [](ProcessGroup& self, nb::handle timeout) {
                if (const auto time = duration_of(timeout, "ProcessGroup", "timeout")) self.set_timeout(*time);
            },
            nb::for_getter(nb::sig("def timeout(self) -> datetime.timedelta")),
            nb::for_setter(nb::sig("def timeout(self, timeout: datetime.timedelta, /) -> None")))
        .def_prop_rw(
            "allow_pickle", &allows_pickle,
            [](ProcessGroup& self, bool allow) {
                auto& [mutex, allowed] = pickle_groups();
                const nb::ft_lock_guard lock(mutex);
                allowed[self.impl()] = allow;
            },
            "Whether the object collectives of this group may pickle what they cannot describe.")
        .def(
            "split",
            [](const ProcessGroup& self, int color, int key, nb::handle timeout, const std::string& group_desc,
               nb::handle pg_options) {
                const SplitOptions options{
                    .color = color,
                    .key = key,
                    .timeout = duration_of(timeout, "ProcessGroup.split", "timeout"),
                    .group_desc = group_desc,
                    .pg_options = pg_options_of(pg_options, self.backend(), "ProcessGroup.split")};
                return group_object(without_gil([&] { return self.split(options); }));
            },
            nb::arg("color"), nb::arg("key") = 0, nb::arg("timeout") = nb::none(), nb::arg("group_desc") = "",
            nb::arg("pg_options") = nb::none(),
            nb::sig("def split(self, color: int, key: int = 0, timeout: datetime.timedelta | None = None, "
                    "group_desc: str = '', pg_options: typing.Any = None) -> ProcessGroup"),
            "Groups of the ranks with equal colours; a negative colour joins none.")
        .def(
            "shrink",
            [](const ProcessGroup& self, nb::handle timeout, nb::handle patience) {
                const ShrinkOptions options{.timeout = timeout_of(timeout, "ProcessGroup.shrink"),
                                            .patience = duration_of(patience, "ProcessGroup.shrink", "patience")};
                return group_object(without_gil([&] { return self.shrink(options); }));
            },
            nb::arg("timeout") = nb::none(), nb::arg("patience") = nb::none(),
            nb::sig("def shrink(self, timeout: datetime.timedelta | None = None, "
                    "patience: datetime.timedelta | None = None) -> ProcessGroup"),
            "The group of those that are left when ranks have died.")
        .def(
            "grow",
            [](const ProcessGroup& self, nb::handle place, const std::string& name, int count, nb::handle timeout,
               nb::handle patience, std::optional<int> at_least, nb::handle wait) {
                const GrowOptions options{.place = store_of(place, "ProcessGroup.grow"),
                                          .name = name,
                                          .count = count,
                                          .at_least = at_least,
                                          .wait = duration_of(wait, "ProcessGroup.grow", "wait"),
                                          .timeout = timeout_of(timeout, "ProcessGroup.grow"),
                                          .patience = duration_of(patience, "ProcessGroup.grow", "patience")};
                return group_object(without_gil([&] { return self.grow(options); }));
            },
            nb::arg("place"), nb::arg("name") = "newcomers", nb::arg("count") = 0, nb::arg("timeout") = nb::none(),
            nb::arg("patience") = nb::none(), nb::arg("at_least") = nb::none(), nb::arg("wait") = nb::none(),
            nb::sig("def grow(self, place: Store, name: str = 'newcomers', count: int = 0, timeout: datetime.timedelta "
                    "| None = None, patience: datetime.timedelta | None = None, at_least: int | None = None, wait: "
                    "datetime.timedelta | None = None) -> ProcessGroup"),
            "A group of this one's ranks and of the newcomers that wait in `place` (tutti.distributed.join). All ranks "
            "call\n"
            "it. count 0: those that wait now; after a failure as many as ranks are lost, and they take their "
            "numbers.\n"
            "With fewer than `count` it grows all the same after `wait`, if `at_least` have come.\n"
            "If it fails, all get the same message, and this group stays as it was.")
        .def("is_newcomer", &ProcessGroup::is_newcomer, "Whether this process came into the group by join.")
        .def(
            "adopt",
            [](const ProcessGroup& self, nb::handle tensors) {
                const ArrayList arrays(tensors, Array::Access::write, "adopt", "tensors");
                const TensorList views = arrays.views();
                without_gil([&] { self.adopt(views); });
            },
            nb::arg("tensors"), nb::sig("def adopt(self, tensors: typing.Sequence[Array]) -> None"),
            "Broadcasts the tensors from the lowest rank that is no newcomer.")
        .def(
            "abort", [](ProcessGroup& self, const std::string& reason) { without_gil([&] { self.abort(reason); }); },
            nb::arg("reason") = "asked for", "Ends every operation in flight, on all ranks, with Aborted.")
        .def(
            "destroy", [](ProcessGroup& self) { without_gil([&] { self.destroy(); }); }, "Leaves the group.")
        .def(
            "allreduce",
            [](const ProcessGroup& self, nb::handle tensors, nb::handle options) {
                const bool one = !PyList_Check(tensors.ptr()) && !PyTuple_Check(tensors.ptr());
                nb::list list;
                if (one)
                    list.append(tensors);
                else
                    list = nb::list(nb::borrow(tensors));
                ArrayList arrays(list, Array::Access::write, "allreduce", "tensors");
                AllReduceOptions wanted;
                if (!options.is_none()) {
                    if (!nb::hasattr(options, "reduceOp") || !nb::hasattr(options, "timeout")) {
                        throw_type_error("allreduce", "opts", options, "an AllreduceOptions or None");
                    }
                    wanted.op = op_of(options.attr("reduceOp"), "allreduce");
                    wanted.timeout = timeout_of(options.attr("timeout"), "allreduce");
                }
                const auto views = arrays.views();
                wanted.group = self;
                // One tensor is an ordinary all_reduce, which DETAIL checks.
                return begin(std::move(arrays.arrays), list, [&] {
                    return views.size() == 1 ? async::all_reduce(views[0], wanted) : self.allreduce(views, wanted);
                });
            },
            nb::arg("tensors"), nb::arg("opts") = nb::none(),
            nb::sig("def allreduce(self, tensors: typing.Any, opts: typing.Any = None) -> Work"),
            "Starts all_reduce of each tensor, with one Work.")
        .def(
            "__eq__",
            [](const ProcessGroup& self, nb::handle other) {
                return nb::isinstance<ProcessGroup>(other) && self == nb::cast<const ProcessGroup&>(other);
            },
            nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__",
             [](const ProcessGroup& self) {
                 return static_cast<Py_ssize_t>(std::hash<const void*>()(self.impl().get()) >> 4);
             })
        .def("__repr__", [](const ProcessGroup& self) {
            if (self.is_non_member()) return std::string("<GroupMember.NON_GROUP_MEMBER>");
            return fmt::format("<ProcessGroup \"{}\": rank {} of {}>", self.name(), self.rank(), self.size());
        });
    m.attr("NON_GROUP_MEMBER") = nb::cast(ProcessGroup::non_member());
}

void bind_making(nb::module_& m) {
    m.def("init_process_group", &init);
    m.def("become_spawned_rank", &become_spawned_rank);
    m.def("join", [](nb::handle place, const std::string& name, nb::handle timeout, const std::string& label) {
        JoinOptions options{.place = store_of(place, "join"), .name = name, .label = label};
        if (!timeout.is_none()) options.timeout = timeout_of(timeout, "join");
        return GroupObject(group_object(without_gil([&] { return join(options); })));
    });
    m.def("newcomers_waiting", [](nb::handle place, const std::string& name) {
        const NewcomersPlace where{store_of(place, "newcomers_waiting"), name};
        return without_gil([&] { return newcomers_waiting(where); });
    });
    m.def("destroy_process_group", [](nb::handle group) {
        const ProcessGroup which = group_of(group, "destroy_process_group");
        without_gil([&] { destroy_process_group(which); });
        release_completed();
    });
    m.def("is_available", &is_available);
    m.def("is_initialized", &is_initialized);
    m.def("default_group", [] { return GroupObject(group_object(default_group())); });
    m.def("set_default_group", [](nb::handle group) { set_default_group(group_of(group, "set_default_group")); });
    m.def("get_rank", [](nb::handle group) { return get_rank(group_of(group, "get_rank")); });
    m.def("get_world_size", [](nb::handle group) { return get_world_size(group_of(group, "get_world_size")); });
    m.def("get_backend", [](nb::handle group) { return get_backend(group_of(group, "get_backend")); });
    m.def("get_group_rank",
          [](nb::handle group, int rank) { return get_group_rank(group_of(group, "get_group_rank"), rank); });
    m.def("get_global_rank",
          [](nb::handle group, int rank) { return get_global_rank(group_of(group, "get_global_rank"), rank); });
    m.def("get_process_group_ranks",
          [](nb::handle group) { return get_process_group_ranks(group_of(group, "get_process_group_ranks")); });
    m.def("is_torchelastic_launched", &is_torchelastic_launched);

    m.def("new_group", [](nb::handle ranks, nb::handle timeout, const std::string& backend, nb::handle pg_options,
                          bool local, const std::string& description, nb::handle device_id) {
        const auto options =
            new_group_options(timeout, backend, local, description, device_id, pg_options, "new_group");
        if (ranks.is_none()) return GroupObject(group_object(without_gil([&] { return new_group(options); })));
        auto list = ranks_of(ranks, "new_group", "ranks");
        return GroupObject(group_object(without_gil([&] { return new_group(std::move(list), options); })));
    });
    m.def("new_groups", [](nb::handle lists, nb::handle timeout, const std::string& backend) {
        const NewGroupOptions options{.timeout = duration_of(timeout, "new_groups", "timeout"), .backend = backend};
        auto ranks = rank_lists_of(lists, "new_groups", "ranks");
        return group_objects(without_gil([&] { return new_groups(std::move(ranks), options); }));
    });
    m.def("new_subgroups", [](int size, nb::handle timeout, const std::string& backend, nb::handle pg_options,
                              const std::string& description) {
        const auto options =
            new_group_options(timeout, backend, false, description, nb::none(), pg_options, "new_subgroups");
        const auto made = without_gil([&] { return new_subgroups(size, options); });
        return GroupAndList(nb::make_tuple(group_object(made.first), group_objects(made.second)));
    });
    m.def("new_subgroups_by_enumeration", [](nb::handle lists, nb::handle timeout, const std::string& backend,
                                             nb::handle pg_options, const std::string& description) {
        constexpr const char* operation = "new_subgroups_by_enumeration";
        const auto options = new_group_options(timeout, backend, false, description, nb::none(), pg_options, operation);
        auto ranks = rank_lists_of(lists, operation, "ranks_per_subgroup_list");
        const auto made = without_gil([&] { return new_subgroups_by_enumeration(std::move(ranks), options); });
        return GroupAndList(nb::make_tuple(group_object(made.first), group_objects(made.second)));
    });
}

void bind_looking(nb::module_& m) {
    nb::enum_<DebugLevel>(m, "DebugLevel", "How much is looked after.")
        .value("OFF", DebugLevel::off)
        .value("INFO", DebugLevel::info)
        .value("DETAIL", DebugLevel::detail);
    m.def("get_debug_level", &get_debug_level, "The debug level of this process.");
    m.def("set_debug_level", &set_debug_level, nb::arg("level"), "Sets it; must be the same on all ranks.");
    m.def("set_debug_level_from_env", &set_debug_level_from_env,
          "Reads it from TUTTI_DISTRIBUTED_DEBUG, else TORCH_DISTRIBUTED_DEBUG.");

    nb::class_<CoalescingScope>(m, "CoalescingScope", "Collects this thread's calls on a group; see coalescing.")
        .def(
            "__init__",
            [](CoalescingScope* self, nb::handle group) { new (self) CoalescingScope(group_of(group, "coalescing")); },
            nb::arg("group") = nb::none(), nb::sig("def __init__(self, group: typing.Any = None) -> None"))
        .def("enter", &CoalescingScope::enter)
        .def("end", &CoalescingScope::end, nb::sig("def end(self) -> Work | None"))
        .def("drop", &CoalescingScope::drop)
        .def("abort", &CoalescingScope::abort);
}

}  // namespace

nb::object group_object(const ProcessGroup& group) {
    if (group.is_non_member()) return nb::module_::import_("tutti._core").attr("NON_GROUP_MEMBER");
    return nb::cast(group);
}

bool allows_pickle(const ProcessGroup& group) {
    const ProcessGroup actual = group || group.is_non_member() || !is_initialized() ? group : default_group();
    auto& [mutex, allowed] = pickle_groups();
    const nb::ft_lock_guard lock(mutex);
    const auto found = allowed.find(actual.impl());
    return found != allowed.end() && found->second;
}

// PyTorch's words. The frame above the package's function is the caller's.
bool is_outside(const ProcessGroup& group, const char* operation) {
    if (!group.is_non_member()) return false;
    const int rank = is_initialized() ? get_rank() : -1;
    const std::string text =
        fmt::format("Running {} on global rank {} which does not belong to the given group.", operation, rank);
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 2) != 0) throw nb::python_error();
    return true;
}

ProcessGroup group_of(nb::handle group, const char* operation) {
    if (group.is_none()) return {};
    if (nb::isinstance<ProcessGroup>(group)) return nb::cast<const ProcessGroup&>(group);
    if (nb::isinstance<DeviceMesh>(group)) {
        const auto mesh = nb::cast<DeviceMesh>(group);
        return without_gil([&] { return mesh.get_group(); });
    }
    throw_type_error(operation, "group", group, "a ProcessGroup, a DeviceMesh of one dimension, or None");
}

std::optional<int> rank_of(nb::handle rank, const char* operation, const char* argument) {
    if (rank.is_none()) return std::nullopt;
    const long value = PyLong_AsLong(rank.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        throw_type_error(operation, argument, rank, "a rank, an integer");
    }
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
        throw InvalidArgument(fmt::format("{}: {} is {}: expected a rank", operation, argument, value));
    }
    return static_cast<int>(value);
}

int integer_of(nb::handle value, const char* operation, const char* argument) {
    if (!PyIndex_Check(value.ptr())) throw_type_error(operation, argument, value, "an integer");
    return *rank_of(value, operation, argument);
}

bool flag_of(nb::handle flag, const char* operation, const char* argument) {
    if (flag.ptr() == Py_False) return false;
    if (flag.ptr() == Py_True) return true;
    throw_type_error(operation, argument, flag, "True or False");
}

ReduceOp op_of(nb::handle op, const char* operation) {
    if (nb::isinstance<ReduceOp>(op)) return nb::cast<const ReduceOp&>(op);
    if (nb::isinstance<ReduceOp::Kind>(op)) return ReduceOp(nb::cast<ReduceOp::Kind>(op));
    throw_type_error(operation, "op", op, "a ReduceOp, such as ReduceOp.SUM");
}

std::optional<milliseconds> duration_of(nb::handle timeout, const char* operation, const char* argument) {
    if (timeout.is_none()) return std::nullopt;
    if (!nb::hasattr(timeout, "total_seconds")) {
        throw_type_error(operation, argument, timeout, "a datetime.timedelta, such as timedelta(seconds=30)");
    }
    const auto seconds = nb::cast<double>(timeout.attr("total_seconds")());
    if (seconds < 0) {
        throw InvalidArgument(fmt::format("{}: {} is {} s: expected zero or more", operation, argument, seconds));
    }
    // A nonzero time never becomes zero, which would mean "the group's".
    const auto whole = static_cast<std::int64_t>(seconds * 1e3);
    return milliseconds(whole == 0 && seconds > 0 ? 1 : whole);
}

nb::object timedelta(milliseconds time) {
    return nb::module_::import_("datetime").attr("timedelta")(nb::arg("milliseconds") = time.count());
}

std::any shared_object(nb::handle object) {
    return std::shared_ptr<PyObject>(nb::borrow(object).release().ptr(), [](PyObject* pointer) {
        const nb::gil_scoped_acquire lock;
        Py_DECREF(pointer);
    });
}

void keep_if_collected(std::vector<Array>& arrays) {
    if (collected == nullptr) return;
    for (Array& array : arrays) collected->push_back(std::move(array));
}

void bind_groups(nb::module_& m) {
    bind_process_group(m);
    bind_making(m);
    bind_looking(m);
}

}  // namespace tutti::python
