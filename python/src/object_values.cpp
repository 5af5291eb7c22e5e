// Python's values as the bytes of objects and back, without a tutti::Object in between: values that have a kind in C++.
// Values that only Python has (data classes, dates, …) become records, which tutti.objects describes and rebuilds.
//
// Lists of a million numbers run through here: plain values take no reference, no handler of exceptions and no call
// that they do not need.
#include "object_values.hpp"

#include "arrays.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::python {
namespace {

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

nb::object made(PyObject* object) {
    if (object == nullptr) throw nb::python_error();
    return nb::steal(object);
}

// What nobody else changes while its elements are read. The interpreter's lock keeps `container` so; without one it is
// a copy.
nb::object steady([[maybe_unused]] PyObject* (*copy)(PyObject*), PyObject* container) {
#ifdef Py_GIL_DISABLED
    return made(copy(container));
#else
    return nb::borrow(container);
#endif
}

// ---- From Python --------------------------------------------------------------------------------------------------

class Describer {
 public:
    Describer(ObjectWriter& out, bool allow_pickle) : out_(out), allow_pickle_(allow_pickle) {}

    void describe(nb::handle value) const {
        PyObject* object = value.ptr();
        if (plain(object)) return;
        if (PyDict_CheckExact(object)) return dict(object);
        if (PyList_CheckExact(object)) return list(object);
        if (PyTuple_CheckExact(object)) return tuple(object);
        if (PyUnicode_CheckExact(object)) return out_.string(utf8(object));
        if (is_ndarray(value) && is_numeric(value)) return array(value);
        foreign(value);
    }

