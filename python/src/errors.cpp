#include "errors.hpp"

#include <tutti/atb.hpp>
#include <tutti/error.hpp>
#include <tutti/graph.hpp>
#include <tutti/interrupt.hpp>
#include <tutti/object.hpp>
#include <tutti/spawn.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

namespace tutti::python {
namespace {

// An argument of an unusable type; becomes tutti.errors.ArgumentTypeError.
class ArgumentType : public InvalidArgument {
 public:
    using InvalidArgument::InvalidArgument;
};

// The exception that a signal handler raised while the main thread waited. For the main thread alone.
std::optional<nb::python_error>& raised_by_signal() {
    static auto* raised = new std::optional<nb::python_error>();  // outlives the interpreter
    return *raised;
}

std::thread::id main_thread;
std::atomic<std::thread::id> ending_thread{};  // the thread that ends the interpreter
constexpr auto check_interval = std::chrono::milliseconds(20);

// Runs Python's signal handlers in a wait of the main thread, as the interpreter does between two instructions. Returns
// true if one of them has raised.
bool check_signals() noexcept {
    if (std::this_thread::get_id() != main_thread) return false;
    static std::chrono::steady_clock::time_point last;
    const auto now = std::chrono::steady_clock::now();
    if (now - last < check_interval) return false;
    last = now;
    const nb::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return false;
    raised_by_signal().emplace();
    return true;
}

// The error code's name: ATB's for an error of ATB, otherwise tutti's.
const char* code_of(const DistError& error) {
    const auto* atb_error = dynamic_cast<const atb::Error*>(&error);
    return atb_error != nullptr ? atb::to_string(atb_error->code()) : to_string(error.code());
}

const char* class_of(const DistError& error) {
    if (dynamic_cast<const ArgumentType*>(&error)) return "ArgumentTypeError";
    if (dynamic_cast<const ObjectError*>(&error)) return "ObjectError";
    if (dynamic_cast<const atb::Error*>(&error)) return "AtbError";
    if (dynamic_cast<const graph::HostRead*>(&error)) return "HostRead";
    if (dynamic_cast<const InvalidArgument*>(&error)) return "InvalidArgument";
    if (dynamic_cast<const CollectiveMismatch*>(&error)) return "CollectiveMismatch";
    if (dynamic_cast<const PeerLost*>(&error)) return "PeerLost";
    if (dynamic_cast<const Timeout*>(&error)) return "Timeout";
    if (dynamic_cast<const Aborted*>(&error)) return "Aborted";
    if (dynamic_cast<const DistBackendError*>(&error)) return "DistBackendError";
    if (dynamic_cast<const DistNetworkError*>(&error)) return "DistNetworkError";
    if (dynamic_cast<const DistStoreError*>(&error)) return "DistStoreError";
    if (dynamic_cast<const InternalError*>(&error)) return "InternalError";
    return "DistError";
}

void set_dist_error(const DistError& error) {
    if (error.code() == ErrorCode::interrupted && std::this_thread::get_id() == main_thread) {
        if (auto& raised = raised_by_signal()) {
            raised->restore();
            raised.reset();
            return;
        }
    }
    const ErrorContext& context = error.context();
    nb::object cls = nb::module_::import_("tutti.errors").attr(class_of(error));
    nb::object instance = cls(nb::str(error.what()));
    instance.attr("code") = nb::str(code_of(error));
    instance.attr("operation") = nb::str(context.operation.c_str());
    instance.attr("sequence") = context.sequence;
    instance.attr("group") = nb::str(context.group.c_str());
    instance.attr("rank") = context.rank;
    instance.attr("peer") = context.peer;
    instance.attr("hint") = nb::str(context.hint.c_str());
    if (std::string_view(error.what()).find(context.hint) == std::string_view::npos &&
        nb::hasattr(instance, "add_note"))
        instance.attr("add_note")("What to do: " + context.hint);  // tracebacks show it, from Python 3.11 on
    if (const auto* object_error = dynamic_cast<const ObjectError*>(&error)) {
        instance.attr("path") = nb::str(object_error->path().c_str());
        instance.attr("reason") = nb::str(object_error->reason().c_str());
    }
    if (const auto* host_read = dynamic_cast<const graph::HostRead*>(&error)) {
        instance.attr("read_at") = nb::str(host_read->read_at().c_str());
        instance.attr("written_at") = nb::str(host_read->written_at().c_str());
    }
    PyErr_SetObject(cls.ptr(), instance.ptr());
}

}  // namespace

void set_error(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const DistError& dist_error) {
        try {
            set_dist_error(dist_error);
        } catch (nb::python_error& python_error) {
            python_error.restore();
        }
    } catch (nb::python_error& python_error) {
        python_error.restore();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& other) {
        PyErr_SetString(PyExc_RuntimeError, other.what());
    }
}

nb::object exception_object(const std::exception_ptr& error) {
    if (!error) return nb::none();
    set_error(error);
    const nb::python_error raised;
    return nb::borrow(raised.value());
}

std::string words_of(const nb::python_error& error) {
    return fmt::format("{}: {}", nb::cast<std::string>(nb::str(error.type().attr("__name__"))),
                       nb::cast<std::string>(nb::str(error.value())));
}

std::string class_name(nb::handle object) {
    return nb::cast<std::string>(object.type().attr("__name__"));
}

void throw_type_error(const char* operation, const char* argument, nb::handle got, const char* expected) {
    throw ArgumentType(
        fmt::format("{}: {} is of type {}: expected {}", operation, argument, class_name(got), expected));
}

void end_daemon_threads() {
    ending_thread = std::this_thread::get_id();
}

void bind_errors(nb::module_&) {
    // If no module has imported threading, there is only the main thread.
    main_thread = std::this_thread::get_id();
    const nb::dict modules = nb::module_::import_("sys").attr("modules");
    const nb::object threading = modules.contains("threading") ? nb::object(modules["threading"]) : nb::none();
    if (threading.is_none() || threading.attr("current_thread")().is(threading.attr("main_thread")())) {
        set_interrupt_check(check_signals);
    }
    nb::register_exception_translator([](const std::exception_ptr& error, void*) {
        try {
            std::rethrow_exception(error);
        } catch (const DistError&) {
            const std::thread::id ending = ending_thread.load();
            if (ending != std::thread::id() && ending != std::this_thread::get_id())
                PyErr_SetNone(PyExc_SystemExit);
            else
                set_error(error);
        }
    });
}

}  // namespace tutti::python
