// The object collectives: Python objects as tutti::Object and back. This file converts values that have a kind in C++;
// values that only Python has (tuples, data classes, dates, …) become records, which tutti.objects describes and
// rebuilds.
//
// A rank that cannot describe its object takes part all the same, with a record of why, so that no rank waits for it.
#include "calls.hpp"
#include "groups.hpp"
#include "parts.hpp"

#include <tutti/groups.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <string_view>

namespace tutti::python {
namespace {

constexpr const char* failure_type = "tutti.failure";
constexpr const char* tuple_type = "python.tuple";

// Turns the exception of a Python function of tutti.objects into an ObjectError with its path.
template <class F>
auto with_object_errors(F f) {
    try {
        return f();
    } catch (nb::python_error& error) {
        const nb::object cls = nb::module_::import_("tutti.errors").attr("ObjectError");
        if (!error.matches(cls)) throw;
        throw ObjectError(nb::cast<std::string>(error.value().attr("path")),
                          nb::cast<std::string>(error.value().attr("reason")));
    }
}

std::string key_step(nb::handle key) {
    if (PyUnicode_Check(key.ptr())) return "." + nb::cast<std::string>(key);
    return fmt::format("[{}]", nb::cast<std::string>(nb::repr(key)));
}

// The step from a record to one of its fields, as a Python program sees it: a tuple's items and a data class' fields
// are the object itself.
std::string field_step(std::string_view type, std::string_view field) {
    const bool is_inside =
        (type.starts_with("python.") || type.starts_with("numpy.")) && (field == "items" || field == "fields");
    return is_inside ? std::string() : fmt::format(".{}", field);
}

// NumPy's own type, no class of the program's that derives from it. Where NumPy is not loaded there is none.
bool is_ndarray(nb::handle value) {
    PyObject* const numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
    return numpy != nullptr && value.type().is(nb::getattr(numpy, "ndarray", nb::none()));
}

// ---- From Python --------------------------------------------------------------------------------------------------

class Describer {
 public:
    explicit Describer(bool allow_pickle) : allow_pickle_(allow_pickle) {}

    Object describe(nb::handle value, std::size_t depth = 0) const {
        PyObject* object = value.ptr();
        if (depth > max_object_depth) throw ObjectError("", fmt::format("is deeper than {} levels", max_object_depth));
        if (value.is_none()) return {};
        if (PyBool_Check(object)) return Object::boolean(object == Py_True);
        if (PyLong_CheckExact(object)) return integer(value, depth);
        if (PyFloat_CheckExact(object)) return Object::real(PyFloat_AsDouble(object));
        if (PyComplex_CheckExact(object))
            return Object::complex({PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)});
        if (PyUnicode_CheckExact(object)) return string(value);
        if (PyBytes_CheckExact(object)) {
            const auto* data = reinterpret_cast<const std::byte*>(PyBytes_AsString(object));
            return Object::bytes(Object::Bytes(data, data + PyBytes_Size(object)));
        }
        if (PyList_CheckExact(object)) return Object::list(items(value, depth));
        if (PyTuple_CheckExact(object)) {
            Object::Map fields;
            fields.emplace_back("items", Object::list(items(value, depth + 2)));
            return Object::record(tuple_type, std::move(fields));
        }
        if (PyDict_CheckExact(object)) return Object::map(entries(value, depth));
        if (is_ndarray(value) && is_numeric(value)) return array(value);
        return foreign(value, depth);
    }