 private:
    // Writes a value for which no code of the program runs, nor an exception; false: it is another one.
    bool plain(PyObject* object) const {
        const PyTypeObject* const type = Py_TYPE(object);
        if (type == &PyLong_Type) return integer(object);
        if (type == &PyFloat_Type) return out_.real(PyFloat_AsDouble(object)), true;
        if (type == &PyUnicode_Type) {
            Py_ssize_t size = 0;
            const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
            if (text == nullptr) return PyErr_Clear(), false;
            return out_.string({text, static_cast<std::size_t>(size)}), true;
        }
        if (object == Py_None) return out_.nil(), true;
        if (type == &PyBool_Type) return out_.boolean(object == Py_True), true;
        if (type == &PyBytes_Type) {
            const auto* data = reinterpret_cast<const std::byte*>(PyBytes_AsString(object));
            return out_.bytes({data, static_cast<std::size_t>(PyBytes_Size(object))}), true;
        }
        if (type != &PyComplex_Type) return false;
        return out_.complex({PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)}), true;
    }
    // False: of more than 64 bits.
    bool integer(PyObject* value) const {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow == 0) return out_.integer(number), true;
        if (overflow < 0) return false;
        const unsigned long long natural = PyLong_AsUnsignedLongLong(value);
        if (PyErr_Occurred() != nullptr) return PyErr_Clear(), false;
        return out_.natural(natural), true;
    }
    static std::string_view utf8(PyObject* string) {
        Py_ssize_t size = 0;
        const char* const text = PyUnicode_AsUTF8AndSize(string, &size);
        if (text == nullptr) {
            PyErr_Clear();
            throw ObjectError("", "is a str with lone surrogates: expected one that UTF-8 can hold");
        }
        return {text, static_cast<std::size_t>(size)};
    }
    // Describing an element that is not plain may run code of the program, which may change the list.
    void list(PyObject* given) const {
        const nb::object steady_list =
            steady([](PyObject* all) { return PyList_GetSlice(all, 0, PY_SSIZE_T_MAX); }, given);
        PyObject* const value = steady_list.ptr();
        const Py_ssize_t size = PyList_Size(value);
        out_.begin_list(static_cast<std::size_t>(size));
        for (Py_ssize_t i = 0; i < size; ++i) {
            PyObject* const item = PyList_GetItem(value, i);
            if (plain(item)) continue;
            element(nb::borrow(item), i);
            if (PyList_Size(given) != size) throw changed();
        }
        out_.end_list();
    }
    void tuple(PyObject* value) const {
        const Py_ssize_t size = PyTuple_Size(value);
        out_.begin_tuple(static_cast<std::size_t>(size));
        for (Py_ssize_t i = 0; i < size; ++i) {
            PyObject* const item = PyTuple_GetItem(value, i);
            if (!plain(item)) element(nb::borrow(item), i);
        }
        out_.end_tuple();
    }
    void element(const nb::object& item, Py_ssize_t index) const {
        try {
            describe(item);
        } catch (const ObjectError& error) {
            throw error.inside(fmt::format("[{}]", index));
        }
    }
    void dict(PyObject* given) const {
        const nb::object steady_dict = steady(&PyDict_Copy, given);
        PyObject* const value = steady_dict.ptr();
        const Py_ssize_t size = PyDict_Size(value);
        out_.begin_map(static_cast<std::size_t>(size));
        Py_ssize_t position = 0, count = 0;
        PyObject* next_key = nullptr;
        PyObject* next_item = nullptr;
        while (PyDict_Next(value, &position, &next_key, &next_item) != 0) {
            if (++count > size) break;
            const bool has_plain_key = plain(next_key);
            if (has_plain_key && plain(next_item)) continue;
            entry(nb::borrow(next_key), nb::borrow(next_item), has_plain_key);
            if (PyDict_Size(given) != size) break;
        }
        if (count != size || PyDict_Size(given) != size) throw changed();
        out_.end_map();
    }
    void entry(const nb::object& key, const nb::object& item, bool has_key) const {
        try {
            if (!has_key) describe(key);
            describe(item);
        } catch (const ObjectError& error) {
            throw error.inside(key_step(key));
        }
    }
    static ObjectError changed() { return ObjectError("", "changed while it was being sent"); }
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
            case Object::Kind::list: return in_.is_tuple() ? tuple() : list();
            case Object::Kind::map: return map();
            case Object::Kind::tensor: return to_numpy(in_.tensor());
            case Object::Kind::record: return record();
        }
        throw ObjectError("", "is of an unknown kind");
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
    nb::object list() {
        const auto count = static_cast<Py_ssize_t>(in_.count());
        nb::object result = made(PyList_New(count));
        items(count, [&result](Py_ssize_t i, PyObject* item) { PyList_SetItem(result.ptr(), i, item); });
        in_.end_list();
        return result;
    }
    nb::object tuple() {
        const auto count = static_cast<Py_ssize_t>(in_.count());
        nb::object result = made(PyTuple_New(count));
        items(count, [&result](Py_ssize_t i, PyObject* item) { PyTuple_SetItem(result.ptr(), i, item); });
        in_.end_tuple();
        return result;
    }
    template <class Set>
    void items(Py_ssize_t count, Set set) {
        Py_ssize_t i = 0;
        try {
            for (; i < count; ++i) {
                const Object::Kind kind = in_.next();
                if (kind == Object::Kind::integer && !in_.is_large())  // numbers first: a list may have millions
                    set(i, made(PyLong_FromLongLong(in_.integer())).release().ptr());
                else if (kind == Object::Kind::real)
                    set(i, made(PyFloat_FromDouble(in_.real())).release().ptr());
                else
                    set(i, value(kind).release().ptr());
            }
        } catch (const ObjectError& error) {
            throw error.inside(fmt::format("[{}]", i));
        }
    }
    nb::object map() {
        const std::size_t count = in_.count();
        nb::object result = made(PyDict_New());
        nb::object key;
        try {
            for (std::size_t i = 0; i < count; ++i) {
                key = nb::object();  // until there is one, an error has no place in this dict
                const bool is_name = in_.next_is_string();
                key = is_name ? name(in_.field()) : rebuild();
                if (!is_name && PyObject_Hash(key.ptr()) == -1) {
                    PyErr_Clear();
                    throw ObjectError("", "is under a key that Python cannot hash");
                }
                const nb::object value = rebuild();
                if (PyDict_SetItem(result.ptr(), key.ptr(), value.ptr()) != 0) throw nb::python_error();
            }
        } catch (const ObjectError& error) {
            if (!key.is_valid()) throw;
            throw error.inside(key_step(key));
        }
        in_.end_map();
        return result;
    }
    nb::object record() {
        const std::string_view type = in_.text();
        const std::size_t count = in_.count();
        nb::dict fields;
        for (std::size_t i = 0; i < count; ++i) {
            const std::string_view field = in_.field();
            const nb::object key = name(field);  // whose bytes are text
            try {
                fields[key] = rebuild();
            } catch (const ObjectError& error) {
                throw error.inside(field_step(type, field));
            }
        }
        in_.end_record();
        if (type == failure_type) {
            std::string reason = "no reason";
            if (fields.contains("reason")) reason = nb::cast<std::string>(nb::str(nb::object(fields["reason"])));
            throw ObjectError("", "could not be sent: " + reason);
        }
        // A tuple that comes from an Object.
        if (type == tuple_type && count == 1 && fields.contains("items") && PyList_CheckExact(fields["items"].ptr()))
            return made(PyList_AsTuple(fields["items"].ptr()));
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

// ---- Copies ---------------------------------------------------------------------------------------------------------

// Nobody can change it, and its bytes give an equal one of the same type.
bool is_plain(PyObject* object) {
    const PyTypeObject* const type = Py_TYPE(object);
    return type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || object == Py_None ||
           type == &PyBool_Type || type == &PyBytes_Type || type == &PyComplex_Type;
}

nb::object copied(PyObject* value);

nb::object copied_list(PyObject* value) {
    nb::object result = made(PyList_GetSlice(value, 0, PY_SSIZE_T_MAX));
    const Py_ssize_t size = PyList_Size(result.ptr());
    for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* const item = PyList_GetItem(result.ptr(), i);
        if (is_plain(item)) continue;
        nb::object copy = copied(item);
        if (!copy.is_valid()) return {};
        PyList_SetItem(result.ptr(), i, copy.release().ptr());
    }
    return result;
}
// The tuple itself where nobody can change what is in it.
nb::object copied_tuple(PyObject* value) {
    const Py_ssize_t size = PyTuple_Size(value);
    nb::object result;
    for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* const item = PyTuple_GetItem(value, i);
        nb::object copy = is_plain(item) ? nb::borrow(item) : copied(item);
        if (!copy.is_valid()) return {};
        if (!result.is_valid()) {
            if (copy.is(item)) continue;
            result = made(PyTuple_New(size));
            for (Py_ssize_t same = 0; same < i; ++same)
                PyTuple_SetItem(result.ptr(), same, nb::borrow(PyTuple_GetItem(value, same)).release().ptr());
        }
        PyTuple_SetItem(result.ptr(), i, copy.release().ptr());
    }
    return result.is_valid() ? result : nb::borrow(value);
}
nb::object copied_dict(PyObject* value) {
    nb::object result = made(PyDict_Copy(value));
    Py_ssize_t position = 0;
    PyObject* key = nullptr;
    PyObject* item = nullptr;
    while (PyDict_Next(result.ptr(), &position, &key, &item) != 0) {
        if (!is_plain(key) && !copied(key).is(key)) return {};
        if (is_plain(item)) continue;
        const nb::object copy = copied(item);
        if (!copy.is_valid()) return {};
        if (PyDict_SetItem(result.ptr(), key, copy.ptr()) != 0) throw nb::python_error();
    }
    return result;
}
nb::object copied(PyObject* value) {
    if (is_plain(value)) return nb::borrow(value);
    if (PyList_CheckExact(value)) return copied_list(value);
    if (PyTuple_CheckExact(value)) return copied_tuple(value);
    if (PyDict_CheckExact(value)) return copied_dict(value);
    return {};
}

}  // namespace

void write_value(ObjectWriter& out, nb::handle value, bool allow_pickle) {
    Describer(out, allow_pickle).describe(value);
}

nb::object copy_of_plain(nb::handle value) {
    const CollectorPause pause;
    return copied(value.ptr());
}

void read_values(ObjectReader& in, std::size_t count, bool allow_pickle, nb::list& values) {
    const CollectorPause pause;
    Rebuilder rebuilder(in, allow_pickle);
    for (std::size_t i = 0; i < count; ++i) {
        try {
            values.append(rebuilder.rebuild());
        } catch (const ObjectError& error) {
            throw error.inside(fmt::format("[{}]", nb::len(values)));
        }
    }
}

void bind_object_values(nb::module_& m) {
    m.def(
        "encode_object",
        [](nb::handle object, bool allow_pickle) {
            ObjectWriter out;
            write_value(out, object, allow_pickle);
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
