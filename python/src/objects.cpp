// The object collectives: what each gives and gets, as the bytes that object_values makes and reads.
//
// A rank that cannot describe its object takes part all the same, with a record of why, so that no rank waits for it.
#include "calls.hpp"
#include "groups.hpp"
#include "object_values.hpp"
#include "parts.hpp"

#include <tutti/groups.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

namespace tutti::python {
namespace {

// ---- The calls ----------------------------------------------------------------------------------------------------

bool pickles(nb::handle allow_pickle, const ProcessGroup& group) {
    return allow_pickle.is_none() ? allows_pickle(group) : nb::cast<bool>(allow_pickle);
}

// A call's objects as one encoded list. One that cannot be described is a record of the reason; this rank raises the
// error afterwards.
struct Described {
    std::unique_ptr<ObjectWriter> writer;
    std::size_t objects = 0;
    std::exception_ptr error;
    /// Copies what is to be sent into one message; without the interpreter's lock.
    EncodedObject list() const { return writer->finish(); }
};

Described described(const char* operation, const std::vector<nb::object>& values, bool allow_pickle) {
    Described result{std::make_unique<ObjectWriter>(), values.size(), {}};
    ObjectWriter& out = *result.writer;
    out.begin_list(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const ObjectWriter::Mark mark = out.mark();
        try {
            write_value(out, values[i], allow_pickle);
        } catch (const ObjectError& error) {
            const ObjectError placed = values.size() > 1 ? error.inside(fmt::format("[{}]", i)) : error;
            if (!result.error) {
                result.error = std::make_exception_ptr(
                    ObjectError(placed.path(), fmt::format("{} ({})", placed.reason(), operation)));
            }
            out.rewind(mark);
            out.begin_record(failure_type, 1);
            out.string("reason");
            out.string(placed.what());
            out.end_record();
        }
    }
    out.end_list();
    return result;
}

std::vector<nb::object> values_of(nb::handle list, const char* operation, const char* argument) {
    if (!PyList_Check(list.ptr())) throw_type_error(operation, argument, list, "a list");
    std::vector<nb::object> values;
    for (const nb::handle value : nb::borrow<nb::list>(list)) values.push_back(nb::borrow(value));
    return values;
}

// This rank's place among the lists that come, and what it has there, if that needs no way through the bytes.
struct Own {
    Own() = default;
    Own(const Described& mine, nb::handle object, int rank) : place(static_cast<std::size_t>(rank)) {
        if (!mine.error) value = copy_of_plain(object);
    }
    std::size_t place = 0;
    nb::object value;
};

// The values of lists that came: all of one list, or one of each.
nb::list rebuilt(const char* operation, const std::vector<EncodedObject>& lists, std::size_t objects, bool allow_pickle,
                 const Own& own = {}) {
    nb::list values;
    for (std::size_t i = 0; i < lists.size(); ++i) {
        if (own.value.is_valid() && i == own.place) {
            values.append(own.value);
            continue;
        }
        ObjectReader in(lists[i]);
        try {
            if (in.next() != Object::Kind::list || in.is_tuple() || in.count() != objects)
                throw ObjectError("", fmt::format("is no list of {} objects", objects));
            read_values(in, objects, allow_pickle, values);
            in.end_list();
            in.finish();
        } catch (const ObjectError& error) {
            throw ObjectError(error.path(), fmt::format("{} ({})", error.reason(), operation));
        }
    }
    return values;
}

// Into the first places of a Python list.
void fill(nb::handle list, const nb::list& values) {
    nb::list target = nb::borrow<nb::list>(list);
    for (std::size_t i = 0; i < nb::len(values); ++i) target[i] = values[i];
}

std::optional<Device> maybe_device(nb::handle device, const char* operation) {
    if (device.is_none()) return std::nullopt;
    return device_of(device, operation);
}

// Whether this rank is the root that the arguments name; `fallback` where they name none.
bool is_root(std::optional<int> global, std::optional<int> local, const ProcessGroup& group, bool fallback) {
    if (global) return *global == get_rank();
    if (local) return *local == get_rank(group);
    return fallback && get_rank() == 0;
}

void send_list(nb::handle list, nb::handle dst, nb::handle group, nb::handle device, nb::handle group_dst,
               nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "send_object_list";
    const SendObjectOptions options{.dst = rank_of(dst, name, "dst"),
                                    .group = group_of(group, name),
                                    .device = maybe_device(device, name),
                                    .group_dst = rank_of(group_dst, name, "group_dst"),
                                    .timeout = timeout_of(timeout, name)};
    const Described mine = described(name, values_of(list, name, "object_list"), pickles(allow_pickle, options.group));
    without_gil([&] { detail::send_encoded(mine.list(), mine.objects, options); });
    if (mine.error) std::rethrow_exception(mine.error);
}

int recv_list(nb::handle list, nb::handle src, nb::handle group, nb::handle device, nb::handle group_src,
              nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "recv_object_list";
    const RecvObjectOptions options{.src = rank_of(src, name, "src"),
                                    .group = group_of(group, name),
                                    .device = maybe_device(device, name),
                                    .group_src = rank_of(group_src, name, "group_src"),
                                    .timeout = timeout_of(timeout, name)};
    if (is_outside(options.group, name)) return -1;
    const std::size_t objects = values_of(list, name, "object_list").size();
    std::vector<EncodedObject> got(1);
    const int source = without_gil([&] { return detail::recv_encoded(got[0], objects, options); });
    fill(list, rebuilt(name, got, objects, pickles(allow_pickle, options.group)));
    return source;
}

void broadcast_list(nb::handle list, nb::handle src, nb::handle group, nb::handle device, nb::handle group_src,
                    nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "broadcast_object_list";
    const BroadcastObjectOptions options{.src = rank_of(src, name, "src"),
                                         .group = group_of(group, name),
                                         .device = maybe_device(device, name),
                                         .group_src = rank_of(group_src, name, "group_src"),
                                         .timeout = timeout_of(timeout, name)};
    const auto values = values_of(list, name, "object_list");
    if (is_outside(options.group, name)) return;
    const bool pickle = pickles(allow_pickle, options.group);
    const bool gives = is_root(options.src, options.group_src, options.group, false);
    Described mine;
    if (gives) mine = described(name, values, pickle);
    std::vector<EncodedObject> lists(1);
    without_gil([&] {
        if (gives) lists[0] = mine.list();
        detail::broadcast_encoded(lists[0], values.size(), options);
    });
    if (mine.error) std::rethrow_exception(mine.error);
    if (!gives) fill(list, rebuilt(name, lists, values.size(), pickle));
}

void all_gather(nb::handle list, nb::handle object, nb::handle group, nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "all_gather_object";
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    const auto places = values_of(list, name, "object_list");
    if (is_outside(options.group, name)) return;
    const bool pickle = pickles(allow_pickle, options.group);
    const Described mine = described(name, {nb::borrow(object)}, pickle);
    const Own own{mine, object, get_rank(options.group)};
    const auto all = without_gil([&] { return detail::all_gather_encoded(mine.list(), places.size(), options); });
    if (mine.error) std::rethrow_exception(mine.error);
    fill(list, rebuilt(name, all, 1, pickle, own));
}

void gather(nb::handle object, nb::handle list, nb::handle dst, nb::handle group, nb::handle group_dst,
            nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "gather_object";
    const GatherOptions options{.dst = rank_of(dst, name, "dst"),
                                .group = group_of(group, name),
                                .group_dst = rank_of(group_dst, name, "group_dst"),
                                .timeout = timeout_of(timeout, name)};
    if (is_outside(options.group, name)) return;
    const bool pickle = pickles(allow_pickle, options.group);
    const Described mine = described(name, {nb::borrow(object)}, pickle);
    std::optional<std::size_t> places;
    Own own;
    if (!list.is_none()) {
        places = values_of(list, name, "object_gather_list").size();
        own = Own(mine, object, get_rank(options.group));
    }
    const auto all = without_gil([&] { return detail::gather_encoded(mine.list(), places, options); });
    if (mine.error) std::rethrow_exception(mine.error);
    if (places) fill(list, rebuilt(name, all, 1, pickle, own));
}

void scatter(nb::handle output, nb::handle input, nb::handle src, nb::handle group, nb::handle group_src,
             nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "scatter_object_list";
    const ScatterOptions options{.src = rank_of(src, name, "src"),
                                 .group = group_of(group, name),
                                 .group_src = rank_of(group_src, name, "group_src"),
                                 .timeout = timeout_of(timeout, name)};
    const auto places = values_of(output, name, "scatter_object_output_list");
    if (is_outside(options.group, name)) return;
    const bool pickle = pickles(allow_pickle, options.group);
    std::vector<Described> mine;
    std::exception_ptr error;
    if (!input.is_none() && is_root(options.src, options.group_src, options.group, true)) {
        const auto values = values_of(input, name, "scatter_object_input_list");
        for (std::size_t i = 0; i < values.size(); ++i) {
            try {
                mine.push_back(described(name, {values[i]}, pickle));
                if (mine.back().error) std::rethrow_exception(mine.back().error);
            } catch (const ObjectError& wrong) {
                if (!error) error = std::make_exception_ptr(wrong.inside(fmt::format("[{}]", i)));
            }
        }
    }
    std::vector<EncodedObject> got(1);
    without_gil([&] {
        std::vector<EncodedObject> lists;
        for (const Described& one : mine) lists.push_back(one.list());
        got[0] = detail::scatter_encoded(lists, places.size(), options);
    });
    if (error) std::rethrow_exception(error);
    fill(output, rebuilt(name, got, 1, pickle));
}

}  // namespace

void bind_objects(nb::module_& m) {
    m.def("send_object_list", &send_list);
    m.def("recv_object_list", &recv_list);
    m.def("broadcast_object_list", &broadcast_list);
    m.def("all_gather_object", &all_gather);
    m.def("gather_object", &gather);
    m.def("scatter_object_list", &scatter);
    bind_object_values(m);
}

}  // namespace tutti::python
