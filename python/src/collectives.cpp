// The collectives on arrays, and their plans, made from the table (tutti/collectives.def). Arguments are positional
// here: a function's arrays, its settings, the group, whether it is asynchronous (plans have no such argument), the
// timeout. tutti.distributed gives them their names and defaults.
#include "operators.hpp"
#include "parts.hpp"
#include "plans.hpp"

#include <tutti/coalescing.hpp>
#include <tutti/collectives.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace tutti::python {
namespace {

std::vector<Array> joined(std::vector<Array> list, std::vector<Array> more) {
    for (Array& array : more) list.push_back(std::move(array));
    return list;
}
nb::object as_list(nb::handle list) {
    return list.is_none() ? nb::object(nb::list()) : nb::object(nb::list(nb::borrow(list)));
}

// ---- The arrays of a function -------------------------------------------------------------------------------------

/// For messages.
struct Names {
    const char* function;
    const char* output;
    const char* input;
};

// Each type reads `count` arguments from `given` on, and passes views of them to a C++ function, before its options.

/// Of one argument, which the function reads and writes.
template <class Views>
struct InPlace {
    static constexpr std::size_t count = 1;
    template <class Function, class Options>
    auto pass(Function function, const Options& options) const {
        return function(views, options);
    }
    std::vector<Array> arrays;
    nb::object outputs;
    Views views{};
};

/// Of an output and an input.
template <class Output, class Input>
struct OutOfPlace {
    static constexpr std::size_t count = 2;
    template <class Function, class Options>
    auto pass(Function function, const Options& options) const {
        return function(to, from, options);
    }
    std::vector<Array> arrays;
    nb::object outputs;
    Output to{};
    Input from{};
};

struct TensorInPlace : InPlace<TensorView> {
    TensorInPlace(const nb::handle* given, const Names& names) {
        arrays = list_of(Array(given[0], writes, names.function, names.output));
        outputs = one(given[0]);
        views = arrays[0].view();
    }
};

using TensorAndRoot = TensorInPlace;

struct TensorFromTensor : OutOfPlace<TensorView, ConstTensorView> {
    TensorFromTensor(const nb::handle* given, const Names& names) {
        arrays = list_of(Array(given[0], writes, names.function, names.output),
                         Array(given[1], reads, names.function, names.input));
        outputs = one(given[0]);
        to = arrays[0].view();
        from = arrays[1].view();
    }
};

struct TensorFromList : OutOfPlace<TensorView, ConstTensorList> {
    TensorFromList(const nb::handle* given, const Names& names) {
        outputs = one(given[0]);
        ArrayList list(given[1], reads, names.function, names.input);
        from = list.const_views();
        arrays = joined(list_of(Array(given[0], writes, names.function, names.output)), std::move(list.arrays));
        to = arrays[0].view();
    }
};

using TensorFromRoot = TensorFromList;

/// The root alone gives the tensor that holds all blocks; elsewhere None is an empty one.
struct TensorOfRoot : OutOfPlace<TensorView, ConstTensorView> {
    TensorOfRoot(const nb::handle* given, const Names& names) {
        arrays = list_of(Array(given[0], writes, names.function, names.output));
        outputs = one(given[0]);
        to = arrays[0].view();
        if (given[1].is_none()) return;
        arrays.push_back(Array(given[1], reads, names.function, names.input));
        from = arrays[1].view();
    }
};
struct TensorToRoot : OutOfPlace<TensorView, ConstTensorView> {
    TensorToRoot(const nb::handle* given, const Names& names) {
        arrays = list_of(Array(given[0], reads, names.function, names.input));
        from = arrays[0].view();
        outputs = nb::list();
        if (given[1].is_none()) return;
        arrays.push_back(Array(given[1], writes, names.function, names.output));
        outputs = one(given[1]);
        to = arrays[1].view();
    }
    template <class Function, class Options>
    auto pass(Function function, const Options& options) const {
        return function(from, to, options);
    }
};

struct ListFromTensor : OutOfPlace<TensorList, ConstTensorView> {
    ListFromTensor(const nb::handle* given, const Names& names) : ListFromTensor(given[0], given[1], names) {}
    ListFromTensor(nb::handle output_list, nb::handle tensor, const Names& names) {
        outputs = as_list(output_list);
        ArrayList list(output_list, writes, names.function, names.output);
        to = list.views();
        arrays = joined(list_of(Array(tensor, reads, names.function, names.input)), std::move(list.arrays));
        from = arrays[0].view();
    }
};

/// The same arrays in another order.
struct ListToRoot : ListFromTensor {
    ListToRoot(const nb::handle* given, const Names& names) : ListFromTensor(given[1], given[0], names) {}
    template <class Function, class Options>
    auto pass(Function function, const Options& options) const {
        return function(from, to, options);
    }
};

struct ListFromList : OutOfPlace<TensorList, ConstTensorList> {
    ListFromList(const nb::handle* given, const Names& names) {
        outputs = as_list(given[0]);
        ArrayList written(given[0], writes, names.function, names.output);
        ArrayList read(given[1], reads, names.function, names.input);
        to = written.views();
        from = read.const_views();
        arrays = joined(std::move(written.arrays), std::move(read.arrays));
    }
};

bool is_for_devices(const ProcessGroup& group) {
    if (group.is_non_member() || !(group || is_initialized())) return false;
    return (group ? group : default_group()).backend() != "native";
}

struct NoTensors {
    static constexpr std::size_t count = 0;
    NoTensors(const nb::handle*, const Names&) {}
    /// In a group for host memory it waits for no stream.
    template <class Options>
    void enter_streams(const Options& options) {
        if (is_for_devices(options.group)) in_stream.emplace(InStream::Ambient{});
    }
    template <class Function, class Options>
    auto pass(Function function, const Options& options) const {
        return function(options);
    }
    std::vector<Array> arrays;
    nb::object outputs = nb::list();
    std::optional<InStream> in_stream;
};

struct ListInPlace : InPlace<TensorList> {
    ListInPlace(const nb::handle* given, const Names& names) {
        outputs = as_list(given[0]);
        ArrayList list(given[0], writes, names.function, names.output);
        views = list.views();
        arrays = std::move(list.arrays);
    }
};

struct ListsFromList : OutOfPlace<std::vector<TensorList>, ConstTensorList> {
    ListsFromList(const nb::handle* given, const Names& names) {
        const auto& [function, output, input] = names;
        if (!PyList_Check(given[0].ptr())) {
            throw_type_error(function, output, given[0], "a list of lists of arrays");
        }
        nb::list results;
        for (const nb::handle output_list : given[0]) {
            const auto argument = fmt::format("{}[{}]", output, to.size());
            if (output_list.is_none()) throw_type_error(function, argument.c_str(), output_list, "a list of arrays");
            ArrayList list(output_list, writes, function, argument.c_str());
            to.push_back(list.views());
            arrays = joined(std::move(arrays), std::move(list.arrays));
            for (const nb::handle one_output : output_list) results.append(one_output);
        }
        ArrayList list(given[1], reads, function, input);
        from = list.const_views();
        arrays = joined(std::move(arrays), std::move(list.arrays));
        outputs = results;
    }
};

// ---- The settings of a function -----------------------------------------------------------------------------------

std::vector<std::int64_t> splits_of(nb::handle sizes, const char* name, const char* argument) {
    if (sizes.is_none()) return {};
    nb::object list;
    try {
        list = nb::list(nb::borrow(sizes));
    } catch (nb::python_error&) {
        throw_type_error(name, argument, sizes, "a list of sizes, one per rank");
    }
    std::vector<std::int64_t> numbers;
    for (const nb::handle size : list) {
        if (!nb::try_cast(size, numbers.emplace_back()))
            throw_type_error(name, fmt::format("{}[{}]", argument, numbers.size() - 1).c_str(), size, "an integer");
    }
    return numbers;
}

/// Reads `count` arguments into a function's options, but for group and timeout, which all have.
template <class Options>
struct Settings;

template <>
struct Settings<CollectiveOptions> {
    static constexpr std::size_t count = 0;
    static CollectiveOptions read(const nb::handle*, const char*) { return {}; }
};
template <>
struct Settings<AllReduceOptions> {
    static constexpr std::size_t count = 1;
    static AllReduceOptions read(const nb::handle* given, const char* name) { return {.op = op_of(given[0], name)}; }
};
template <>
struct Settings<BroadcastOptions> {
    static constexpr std::size_t count = 2;
    static BroadcastOptions read(const nb::handle* given, const char* name) {
        return {.src = rank_of(given[0], name, "src"), .group_src = rank_of(given[1], name, "group_src")};
    }
};
template <>
struct Settings<ReduceOptions> {
    static constexpr std::size_t count = 3;
    static ReduceOptions read(const nb::handle* given, const char* name) {
        return {.dst = rank_of(given[0], name, "dst"),
                .op = op_of(given[2], name),
                .group_dst = rank_of(given[1], name, "group_dst")};
    }
};
template <>
struct Settings<GatherOptions> {
    static constexpr std::size_t count = 2;
    static GatherOptions read(const nb::handle* given, const char* name) {
        return {.dst = rank_of(given[0], name, "dst"), .group_dst = rank_of(given[1], name, "group_dst")};
    }
};
template <>
struct Settings<ScatterOptions> {
    static constexpr std::size_t count = 2;
    static ScatterOptions read(const nb::handle* given, const char* name) {
        return {.src = rank_of(given[0], name, "src"), .group_src = rank_of(given[1], name, "group_src")};
    }
};
template <>
struct Settings<AllGatherVOptions> {
    static constexpr std::size_t count = 2;
    static AllGatherVOptions read(const nb::handle* given, const char* name) {
        return {.output_split_sizes = splits_of(given[0], name, "output_split_sizes"),
                .output_offsets = splits_of(given[1], name, "output_offsets")};
    }
};
template <>
struct Settings<GatherVOptions> {
    static constexpr std::size_t count = 4;
    static GatherVOptions read(const nb::handle* given, const char* name) {
        return {.receive_counts = splits_of(given[0], name, "receive_counts"),
                .receive_offsets = splits_of(given[1], name, "receive_offsets"),
                .dst = rank_of(given[2], name, "dst"),
                .group_dst = rank_of(given[3], name, "group_dst")};
    }
};
template <>
struct Settings<ScatterVOptions> {
    static constexpr std::size_t count = 4;
    static ScatterVOptions read(const nb::handle* given, const char* name) {
        return {.send_counts = splits_of(given[0], name, "send_counts"),
                .send_offsets = splits_of(given[1], name, "send_offsets"),
                .src = rank_of(given[2], name, "src"),
                .group_src = rank_of(given[3], name, "group_src")};
    }
};
template <>
struct Settings<ReduceScatterVOptions> {
    static constexpr std::size_t count = 2;
    static ReduceScatterVOptions read(const nb::handle* given, const char* name) {
        return {.input_split_sizes = splits_of(given[0], name, "input_split_sizes"), .op = op_of(given[1], name)};
    }
};
template <>
struct Settings<AllToAllSingleOptions> {
    static constexpr std::size_t count = 2;
    static AllToAllSingleOptions read(const nb::handle* given, const char* name) {
        return {.output_split_sizes = splits_of(given[0], name, "output_split_sizes"),
                .input_split_sizes = splits_of(given[1], name, "input_split_sizes")};
    }
};
template <>
struct Settings<AllToAllVOptions> {
    static constexpr std::size_t count = 4;
    static AllToAllVOptions read(const nb::handle* given, const char* name) {
        return {.send_counts = splits_of(given[0], name, "send_counts"),
                .send_offsets = splits_of(given[1], name, "send_offsets"),
                .receive_counts = splits_of(given[2], name, "receive_counts"),
                .receive_offsets = splits_of(given[3], name, "receive_offsets")};
    }
};
template <>
struct Settings<BarrierOptions> {
    static constexpr std::size_t count = 1;
    static BarrierOptions read(const nb::handle* given, const char* name) {
        BarrierOptions options;
        const nb::handle device_ids = given[0];
        if (device_ids.is_none()) return options;
        if (!PyList_Check(device_ids.ptr())) throw_type_error(name, "device_ids", device_ids, "a list of integers");
        for (const nb::handle id : device_ids) {
            if (id.is_none()) throw_type_error(name, "device_ids", id, "a list of integers");
            options.device_ids.push_back(*rank_of(id, name, "device_ids"));
        }
        return options;
    }
};

// ---- The functions ------------------------------------------------------------------------------------------------

/// A C++ function's three forms.
template <class Blocking, class Asynchronous, class Planned>
struct Forms {
    Blocking blocking;
    Asynchronous asynchronous;
    Planned planned;
};
template <class Blocking, class Asynchronous, class Planned>
Forms(Blocking, Asynchronous, Planned) -> Forms<Blocking, Asynchronous, Planned>;

/// Describes a call, and makes it, or its plan.
template <class Tensors, class Options, class Way, class Forms>
auto make(Way way, Names names, const Forms& forms, const nb::handle* given, nb::handle group, nb::handle timeout) {
    names.function = way.name(names.function);
    Options options = Settings<Options>::read(given + Tensors::count, names.function);
    std::size_t element_bytes = 0;
    if constexpr (requires { options.op; }) {
        options.op = for_array(options.op, given[0], names.function);
        element_bytes = options.op.element_bytes();
    }
    const WithStructures structures(element_bytes);
    Tensors tensors(given, names);
    options.group = group_of(group, names.function);
    options.timeout = timeout_of(timeout, names.function);
    if constexpr (std::is_same_v<Way, Now>) {
        if (is_outside(options.group, names.function)) return OptionalWork(nb::none());
    }
    if constexpr (requires { tensors.enter_streams(options); }) tensors.enter_streams(options);
    return way(
        std::move(tensors.arrays), std::move(tensors.outputs), [&] { tensors.pass(forms.blocking, options); },
        [&] { return tensors.pass(forms.asynchronous, options); },
        [&] { return tensors.pass(forms.planned, options); });
}

template <std::size_t>
using Argument = nb::handle;
template <class Tensors, class Options>
using Arguments = std::make_index_sequence<Tensors::count + Settings<Options>::count>;

/// `names.function` is that of the plan: "plan.all_reduce".
template <class Tensors, class Options, class Forms, std::size_t... I>
void define_call(nb::module_& m, Names names, Forms forms, std::index_sequence<I...>) {
    m.def(Now::name(names.function),
          [=](Argument<I>... given, nb::handle group, nb::handle async_op, nb::handle timeout) {
              const std::array<nb::handle, sizeof...(I)> all{given...};
              const Now way = now(async_op, Now::name(names.function));
              return make<Tensors, Options>(way, names, forms, all.data(), group, timeout);
          });
}
template <class Tensors, class Options, class Forms, std::size_t... I>
void define_plan(nb::module_& m, const char* function, Names names, Forms forms, std::index_sequence<I...>) {
    m.def(function, [=](Argument<I>... given, nb::handle group, nb::handle timeout) {
        const std::array<nb::handle, sizeof...(I)> all{given...};
        return make<Tensors, Options>(Later{}, names, forms, all.data(), group, timeout);
    });
}

void monitored_barrier(nb::handle group, nb::handle timeout, nb::handle wait_all_ranks) {
    constexpr const char* name = "monitored_barrier";
    const MonitoredBarrierOptions options{.group = group_of(group, name),
                                          .timeout = timeout_of(timeout, name),
                                          .wait_all_ranks = flag_of(wait_all_ranks, name, "wait_all_ranks")};
    if (is_outside(options.group, name)) return;
    without_gil([&] { tutti::monitored_barrier(options); });
}

}  // namespace

void bind_collectives(nb::module_& m) {
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, Tensors, Options, torch, output, input)           \
    {                                                                                                 \
        const Names names{"plan." #name, output, input};                                              \
        const Forms forms{[](const auto&... arguments) { tutti::name(arguments...); },                \
                          [](const auto&... arguments) { return async::name(arguments...); },         \
                          [](const auto&... arguments) { return plan::name(arguments...); }};         \
        define_call<Tensors, Options>(m, names, forms, Arguments<Tensors, Options>{});                \
        define_plan<Tensors, Options>(m, "plan_" #name, names, forms, Arguments<Tensors, Options>{}); \
    }
#define TUTTI_COALESCED_FUNCTION(name, collective, function, Tensors, Options, output, input)             \
    define_call<Tensors, Options>(                                                                        \
        m, {"plan." #name, output, input},                                                                \
        Forms{[](const auto&... arguments) { tutti::name(arguments...); },                                \
              [](const auto&... arguments) { return async::name(arguments...); }, [](const auto&...) {}}, \
        Arguments<Tensors, Options>{});
#include <tutti/collectives.def>
    m.def("monitored_barrier", &monitored_barrier);
}

}  // namespace tutti::python