 private:
    Object integer(nb::handle value, std::size_t depth) const {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
        if (overflow == 0) return Object::integer(number);
        if (overflow > 0) {
            const unsigned long long natural = PyLong_AsUnsignedLongLong(value.ptr());
            if (PyErr_Occurred() == nullptr) return Object::natural(natural);
            PyErr_Clear();
        }
        return foreign(value, depth);
    }
    static Object string(nb::handle value) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
        if (text == nullptr) {
            PyErr_Clear();
            throw ObjectError("", "is a str with lone surrogates: expected one that UTF-8 can hold");
        }
        return Object::string(std::string(text, static_cast<std::size_t>(size)));
    }
    Object::List items(nb::handle list, std::size_t depth) const {
        Object::List result;
        std::size_t index = 0;
        for (const nb::handle item : nb::borrow<nb::sequence>(list)) {
            try {
                result.push_back(describe(item, depth + 1));
            } catch (const ObjectError& error) {
                throw error.inside(fmt::format("[{}]", index));
            }
            ++index;
        }
        return result;
    }
    Object::Map entries(nb::handle dict, std::size_t depth) const {
        Object::Map result;
        for (const auto [key, value] : nb::borrow<nb::dict>(dict)) {
            try {
                Object k = describe(key, depth + 1);
                result.emplace_back(std::move(k), describe(value, depth + 1));
            } catch (const ObjectError& error) {
                throw error.inside(key_step(key));
            }
        }
        return result;
    }
    static bool is_numeric(nb::handle array) {
        const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
        const bool native = nb::cast<bool>(array.attr("dtype").attr("isnative"));
        if (kind != "V") {
            const auto bytes = nb::cast<std::size_t>(array.attr("dtype").attr("itemsize"));
            const bool is_long_double = (kind == "f" && bytes > 8) || (kind == "c" && bytes > 16);
            return native && !is_long_double && kind.find_first_of("biufc") != std::string::npos;
        }
        try {  // ml_dtypes' types call themselves void
            (void)dtype_from_string(nb::cast<std::string>(array.attr("dtype").attr("name")));
            return true;
        } catch (const InvalidArgument&) {
            return false;
        }
    }
    // Makes no copy of an array in one piece; encoding copies it into the message.
    static Object array(nb::handle value) {
        auto* held = new Array(value, Array::Access::read, "object", "array");
        const std::shared_ptr<Array> keep(held, [](Array* pointer) {
            const nb::gil_scoped_acquire lock;
            delete pointer;
        });
        if (keep->view().contiguous()) return Object::tensor(Tensor(keep->view(), keep));
        Tensor copied = empty(keep->view().dtype(), keep->view().shape());
        copy(copied.view(), keep->view());
        return Object::tensor(std::move(copied));
    }
    Object foreign(nb::handle value, std::size_t depth) const {
        const nb::object described = with_object_errors(
            [&] { return nb::module_::import_("tutti.objects").attr("describe")(value, allow_pickle_); });
        const auto type = nb::cast<std::string>(described[0]);
        Object::Map fields;
        for (const auto [name, field] : nb::borrow<nb::dict>(nb::object(described[1]))) {
            const auto key = nb::cast<std::string>(name);
            try {
                fields.emplace_back(key, describe(field, depth + 2));
            } catch (const ObjectError& error) {
                throw error.inside(field_step(type, key));
            }
        }
        return Object::record(type, std::move(fields));
    }

    bool allow_pickle_;
};

// ---- To Python ----------------------------------------------------------------------------------------------------

class Rebuilder {
 public:
    explicit Rebuilder(bool allow_pickle) : allow_pickle_(allow_pickle) {}

    nb::object rebuild(const Object& object) const {
        switch (object.kind()) {
            case Object::Kind::nil: return nb::none();
            case Object::Kind::logical: return nb::bool_(object.as_bool());
            case Object::Kind::integer:
                return object.is_large_integer() ? nb::cast(object.as_uint64()) : nb::cast(object.as_int64());
            case Object::Kind::real: return nb::float_(object.as_double());
            case Object::Kind::complex: {
                const auto value = object.as_complex();
                return nb::steal(PyComplex_FromDoubles(value.real(), value.imag()));
            }
            case Object::Kind::string: return text(object.as_string());
            case Object::Kind::bytes: return nb::bytes(object.as_bytes().data(), object.as_bytes().size());
            case Object::Kind::list: return list(object.as_list());
            case Object::Kind::map: return map(object.as_map());
            case Object::Kind::tensor: return to_numpy(object.as_tensor());
            case Object::Kind::record: return record(object.as_record());
        }
        throw ObjectError("", "is of an unknown kind");
    }

