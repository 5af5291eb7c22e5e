#include "stores.hpp"

#include "calls.hpp"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <string>
#include <vector>

namespace tutti::python {
namespace {

// A str or bytes.
std::string bytes_of(nb::handle value, const char* operation, const char* argument) {
    Py_ssize_t size = 0;
    if (PyUnicode_Check(value.ptr())) {
        const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
        if (text == nullptr) throw nb::python_error();
        return {text, static_cast<std::size_t>(size)};
    }
    char* data = nullptr;
    if (PyBytes_Check(value.ptr()) && PyBytes_AsStringAndSize(value.ptr(), &data, &size) == 0) {
        return {data, static_cast<std::size_t>(size)};
    }
    throw_type_error(operation, argument, value, "a str or bytes");
}

std::vector<std::string> list_of_bytes(nb::handle values, const char* operation, const char* argument) {
    if (!PyList_Check(values.ptr()) && !PyTuple_Check(values.ptr())) {
        throw_type_error(operation, argument, values, "a list of str or bytes");
    }
    std::vector<std::string> result;
    for (const nb::handle value : values) result.push_back(bytes_of(value, operation, argument));
    return result;
}

nb::bytes to_bytes(const std::string& value) {
    return nb::bytes(value.data(), value.size());
}

// A store whose methods are Python's.
class PythonStore : public StoreBackend {
 private:
    template <class F>
    auto call(F f) const {
        const nb::gil_scoped_acquire lock;
        try {
            return f(nb::handle(store_.get()));
        } catch (const nb::python_error& error) {
            throw DistStoreError(fmt::format("a store of Python's raised {}", error.what()));
        }
    }
    static nb::str text(std::string_view key) { return nb::str(key.data(), key.size()); }
    static nb::bytes data(std::string_view value) { return nb::bytes(value.data(), value.size()); }
    static nb::list texts(std::span<const std::string> keys) {
        nb::list result;
        for (const std::string& key : keys) result.append(text(key));
        return result;
    }

 public:
    explicit PythonStore(nb::handle store)
        : store_(nb::borrow(store).release().ptr(), [](PyObject* object) {
              const nb::gil_scoped_acquire lock;
              Py_DECREF(object);
          }) {}

    void set(std::string_view key, std::string_view value, Milliseconds) override {
        call([&](nb::handle store) { store.attr("set")(text(key), data(value)); });
    }
    std::string get(std::string_view key, Milliseconds timeout) override {
        wait({{std::string(key)}}, timeout);
        return call([&](nb::handle store) { return bytes_of(store.attr("get")(text(key)), "get", "the result"); });
    }
    std::int64_t add(std::string_view key, std::int64_t amount, Milliseconds) override {
        return call([&](nb::handle store) { return nb::cast<std::int64_t>(store.attr("add")(text(key), amount)); });
    }
    void append(std::string_view key, std::string_view value, Milliseconds) override {
        call([&](nb::handle store) { store.attr("append")(text(key), data(value)); });
    }
    bool check(std::span<const std::string> keys, Milliseconds) override {
        return call([&](nb::handle store) { return nb::cast<bool>(store.attr("check")(texts(keys))); });
    }
    std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                            Milliseconds) override {
        return call([&](nb::handle store) {
            return bytes_of(store.attr("compare_set")(text(key), data(expected), data(desired)), "compare_set",
                            "the result");
        });
    }
    bool delete_key(std::string_view key, Milliseconds) override {
        return call([&](nb::handle store) { return nb::cast<bool>(store.attr("delete_key")(text(key))); });
    }
    std::int64_t num_keys(Milliseconds) override {
        return call([&](nb::handle store) { return nb::cast<std::int64_t>(store.attr("num_keys")()); });
    }
    void wait(std::span<const std::string> keys, Milliseconds timeout) override {
        call([&](nb::handle store) { store.attr("wait")(texts(keys), timedelta(timeout)); });
    }
    std::string describe() const override {
        return call([&](nb::handle store) { return nb::cast<std::string>(nb::str(store.type())); });
    }

