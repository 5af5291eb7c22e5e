// Windows.
#include "capi/failure.hpp"
#include "capi/handles.hpp"

#include <tutti/error.hpp>

#include <span>

namespace tutti::capi {
namespace {

WindowAccess access_of(const char* f, std::int64_t offset, std::int64_t timeout_ms) {
    return {.offset = offset, .timeout = time_of(f, "timeout_ms", timeout_ms)};
}

AccumulateOp accumulate_op_of(const char* f, int op) {
    if (op == TUTTI_REPLACE) return AccumulateOp::replace;
    if (op == TUTTI_NO_OP) return AccumulateOp::no_op;
    return static_cast<ReduceOp::Kind>(number_of(f, "op", op, 0, reduce_op_count - 1));
}

/// One element of the window's type; none where there may be no value.
TensorView element_of(const char* f, const char* argument, const Window& window, void* value, bool may_lack = false) {
    if (value == nullptr && may_lack) return {nullptr, Extents::of(0), window.dtype()};
    if (value == nullptr) refuse_null(f, argument);
    return {value, Extents::of(1), window.dtype()};
}
ConstTensorView element_of(const char* f, const char* argument, const Window& window, const void* value,
                           bool may_lack = false) {
    return element_of(f, argument, window, const_cast<void*>(value), may_lack);
}

TensorView source_of(const char* f, const tutti_tensor* source, AccumulateOp op) {
    if (source == nullptr && op == AccumulateOp::no_op) return {};
    return tensor_of(f, "source", source);
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_window_create(int dtype, const int64_t* shape, int ndim, const tutti_window_options* options,
                                 tutti_window** window) {
    return guarded(__func__, [&](const char* f) {
        tutti_window*& result = out(f, "window", window);
        const tutti_window_options o = options_of(f, "tutti_window_options", options, TUTTI_WINDOW_OPTIONS_INIT);
        const auto type = static_cast<DType>(number_of(f, "dtype", dtype, 0, dtype_count - 1));
        const int dimensions = number_of(f, "ndim", ndim, 0, 64);
        if (shape == nullptr && dimensions > 0) refuse_null(f, "shape");
        number_of(f, "options.reserved", o.reserved, 0, 0);
        result = windows().add(Window(type, Extents(std::span(shape, static_cast<std::size_t>(dimensions))),
                                      {.signals = o.signals,
                                       .group = group_of(f, o.group),
                                       .timeout = time_of(f, "options.timeout_ms", o.timeout_ms)}));
    });
}

tutti_status tutti_window_close(tutti_window* window, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows().get(f, "window", window).close(time_of(f, "timeout_ms", timeout_ms));
    });
}

tutti_status tutti_window_free(tutti_window* window) {
    if (window == nullptr) return TUTTI_OK;
    return guarded(__func__, [&](const char* f) { windows().take(f, "window", window); });
}

tutti_status tutti_window_element_count(tutti_window* window, int rank, int64_t* count) {
    return guarded(__func__, [&](const char* f) {
        std::int64_t& result = out(f, "count", count);
        result = windows().get(f, "window", window).element_count(rank);
    });
}

tutti_status tutti_window_memory(tutti_window* window, int rank, void** memory) {
    return guarded(__func__, [&](const char* f) {
        void*& result = out(f, "memory", memory);
        result = windows().get(f, "window", window).map_remote(rank).raw_data();
    });
}

tutti_status tutti_window_put(tutti_window* window, const tutti_tensor* source, int target, int64_t offset,
                              int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows()
            .get(f, "window", window)
            .put(tensor_of(f, "source", source), target, access_of(f, offset, timeout_ms));
    });
}

tutti_status tutti_window_put_async(tutti_window* window, const tutti_tensor* source, int target, int64_t offset,
                                    int64_t timeout_ms, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        result = works().add(windows()
                                 .get(f, "window", window)
                                 .iput(tensor_of(f, "source", source), target, access_of(f, offset, timeout_ms)));
    });
}

tutti_status tutti_window_get(tutti_window* window, const tutti_tensor* destination, int target, int64_t offset,
                              int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows()
            .get(f, "window", window)
            .get(tensor_of(f, "destination", destination), target, access_of(f, offset, timeout_ms));
    });
}

