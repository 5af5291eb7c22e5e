// send, recv, sendrecv, and probes.
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

void refuse_tag(const Common& o) {
    if (o.tag != 0)
        throw InvalidArgument(
            fmt::format("{}: options.tag {}: expected 0, as the function has tags of its own", o.function, o.tag));
}

/// The arguments of sendrecv and its relatives.
struct Exchange {
    Exchange(const Common& o, int to, int send_tag, int from, int recv_tag)
        : options{.send_tag = send_tag, .recv_tag = recv_tag, .group = o.group, .timeout = o.timeout} {
        refuse_tag(o);
        if (to == TUTTI_NO_RANK)
            dst = no_rank;
        else
            dst = o.global(to), options.group_dst = o.in_group(to);
        if (from == TUTTI_NO_RANK)
            src = no_rank;
        else if (from != TUTTI_ANY_RANK)
            src = o.global(from), options.group_src = o.in_group(from);
    }
    TensorView sent(const char* f, const tutti_tensor* tensor) const {
        return dst == no_rank ? TensorView() : tensor_of(f, "sent", tensor);
    }
    TensorView received(const char* f, const tutti_tensor* tensor) const {
        return src == no_rank ? TensorView() : tensor_of(f, "received", tensor);
    }

    std::optional<int> dst{}, src{};
    SendrecvOptions options;
};

ProbeOptions probe_options(const Common& o, int src, int tag) {
    refuse_tag(o);
    ProbeOptions options{.group = o.group, .timeout = o.timeout};
    if (tag != TUTTI_ANY_TAG) options.tag = tag;
    if (src != TUTTI_ANY_RANK) {
        options.src = o.global(src);
        options.group_src = o.in_group(src);
    }
    return options;
}

tutti_message_info to_c(const MessageInfo& info) {
    return {info.source,        info.group_source, info.tag, static_cast<std::int32_t>(info.dtype),
            info.element_count, info.byte_count};
}

tutti_message* handle_of(MatchedMessage message, tutti_message_info* info) {
    if (info != nullptr) *info = to_c(message.info());
    return messages().add(std::make_shared<MessageEntry>(std::move(message)));
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

tutti_status tutti_sendrecv(const tutti_tensor* sent, int dst, int send_tag, const tutti_tensor* received, int src,
                            int recv_tag, const tutti_options* options, int* sender) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        const Exchange e(o, dst, send_tag, src, recv_tag);
        const int from = sendrecv(e.sent(f, sent), e.dst, e.received(f, received), e.src, e.options);
        if (sender != nullptr) *sender = from;
    });
}

tutti_status tutti_isendrecv(const tutti_tensor* sent, int dst, int send_tag, const tutti_tensor* received, int src,
                             int recv_tag, const tutti_options* options, tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const Common o(f, options);
        const Exchange e(o, dst, send_tag, src, recv_tag);
        result = works().add(isendrecv(e.sent(f, sent), e.dst, e.received(f, received), e.src, e.options));
    });
}

tutti_status tutti_sendrecv_replace(const tutti_tensor* tensor, int dst, int send_tag, int src, int recv_tag,
                                    const tutti_options* options, int* sender) {
    return guarded(__func__, [&](const char* f) {
        const Common o(f, options);
        const Exchange e(o, dst, send_tag, src, recv_tag);
        const int from = sendrecv_replace(tensor_of(f, "tensor", tensor), e.dst, e.src, e.options);
        if (sender != nullptr) *sender = from;
    });
}

tutti_status tutti_probe(int src, int tag, const tutti_options* options, tutti_message_info* info) {
    return guarded(__func__, [&](const char* f) {
        tutti_message_info& result = out(f, "info", info);
        result = to_c(probe(probe_options(Common(f, options), src, tag)));
    });
}

tutti_status tutti_iprobe(int src, int tag, const tutti_options* options, int* found, tutti_message_info* info) {
    return guarded(__func__, [&](const char* f) {
        int& any = out(f, "found", found);
        tutti_message_info& result = out(f, "info", info);
        const auto message = iprobe(probe_options(Common(f, options), src, tag));
        if (message) result = to_c(*message);
        any = message ? 1 : 0;
    });
}

tutti_status tutti_matched_probe(int src, int tag, const tutti_options* options, tutti_message** message,
                                 tutti_message_info* info) {
    return guarded(__func__, [&](const char* f) {
        tutti_message*& result = out(f, "message", message);
        result = handle_of(matched_probe(probe_options(Common(f, options), src, tag)), info);
    });
}

tutti_status tutti_matched_iprobe(int src, int tag, const tutti_options* options, int* found, tutti_message** message,
                                  tutti_message_info* info) {
    return guarded(__func__, [&](const char* f) {
        int& any = out(f, "found", found);
        tutti_message*& result = out(f, "message", message);
        auto claimed = matched_iprobe(probe_options(Common(f, options), src, tag));
        if (claimed) result = handle_of(std::move(*claimed), info);
        any = claimed ? 1 : 0;
    });
}

tutti_status tutti_message_recv(tutti_message* message, const tutti_tensor* tensor, int64_t timeout_ms) {
    return guarded(__func__, [&](const char* f) {
        const auto entry = messages().get(f, "message", message);
        const TensorView view = tensor_of(f, "tensor", tensor);
        const std::lock_guard lock(entry->mutex);
        entry->held.recv(view, time_of(f, "timeout_ms", timeout_ms));
    });
}

tutti_status tutti_message_irecv(tutti_message* message, const tutti_tensor* tensor, int64_t timeout_ms,
                                 tutti_work** work) {
    return guarded(__func__, [&](const char* f) {
        tutti_work*& result = out(f, "work", work);
        const auto entry = messages().get(f, "message", message);
        const TensorView view = tensor_of(f, "tensor", tensor);
        const std::lock_guard lock(entry->mutex);
        result = works().add(entry->held.irecv(view, time_of(f, "timeout_ms", timeout_ms)));
    });
}

tutti_status tutti_message_free(tutti_message* message) {
    if (message == nullptr) return TUTTI_OK;
    return guarded(__func__, [&](const char* f) { messages().take(f, "message", message); });
}
}  // extern "C"
