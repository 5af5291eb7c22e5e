#include "signals.hpp"

#include <torch/csrc/utils/pybind.h>

#include <tutti/error.hpp>
#include <tutti/interrupt.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace tutti::torch {
namespace {

constexpr auto check_interval = std::chrono::milliseconds(20);
std::thread::id main_thread;
// Both are for the main thread alone.
std::exception_ptr raised;
std::chrono::steady_clock::time_point last_check;

}  // namespace

bool check_signals() noexcept {
    if (std::this_thread::get_id() != main_thread || !Py_IsInitialized()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_check < check_interval) return false;
    last_check = now;
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() == 0) return false;
    raised = std::make_exception_ptr(py::error_already_set());
    return true;
}

void raise_signal(const char* operation) {
    if (!check_signals()) return;
    throw Aborted(std::string("Store.") + operation + ": interrupted by a signal", {.operation = "Store.wait"},
                  ErrorCode::interrupted);
}

std::exception_ptr raised_by_signal() {
    if (std::this_thread::get_id() != main_thread) return nullptr;
    return std::exchange(raised, nullptr);
}

void run_signal_handlers_in_waits() {
    const py::module_ threading = py::module_::import("threading");
    if (!threading.attr("current_thread")().is(threading.attr("main_thread")())) return;
    main_thread = std::this_thread::get_id();
    set_interrupt_check(check_signals);
}

}  // namespace tutti::torch