 private:
    static nb::object text(const std::string& value) {
        PyObject* string = PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), nullptr);
        if (string == nullptr) {
            PyErr_Clear();
            throw ObjectError("", "is a string that is not UTF-8");
        }
        return nb::steal(string);
    }
    nb::list list(const Object::List& values) const {
        nb::list result;
        for (std::size_t i = 0; i < values.size(); ++i) {
            try {
                result.append(rebuild(values[i]));
            } catch (const ObjectError& error) {
                throw error.inside(fmt::format("[{}]", i));
            }
        }
        return result;
    }
    nb::dict map(const Object::Map& values) const {
        nb::dict result;
        for (const auto& [key, value] : values) {
            try {
                const nb::object k = rebuild(key);
                if (PyObject_Hash(k.ptr()) == -1) {
                    PyErr_Clear();
                    throw ObjectError("", "is under a key that Python cannot hash");
                }
                result[k] = rebuild(value);
            } catch (const ObjectError& error) {
                throw error.inside(detail::key_step(key));
            }
        }
        return result;
    }
    nb::object record(const Object::Record& record) const {
        if (record.type == failure_type) {
            const Object fields = Object::map(record.fields);
            const Object* why = fields.find("reason");
            throw ObjectError("", "could not be sent: " + (why ? why->as_string() : std::string("no reason")));
        }
        nb::dict fields;
        for (const auto& [key, value] : record.fields) {
            try {
                fields[text(key.as_string())] = rebuild(value);
            } catch (const ObjectError& error) {
                throw error.inside(field_step(record.type, key.as_string()));
            }
        }
        if (record.type == tuple_type && fields.contains("items") && nb::isinstance<nb::list>(fields["items"])) {
            return nb::tuple(nb::borrow<nb::list>(nb::object(fields["items"])));
        }
        return with_object_errors([&] {
            return nb::object(
                nb::module_::import_("tutti.objects").attr("rebuild")(record.type, fields, allow_pickle_));
        });
    }

    bool allow_pickle_;
};

// ---- The calls ----------------------------------------------------------------------------------------------------

bool pickles(nb::handle allow_pickle, const ProcessGroup& group) {
    return allow_pickle.is_none() ? allows_pickle(group) : nb::cast<bool>(allow_pickle);
}

// A call's objects: described, or a record of the reason why they cannot be, with the error that this rank raises
// afterwards.
struct Described {
    ObjectList objects;
    std::exception_ptr error;
};

Described described(const char* operation, const std::vector<nb::object>& values, bool allow_pickle) {
    Described result;
    const Describer describer(allow_pickle);
    for (std::size_t i = 0; i < values.size(); ++i) {
        try {
            result.objects.push_back(describer.describe(values[i]));
        } catch (const ObjectError& error) {
            const ObjectError placed = values.size() > 1 ? error.inside(fmt::format("[{}]", i)) : error;
            if (!result.error) {
                result.error = std::make_exception_ptr(
                    ObjectError(placed.path(), fmt::format("{} ({})", placed.reason(), operation)));
            }
            Object::Map fields;
            fields.emplace_back("reason", Object::string(placed.what()));
            result.objects.push_back(Object::record(failure_type, std::move(fields)));
        }
    }
    return result;
}

std::vector<nb::object> values_of(nb::handle list, const char* operation, const char* argument) {
    if (!PyList_Check(list.ptr())) throw_type_error(operation, argument, list, "a list");
    std::vector<nb::object> values;
    for (const nb::handle value : nb::borrow<nb::list>(list)) values.push_back(nb::borrow(value));
    return values;
}

