// The object collectives: Python objects as the bytes of objects and back, without a tutti::Object in between. This
// file converts values that have a kind in C++; values that only Python has (data classes, dates, …) become records,
// which tutti.objects describes and rebuilds.
//
// A rank that cannot describe its object takes part all the same, with a record of why, so that no rank waits for it.
#include "calls.hpp"
#include "groups.hpp"
#include "parts.hpp"

#include <tutti/groups.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

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
    Describer(ObjectWriter& out, bool allow_pickle) : out_(out), allow_pickle_(allow_pickle) {}

    void describe(nb::handle value) const {
        PyObject* object = value.ptr();
        if (PyUnicode_CheckExact(object)) return out_.string(utf8(object));
        if (PyLong_CheckExact(object)) return integer(value);
        if (PyFloat_CheckExact(object)) return out_.real(PyFloat_AsDouble(object));
        if (value.is_none()) return out_.nil();
        if (PyBool_Check(object)) return out_.boolean(object == Py_True);
        if (PyDict_CheckExact(object)) return dict(value);
        if (PyList_CheckExact(object)) return list(value);
        if (PyTuple_CheckExact(object)) return tuple(value);
        if (PyBytes_CheckExact(object)) {
            const auto* data = reinterpret_cast<const std::byte*>(PyBytes_AsString(object));
            return out_.bytes({data, static_cast<std::size_t>(PyBytes_Size(object))});
        }
        if (PyComplex_CheckExact(object))
            return out_.complex({PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)});
        if (is_ndarray(value) && is_numeric(value)) return array(value);
        foreign(value);
    }

 private:
    void integer(nb::handle value) const {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
        if (overflow == 0) return out_.integer(number);
        if (overflow > 0) {
            const unsigned long long natural = PyLong_AsUnsignedLongLong(value.ptr());
            if (PyErr_Occurred() == nullptr) return out_.natural(natural);
            PyErr_Clear();
        }
        foreign(value);
    }
    static std::string_view utf8(PyObject* string) {
        Py_ssize_t size = 0;
        const char* text = PyUnicode_AsUTF8AndSize(string, &size);
        if (text == nullptr) {
            PyErr_Clear();
            throw ObjectError("", "is a str with lone surrogates: expected one that UTF-8 can hold");
        }
        return {text, static_cast<std::size_t>(size)};
    }
    // Describing an element may run code of the program, which may change the list.
    void list(nb::handle value) const {
        const Py_ssize_t size = PyList_Size(value.ptr());
        out_.begin_list(static_cast<std::size_t>(size));
        for (Py_ssize_t i = 0; i < size; ++i) {
            if (PyList_Size(value.ptr()) != size) throw ObjectError("", "changed while it was being sent");
            element(nb::borrow(PyList_GetItem(value.ptr(), i)), i);
        }
        out_.end_list();
    }
    void tuple(nb::handle value) const {
        const Py_ssize_t size = PyTuple_Size(value.ptr());
        out_.begin_record(tuple_type, 1);
        out_.string("items");
        out_.begin_list(static_cast<std::size_t>(size));
        for (Py_ssize_t i = 0; i < size; ++i) element(nb::borrow(PyTuple_GetItem(value.ptr(), i)), i);
        out_.end_list();
        out_.end_record();
    }
    void element(const nb::object& item, Py_ssize_t index) const {
        try {
            describe(item);
        } catch (const ObjectError& error) {
            throw error.inside(fmt::format("[{}]", index));
        }
    }
    void dict(nb::handle value) const {
        const Py_ssize_t size = PyDict_Size(value.ptr());
        out_.begin_map(static_cast<std::size_t>(size));
        Py_ssize_t position = 0, count = 0;
        PyObject* next_key = nullptr;
        PyObject* next_item = nullptr;
        while (PyDict_Next(value.ptr(), &position, &next_key, &next_item) != 0) {
            const nb::object key = nb::borrow(next_key), item = nb::borrow(next_item);
            if (++count > size) break;
            try {
                describe(key);
                describe(item);
            } catch (const ObjectError& error) {
                throw error.inside(key_step(key));
            }
            if (PyDict_Size(value.ptr()) != size) break;
        }
        if (count != size || PyDict_Size(value.ptr()) != size) throw ObjectError("", "changed while it was being sent");
        out_.end_map();
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
    // Makes no copy of an array in one piece; the writer copies it into the message at the end.
    void array(nb::handle value) const {
        auto* held = new Array(value, Array::Access::read, "object", "array");
        const std::shared_ptr<Array> keep(held, [](Array* pointer) {
            const nb::gil_scoped_acquire lock;
            delete pointer;
        });
        out_.tensor(Tensor(keep->view(), keep));
    }
    void foreign(nb::handle value) const {
        const nb::object described = with_object_errors(
            [&] { return nb::module_::import_("tutti.objects").attr("describe")(value, allow_pickle_); });
        const auto type = nb::cast<std::string>(described[0]);
        const nb::dict fields = nb::borrow<nb::dict>(nb::object(described[1]));
        out_.begin_record(type, nb::len(fields));
        for (const auto [name, field] : fields) {
            const std::string_view key = utf8(name.ptr());
            out_.string(key);
            try {
                describe(field);
            } catch (const ObjectError& error) {
                throw error.inside(field_step(type, key));
            }
        }
        out_.end_record();
    }

    ObjectWriter& out_;
    bool allow_pickle_;
};

