// send, recv, isend, irecv.
#include "capi/common.hpp"
#include "capi/failure.hpp"
#include "capi/handles.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti::capi {
namespace {

RecvOptions read(const Common& o, int src) {
    RecvOptions options{.tag = o.tag, .group = o.group, .timeout = o.timeout};
    if (src != TUTTI_ANY_RANK) {
        options.src = o.global(src);
        options.group_src = o.in_group(src);
    }
    return options;
}

Work start_send(const Common& o, const TensorView& tensor, int dst) {
    if (!o.group_ranks) return isend(tensor, dst, {.tag = o.tag, .group = o.group, .timeout = o.timeout});
    if (o.timeout.count() > 0) {
        throw InvalidArgument(fmt::format("{}: options.timeout_ms: {} ms: expected 0 where options.group_ranks is 1",
                                          o.function, o.timeout.count()));
    }
    P2POp send{.tensor = tensor, .group = o.group, .tag = o.tag, .group_peer = dst};
    return batch_isend_irecv({send}).front();
}

}  // namespace
}  // namespace tutti::capi

using namespace tutti;
using namespace tutti::capi;

extern "C" {

tutti_status tutti_send(const tutti_tensor* tensor, int dst, const tutti_options* options) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        const TensorView sent = tensor_of(f, "tensor", tensor);
        const SendOptions how{.tag = o.tag, .group = o.group, .timeout = o.timeout};
        if (o.group_ranks)
            send_to_group_rank(sent, dst, how);
        else
            send(sent, dst, how);
    });
}

tutti_status tutti_recv(const tutti_tensor* tensor, int src, const tutti_options* options, int* sender) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        const int from = recv(tensor_of(f, "tensor", tensor), read(o, src));
        if (sender != nullptr) *sender = from;
    });
}

tutti_status tutti_isend(const tutti_tensor* tensor, int dst, const tutti_options* options, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const Common o(f, options);
        result = works().add(start_send(o, tensor_of(f, "tensor", tensor), dst));
    });
}

tutti_status tutti_irecv(const tutti_tensor* tensor, int src, const tutti_options* options, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const Common o(f, options);
        result = works().add(irecv(tensor_of(f, "tensor", tensor), read(o, src)));
    });
}
}  // extern "C"