tutti_status tutti_window_get_async(tutti_window* window, const tutti_tensor* destination, int target, int64_t offset,
                                    int64_t timeout_ms, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        result =
            works().add(windows()
                            .get(f, "window", window)
                            .iget(tensor_of(f, "destination", destination), target, access_of(f, offset, timeout_ms)));
    });
}

tutti_status tutti_window_put_signal(tutti_window* window, const tutti_tensor* source, int target, int64_t offset,
                                     int signal, uint64_t value, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows()
            .get(f, "window", window)
            .put_signal(
                tensor_of(f, "source", source), target,
                {.offset = offset, .signal = signal, .value = value, .timeout = time_of(f, "timeout_ms", timeout_ms)});
    });
}

tutti_status tutti_window_accumulate(tutti_window* window, const tutti_tensor* source, int target, int op,
                                     int64_t offset, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows()
            .get(f, "window", window)
            .accumulate(tensor_of(f, "source", source), target, accumulate_op_of(f, op),
                        access_of(f, offset, timeout_ms));
    });
}

tutti_status tutti_window_accumulate_async(tutti_window* window, const tutti_tensor* source, int target, int op,
                                           int64_t offset, int64_t timeout_ms, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        result = works().add(windows()
                                 .get(f, "window", window)
                                 .iaccumulate(tensor_of(f, "source", source), target, accumulate_op_of(f, op),
                                              access_of(f, offset, timeout_ms)));
    });
}

tutti_status tutti_window_get_accumulate(tutti_window* window, const tutti_tensor* source, const tutti_tensor* before,
                                         int target, int op, int64_t offset, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        const AccumulateOp how = accumulate_op_of(f, op);
        windows()
            .get(f, "window", window)
            .get_accumulate(source_of(f, source, how), tensor_of(f, "before", before), target, how,
                            access_of(f, offset, timeout_ms));
    });
}

tutti_status tutti_window_get_accumulate_async(tutti_window* window, const tutti_tensor* source,
                                               const tutti_tensor* before, int target, int op, int64_t offset,
                                               int64_t timeout_ms, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const AccumulateOp how = accumulate_op_of(f, op);
        result = works().add(windows()
                                 .get(f, "window", window)
                                 .iget_accumulate(source_of(f, source, how), tensor_of(f, "before", before), target,
                                                  how, access_of(f, offset, timeout_ms)));
    });
}

tutti_status tutti_window_fetch_op(tutti_window* window, const void* value, void* before, int target, int op,
                                   int64_t offset, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        const Window of = windows().get(f, "window", window);
        const AccumulateOp how = accumulate_op_of(f, op);
        of.get_accumulate(element_of(f, "value", of, value, how == AccumulateOp::no_op),
                          element_of(f, "before", of, before), target, how, access_of(f, offset, timeout_ms));
    });
}

tutti_status tutti_window_compare_and_swap(tutti_window* window, const void* expected, const void* desired,
                                           void* before, int target, int64_t offset, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        const Window of = windows().get(f, "window", window);
        of.icompare_and_swap(element_of(f, "expected", of, expected), element_of(f, "desired", of, desired),
                             element_of(f, "before", of, before), target, access_of(f, offset, timeout_ms))
            .wait();
    });
}

tutti_status tutti_window_signal(tutti_window* window, int target, int signal, uint64_t value) {
    return guarded(__func__, [&](const char* f) { windows().get(f, "window", window).signal(target, signal, value); });
}

tutti_status tutti_window_wait_signal(tutti_window* window, int signal, uint64_t at_least, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows().get(f, "window", window).wait_signal(signal, at_least, time_of(f, "timeout_ms", timeout_ms));
    });
}

tutti_status tutti_window_read_signal(tutti_window* window, int signal, uint64_t* value) {
    return guarded(__func__, [&](const char* f) {
        std::uint64_t& result = out(f, "value", value);
        result = windows().get(f, "window", window).read_signal(signal);
    });
}

tutti_status tutti_window_flush(tutti_window* window, int target, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        const Window of = windows().get(f, "window", window);
        const std::chrono::milliseconds limit = time_of(f, "timeout_ms", timeout_ms);
        target == TUTTI_ANY_RANK ? of.flush(limit) : of.flush(target, limit);
    });
}

tutti_status tutti_window_fence(tutti_window* window, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        windows().get(f, "window", window).fence(time_of(f, "timeout_ms", timeout_ms));
    });
}
}  // extern "C"