// ---- To Python ----------------------------------------------------------------------------------------------------

// While a message makes many containers, none of which is garbage, Python's collector of cycles would look at all of
// them again and again: most of the time of pickle.loads goes there. It pauses meanwhile.
class CollectorPause {
 public:
    CollectorPause() : was_enabled_(PyGC_Disable() == 1) {}
    ~CollectorPause() {
        if (was_enabled_) PyGC_Enable();
    }
    CollectorPause(const CollectorPause&) = delete;
    CollectorPause& operator=(const CollectorPause&) = delete;

 private:
    const bool was_enabled_;
};

class Rebuilder {
 public:
    Rebuilder(ObjectReader& in, bool allow_pickle) : in_(in), allow_pickle_(allow_pickle) {}

    nb::object rebuild() { return value(in_.next()); }

 private:
    // The one that the reader has come to.
    nb::object value(Object::Kind kind) {
        switch (kind) {
            case Object::Kind::nil: return nb::none();
            case Object::Kind::logical: return nb::bool_(in_.logical());
            case Object::Kind::integer:
                return made(in_.is_large() ? PyLong_FromUnsignedLongLong(in_.natural())
                                           : PyLong_FromLongLong(in_.integer()));
            case Object::Kind::real: return made(PyFloat_FromDouble(in_.real()));
            case Object::Kind::complex: return made(PyComplex_FromDoubles(in_.complex().real(), in_.complex().imag()));
            case Object::Kind::string: return text(in_.text());
            case Object::Kind::bytes: return nb::bytes(in_.text().data(), in_.text().size());
            case Object::Kind::list: return list();
            case Object::Kind::map: return map();
            case Object::Kind::tensor: return to_numpy(in_.tensor());
            case Object::Kind::record: return record();
        }
        throw ObjectError("", "is of an unknown kind");
    }
    static nb::object made(PyObject* object) {
        if (object == nullptr) throw nb::python_error();
        return nb::steal(object);
    }
    static nb::object text(std::string_view value) {
        PyObject* string = PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), nullptr);
        if (string == nullptr) {
            PyErr_Clear();
            throw ObjectError("", "is a string that is not UTF-8");
        }
        return nb::steal(string);
    }
    // A name of which many dicts have an entry is one string, as it was at the sender. The bytes of the first one stay
    // in the message.
    nb::object name(std::string_view value) {
        if (value.empty() || value.size() > most_shared_bytes) return text(value);
        std::size_t hash = value.size();
        for (const char letter : value) hash = hash * 31 + static_cast<unsigned char>(letter);
        Shared& shared = names_[hash % names_.size()];
        if (shared.bytes != value) shared = {value, text(value)};
        return shared.name;
    }
    template <class Step>
    nb::object rebuild_at(Step step) {
        try {
            return rebuild();
        } catch (const ObjectError& error) {
            throw error.inside(step());
        }
    }
    nb::object list() {
        const auto count = static_cast<Py_ssize_t>(in_.count());
        nb::object result = made(PyList_New(count));
        for (Py_ssize_t i = 0; i < count; ++i) PyList_SetItem(result.ptr(), i, item(i).release().ptr());
        in_.end_list();
        return result;
    }
    nb::object tuple() {
        const auto count = static_cast<Py_ssize_t>(in_.count());
        nb::object result = made(PyTuple_New(count));
        for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SetItem(result.ptr(), i, item(i).release().ptr());
        in_.end_list();
        return result;
    }
    nb::object item(Py_ssize_t index) {
        return rebuild_at([index] { return fmt::format("[{}]", index); });
    }
    nb::object map() {
        const std::size_t count = in_.count();
        nb::object result = made(PyDict_New());
        for (std::size_t i = 0; i < count; ++i) {
            const bool is_name = in_.next_is_string();
            const nb::object key = is_name ? name(in_.field()) : rebuild();
            const auto step = [&key] { return key_step(key); };
            if (!is_name && PyObject_Hash(key.ptr()) == -1) {
                PyErr_Clear();
                throw ObjectError("", "is under a key that Python cannot hash").inside(step());
            }
            const nb::object value = rebuild_at(step);
            if (PyDict_SetItem(result.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
        }
        in_.end_map();
        return result;
    }
    nb::object record() {
        const std::string_view type = in_.text();
        const std::size_t count = in_.count();
        auto fields = nb::steal<nb::dict>(nb::handle());  // none yet, since tuples need none
        std::string reason = "no reason";                 // of a failure
        for (std::size_t i = 0; i < count; ++i) {
            const std::string_view field = in_.field();
            const bool is_of_tuple = type == tuple_type && field == "items" && count == 1;
            const nb::object key = is_of_tuple ? nb::object() : name(field);  // whose bytes are text
            try {
                const Object::Kind kind = in_.next();
                if (kind == Object::Kind::list && is_of_tuple) {
                    nb::object result = tuple();
                    in_.end_record();
                    return result;
                }
                if (!fields.is_valid()) fields = nb::dict();
                fields[is_of_tuple ? name(field) : key] = value(kind);
            } catch (const ObjectError& error) {
                throw error.inside(field_step(type, field));
            }
        }
        in_.end_record();
        if (!fields.is_valid()) fields = nb::dict();
        if (type == failure_type) {
            if (fields.contains("reason")) reason = nb::cast<std::string>(nb::str(nb::object(fields["reason"])));
            throw ObjectError("", "could not be sent: " + reason);
        }
        return with_object_errors([&] {
            return nb::object(nb::module_::import_("tutti.objects").attr("rebuild")(text(type), fields, allow_pickle_));
        });
    }

    static constexpr std::size_t most_shared_bytes = 64;
    struct Shared {
        std::string_view bytes;
        nb::object name;
    };
    ObjectReader& in_;
    bool allow_pickle_;
    std::array<Shared, 256> names_;
};

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
    const Describer describer(out, allow_pickle);
    out.begin_list(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const ObjectWriter::Mark mark = out.mark();
        try {
            describer.describe(values[i]);
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

// The values of lists that came: all of one list, or one of each.
nb::list rebuilt(const char* operation, const std::vector<EncodedObject>& lists, std::size_t objects,
                 bool allow_pickle) {
    const CollectorPause pause;
    nb::list values;
    for (const EncodedObject& list : lists) {
        ObjectReader in(list);
        Rebuilder rebuilder(in, allow_pickle);
        try {
            if (in.next() != Object::Kind::list || in.count() != objects)
                throw ObjectError("", fmt::format("is no list of {} objects", objects));
            for (std::size_t i = 0; i < objects; ++i) {
                try {
                    values.append(rebuilder.rebuild());
                } catch (const ObjectError& error) {
                    throw error.inside(fmt::format("[{}]", nb::len(values)));
                }
            }
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
    const auto all = without_gil([&] { return detail::all_gather_encoded(mine.list(), places.size(), options); });
    if (mine.error) std::rethrow_exception(mine.error);
    fill(list, rebuilt(name, all, 1, pickle));
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
    if (!list.is_none()) places = values_of(list, name, "object_gather_list").size();
    const auto all = without_gil([&] { return detail::gather_encoded(mine.list(), places, options); });
    if (mine.error) std::rethrow_exception(mine.error);
    if (places) fill(list, rebuilt(name, all, 1, pickle));
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
    m.def(
        "encode_object",
        [](nb::handle object, bool allow_pickle) {
            ObjectWriter out;
            Describer(out, allow_pickle).describe(object);
            const EncodedObject encoded = out.finish();
            return nb::bytes(encoded.buffer.raw_data(), encoded.bytes);
        },
        nb::arg("object"), nb::arg("allow_pickle") = false,
        nb::sig("def encode_object(object: object, allow_pickle: bool = False) -> bytes"),
        "The bytes that the object collectives send for an object.");
    m.def(
        "decode_object",
        [](const nb::bytes& bytes, bool allow_pickle) {
            const CollectorPause pause;
            ObjectReader in(std::span(reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()));
            nb::object value = Rebuilder(in, allow_pickle).rebuild();
            in.finish();
            return value;
        },
        nb::arg("data"), nb::arg("allow_pickle") = false,
        nb::sig("def decode_object(data: bytes, allow_pickle: bool = False) -> typing.Any"),
        "The object of such bytes, which may come from anybody unless allow_pickle is true.");
}

}  // namespace tutti::python