 private:
    std::shared_ptr<PyObject> store_;
};

std::uint16_t port_of(int port) {
    if (port < 0 || port > std::numeric_limits<std::uint16_t>::max()) {
        throw InvalidArgument(fmt::format("TCPStore: port is {}: expected 0 to 65535", port));
    }
    return static_cast<std::uint16_t>(port);
}

void bind_store(nb::module_& m) {
    nb::class_<Store>(m, "Store",
                      "A key/value store. Keys and values are str or bytes going in, bytes coming out.\n\n"
                      "Safe to use from several threads. What waits raises DistStoreError after the store's timeout,\n"
                      "300 s unless it was set.\n\n"
                      "Example:\n"
                      "    >>> store = dist.HashStore()\n"
                      "    >>> store.set(\"key\", \"value\")\n"
                      "    >>> store.get(\"key\"), store.add(\"counter\", 2), store.check([\"other\"])\n"
                      "    (b'value', 2, False)")
        .def(nb::init<>())
        .def(
            "set",
            [](Store& self, nb::handle key, nb::handle value) {
                const auto k = bytes_of(key, "Store.set", "key"), v = bytes_of(value, "Store.set", "value");
                without_gil([&] { self.set(k, v); });
            },
            nb::arg("key"), nb::arg("value"), nb::sig("def set(self, key: str | bytes, value: str | bytes) -> None"),
            "Inserts or overwrites.")
        .def(
            "get",
            [](Store& self, nb::handle key) {
                const auto k = bytes_of(key, "Store.get", "key");
                return to_bytes(without_gil([&] { return self.get(k); }));
            },
            nb::arg("key"), nb::sig("def get(self, key: str | bytes) -> bytes"),
            "The value; waits for the key. A counter's decimal text.")
        .def(
            "add",
            [](Store& self, nb::handle key, std::int64_t amount) {
                const auto k = bytes_of(key, "Store.add", "key");
                return without_gil([&] { return self.add(k, amount); });
            },
            nb::arg("key"), nb::arg("amount"), nb::sig("def add(self, key: str | bytes, amount: int) -> int"),
            "Adds to a counter, which is made as 0, and returns its new value.")
        .def(
            "append",
            [](Store& self, nb::handle key, nb::handle value) {
                const auto k = bytes_of(key, "Store.append", "key"), v = bytes_of(value, "Store.append", "value");
                without_gil([&] { self.append(k, v); });
            },
            nb::arg("key"), nb::arg("value"), nb::sig("def append(self, key: str | bytes, value: str | bytes) -> None"),
            "Appends to the value; makes the key if it is not there.")
        .def(
            "check",
            [](Store& self, nb::handle keys) {
                const auto k = list_of_bytes(keys, "Store.check", "keys");
                return without_gil([&] { return self.check(k); });
            },
            nb::arg("keys"), nb::sig("def check(self, keys: list[str]) -> bool"), "Whether all keys are there, now.")
        .def(
            "compare_set",
            [](Store& self, nb::handle key, nb::handle expected, nb::handle desired) {
                constexpr const char* operation = "Store.compare_set";
                const auto k = bytes_of(key, operation, "key"), e = bytes_of(expected, operation, "expected_value"),
                           d = bytes_of(desired, operation, "desired_value");
                return to_bytes(without_gil([&] { return self.compare_set(k, e, d); }));
            },
            nb::arg("key"), nb::arg("expected_value"), nb::arg("desired_value"),
            nb::sig("def compare_set(self, key: str | bytes, expected_value: str | bytes, "
                    "desired_value: str | bytes) -> bytes"),
            "Sets the key where it holds `expected_value`, or is not there and `expected_value` is empty. Returns "
            "what\n"
            "it holds then; `expected_value` where it is not there.")
        .def(
            "delete_key",
            [](Store& self, nb::handle key) {
                const auto k = bytes_of(key, "Store.delete_key", "key");
                return without_gil([&] { return self.delete_key(k); });
            },
            nb::arg("key"), nb::sig("def delete_key(self, key: str | bytes) -> bool"), "Whether the key was there.")
        .def(
            "num_keys", [](Store& self) { return without_gil([&] { return self.num_keys(); }); },
            "TCPStore and FileStore count one key of their own.")
        .def(
            "multi_get",
            [](Store& self, nb::handle keys) {
                const auto k = list_of_bytes(keys, "Store.multi_get", "keys");
                nb::list result;
                for (const std::string& value : without_gil([&] { return self.multi_get(k); })) {
                    result.append(to_bytes(value));
                }
                return result;
            },
            nb::arg("keys"), nb::sig("def multi_get(self, keys: list[str]) -> list[bytes]"),
            "The values in the keys' order; waits for them.")
        .def(
            "multi_set",
            [](Store& self, nb::handle keys, nb::handle values) {
                const auto k = list_of_bytes(keys, "Store.multi_set", "keys");
                const auto v = list_of_bytes(values, "Store.multi_set", "values");
                without_gil([&] { self.multi_set(k, v); });
            },
            nb::arg("keys"), nb::arg("values"),
            nb::sig("def multi_set(self, keys: list[str], values: list[str] | list[bytes]) -> None"),
            "Sets each key to the value at its position.")
        .def(
            "wait",
            [](Store& self, nb::handle keys, nb::handle timeout) {
                const auto k = list_of_bytes(keys, "Store.wait", "keys");
                const auto time = duration_of(timeout, "Store.wait", "timeout");
                without_gil([&] { time ? self.wait(k, *time) : self.wait(k); });
            },
            nb::arg("keys"), nb::arg("timeout") = nb::none(),
            nb::sig("def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None"),
            "Waits until all keys are there.")
        .def("has_extended_api", &Store::has_extended_api,
             "Whether append, multi_get, multi_set and compare_set are single operations.")
        .def(
            "set_timeout",
            [](Store& self, nb::handle timeout) {
                self.set_timeout(duration_of(timeout, "Store.set_timeout", "timeout").value_or(default_store_timeout));
            },
            nb::arg("timeout"), nb::sig("def set_timeout(self, timeout: datetime.timedelta) -> None"),
            "Sets the timeout of get, wait and multi_get.")
        .def_prop_ro(
            "timeout", [](const Store& self) { return timedelta(self.timeout()); },
            nb::sig("def timeout(self) -> datetime.timedelta"))
        .def(
            "abort", [](Store& self, const std::string& reason) { self.abort(reason); }, nb::arg("reason"),
            "Ends every wait on this store, now and later, with Aborted.")
        .def("__repr__", [](const Store& self) { return "<" + (self ? self.describe() : "no store") + ">"; });
}

void bind_kinds(nb::module_& m) {
    nb::class_<HashStore, Store>(m, "HashStore",
                                 "A store in the memory of one process, for its threads.\n\n"
                                 "Example:\n"
                                 "    >>> dist.HashStore().num_keys()\n"
                                 "    0")
        .def(nb::init<>());
    nb::class_<FileStore, Store>(m, "FileStore",
                                 "A store in a file, for all processes that can lock it with fcntl.\n\n"
                                 "Example:\n"
                                 "    >>> import tempfile\n"
                                 "    >>> store = dist.FileStore(f\"{tempfile.mkdtemp()}/store\", world_size=1)\n"
                                 "    >>> store.add(\"counter\", 1)\n"
                                 "    1")
        .def(
            "__init__",
            [](FileStore* self, const std::string& file_name, int world_size) {
                new (self) FileStore(without_gil([&] { return FileStore(file_name, world_size); }));
            },
            nb::arg("file_name"), nb::arg("world_size") = -1,
            "`world_size`: how many use it (negative: not fixed); the last of them removes the file.")
        .def_prop_ro("path", [](const FileStore& self) { return self.path(); });
    nb::class_<TCPStore, Store>(
        m, "TCPStore",
        "A store that one process holds and all reach over TCP.\n\n"
        "Example:\n"
        "    >>> store = dist.TCPStore(\"127.0.0.1\", 0, is_master=True)  # any free port: store.port\n"
        "    >>> store.set(\"key\", \"value\")")
        .def(
            "__init__",
            [](TCPStore* self, const std::string& host, int port, nb::handle world_size, bool is_master,
               nb::handle timeout, bool wait_for_workers, bool multi_tenant, nb::handle listen_fd, bool use_libuv,
               const std::optional<std::string>& secret, bool with_standby, bool is_standby) {
                TCPStoreOptions options{.host = host,
                                        .port = port_of(port),
                                        .world_size = rank_of(world_size, "TCPStore", "world_size"),
                                        .is_master = is_master,
                                        .wait_for_workers = wait_for_workers,
                                        .multi_tenant = multi_tenant,
                                        .use_libuv = use_libuv,
                                        .secret = secret,
                                        .with_standby = with_standby,
                                        .is_standby = is_standby};
                if (options.world_size && *options.world_size < 0) options.world_size.reset();
                if (const auto time = duration_of(timeout, "TCPStore", "timeout")) options.timeout = *time;
                if (const auto fd = rank_of(listen_fd, "TCPStore", "master_listen_fd")) options.master_listen_fd = *fd;
                new (self) TCPStore(without_gil([&] { return TCPStore(options); }));
            },
            nb::arg("host_name"), nb::arg("port"), nb::arg("world_size") = nb::none(), nb::arg("is_master") = false,
            nb::arg("timeout") = nb::none(), nb::arg("wait_for_workers") = true, nb::arg("multi_tenant") = false,
            nb::arg("master_listen_fd") = nb::none(), nb::arg("use_libuv") = true, nb::kw_only(),
            nb::arg("secret") = nb::none(), nb::arg("with_standby") = false, nb::arg("is_standby") = false,
            nb::sig("def __init__(self, host_name: str, port: int, world_size: int | None = None, "
                    "is_master: bool = False, timeout: datetime.timedelta | None = None, "
                    "wait_for_workers: bool = True, multi_tenant: bool = False, master_listen_fd: int | None = None, "
                    "use_libuv: bool = True, *, secret: str | None = None, with_standby: bool = False, "
                    "is_standby: bool = False) -> None"),
            "`port` 0 on the master: any that is free, see the attribute. `timeout`: 300 s. Every connection proves\n"
            "the job's secret: `secret`, else TUTTI_JOB_SECRET; where the host is a loopback address the master makes "
            "one.\n"
            "`with_standby`, on the master: another process may keep the store's contents, too, and serves them when "
            "the\n"
            "master is lost. `is_standby`, on that process: it is the standby of the server at `host_name` and `port`.")
        .def_prop_ro("host", [](const TCPStore& self) { return self.host(); })
        .def_prop_ro("port", [](const TCPStore& self) { return self.port(); })
        .def_prop_ro(
            "standby_port", [](const TCPStore& self) { return self.standby_port(); },
            "In the standby's process: where it listens. 0 elsewhere.")
        .def_prop_ro("libuvBackend", &TCPStore::libuv_backend);
    nb::class_<PrefixStore, Store>(m, "PrefixStore",
                                   "Puts a prefix and \"/\" in front of every key of another store.\n\n"
                                   "Example:\n"
                                   "    >>> store = dist.HashStore()\n"
                                   "    >>> dist.PrefixStore(\"mine\", store).set(\"key\", \"value\")\n"
                                   "    >>> store.get(\"mine/key\")\n"
                                   "    b'value'")
        .def(
            "__init__",
            [](PrefixStore* self, const std::string& prefix, nb::handle store) {
                new (self) PrefixStore(prefix, store_of(store, "PrefixStore"));
            },
            nb::arg("prefix"), nb::arg("store"), nb::sig("def __init__(self, prefix: str, store: Store) -> None"))
        .def_prop_ro("underlying_store", [](const PrefixStore& self) { return self.underlying_store(); });
}

}  // namespace

Store store_of(nb::handle store, const char* operation) {
    if (nb::isinstance<Store>(store)) {
        const auto& known = nb::cast<const Store&>(store);
        if (known) return known;
    }
    for (const char* method : {"set", "get", "add", "wait"}) {
        if (!nb::hasattr(store, method)) throw_type_error(operation, "store", store, "a tutti.distributed.Store");
    }
    return Store(std::make_shared<PythonStore>(store));
}

void bind_stores(nb::module_& m) {
    bind_store(m);
    bind_kinds(m);
}

}  // namespace tutti::python