// Fills a Python list, whose length is that of `objects`.
void fill(nb::handle list, const ObjectList& objects, bool allow_pickle) {
    const Rebuilder rebuilder(allow_pickle);
    nb::list rebuilt;
    for (std::size_t i = 0; i < objects.size(); ++i) {
        try {
            rebuilt.append(rebuilder.rebuild(objects[i]));
        } catch (const ObjectError& error) {
            throw error.inside(fmt::format("[{}]", i));
        }
    }
    nb::list target = nb::borrow<nb::list>(list);
    for (std::size_t i = 0; i < objects.size(); ++i) target[i] = rebuilt[i];
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
    without_gil([&] { send_object_list(mine.objects, options); });
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
    ObjectList objects(values_of(list, name, "object_list").size());
    const int source = without_gil([&] { return recv_object_list(objects, options); });
    fill(list, objects, pickles(allow_pickle, options.group));
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
    if (gives)
        mine = described(name, values, pickle);
    else
        mine.objects.resize(values.size());
    without_gil([&] { broadcast_object_list(mine.objects, options); });
    if (mine.error) std::rethrow_exception(mine.error);
    if (!gives) fill(list, mine.objects, pickle);
}

void all_gather(nb::handle list, nb::handle object, nb::handle group, nb::handle allow_pickle, nb::handle timeout) {
    constexpr const char* name = "all_gather_object";
    const CollectiveOptions options{.group = group_of(group, name), .timeout = timeout_of(timeout, name)};
    const auto places = values_of(list, name, "object_list");
    if (is_outside(options.group, name)) return;
    const bool pickle = pickles(allow_pickle, options.group);
    const Described mine = described(name, {nb::borrow(object)}, pickle);
    ObjectList all(places.size());
    without_gil([&] { all_gather_object(all, mine.objects[0], options); });
    if (mine.error) std::rethrow_exception(mine.error);
    fill(list, all, pickle);
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
    ObjectList all;
    if (!list.is_none()) all.resize(values_of(list, name, "object_gather_list").size());
    without_gil([&] { gather_object(mine.objects[0], list.is_none() ? nullptr : &all, options); });
    if (mine.error) std::rethrow_exception(mine.error);
    if (!list.is_none()) fill(list, all, pickle);
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
    Described mine;
    if (!input.is_none() && is_root(options.src, options.group_src, options.group, true)) {
        mine = described(name, values_of(input, name, "scatter_object_input_list"), pickle);
    }
    ObjectList got(places.size());
    without_gil([&] { scatter_object_list(got, mine.objects, options); });
    if (mine.error) std::rethrow_exception(mine.error);
    got.resize(1);
    fill(output, got, pickle);
}

}  // namespace

void bind_objects(nb::module_& m) {
    m.def("send_object_list", &send_list);
    m.def("recv_object_list", &recv_list);
    m.def("broadcast_object_list", &broadcast_list);
    m.def("all_gather_object", &all_gather);
    m.def("gather_object", &gather);
    m.def("scatter_object_list", &scatter);
    m.def(
        "encode_object",
        [](nb::handle object, bool allow_pickle) {
            const auto bytes = encode(Describer(allow_pickle).describe(object));
            return nb::bytes(bytes.data(), bytes.size());
        },
        nb::arg("object"), nb::arg("allow_pickle") = false,
        nb::sig("def encode_object(object: object, allow_pickle: bool = False) -> bytes"),
        "The bytes that the object collectives send for an object.");
    m.def(
        "decode_object",
        [](const nb::bytes& bytes, bool allow_pickle) {
            const auto* data = reinterpret_cast<const std::byte*>(bytes.c_str());
            return Rebuilder(allow_pickle).rebuild(decode({data, bytes.size()}));
        },
        nb::arg("data"), nb::arg("allow_pickle") = false,
        nb::sig("def decode_object(data: bytes, allow_pickle: bool = False) -> typing.Any"),
        "The object of such bytes, which may come from anybody unless allow_pickle is true.");
}

}  // namespace tutti::python
