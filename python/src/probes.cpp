// sendrecv and its relatives, probes, and matched receives.
#include "calls.hpp"
#include "parts.hpp"

#include <tutti/probe.hpp>

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <mutex>

namespace tutti::python {
namespace {

/// The arguments of a sendrecv; a side where nobody is needs no array.
struct Exchange {
    Exchange(const char* name, nb::handle dst_, nb::handle src_, nb::handle group, nb::handle send_tag,
             nb::handle recv_tag, nb::handle group_dst, nb::handle group_src, nb::handle timeout)
        : dst(rank_of(dst_, name, "dst")),
          src(rank_of(src_, name, "src")),
          options{.send_tag = integer_of(send_tag, name, "send_tag"),
                  .recv_tag = integer_of(recv_tag, name, "recv_tag"),
                  .group = group_of(group, name),
                  .group_dst = rank_of(group_dst, name, "group_dst"),
                  .group_src = rank_of(group_src, name, "group_src"),
                  .timeout = timeout_of(timeout, name)} {}

    void take(const char* name, nb::handle send_tensor, nb::handle recv_tensor) {
        arrays.reserve(2);
        if (dst != no_rank && options.group_dst != no_rank)
            sent = arrays.emplace_back(send_tensor, reads, name, "send_tensor").view();
        if (src == no_rank || options.group_src == no_rank) return;
        received = arrays.emplace_back(recv_tensor, writes, name, "recv_tensor").view();
        outputs.append(recv_tensor);
    }

    std::optional<int> dst, src;
    SendrecvOptions options;
    std::vector<Array> arrays{};
    TensorView sent{}, received{};
    nb::list outputs{};
};

int sendrecv(nb::handle send_tensor, nb::handle dst, nb::handle recv_tensor, nb::handle src, nb::handle group,
             nb::handle send_tag, nb::handle recv_tag, nb::handle group_dst, nb::handle group_src, nb::handle timeout) {
    Exchange e("sendrecv", dst, src, group, send_tag, recv_tag, group_dst, group_src, timeout);
    e.take("sendrecv", send_tensor, recv_tensor);
    return block(e.arrays, [&] { return tutti::sendrecv(e.sent, e.dst, e.received, e.src, e.options); });
}

OptionalWork isendrecv(nb::handle send_tensor, nb::handle dst, nb::handle recv_tensor, nb::handle src, nb::handle group,
                       nb::handle send_tag, nb::handle recv_tag, nb::handle group_dst, nb::handle group_src,
                       nb::handle timeout) {
    Exchange e("isendrecv", dst, src, group, send_tag, recv_tag, group_dst, group_src, timeout);
    if (is_outside(e.options.group, "isendrecv")) return OptionalWork(nb::none());
    e.take("isendrecv", send_tensor, recv_tensor);
    return begin(std::move(e.arrays), e.outputs,
                 [&] { return tutti::isendrecv(e.sent, e.dst, e.received, e.src, e.options); });
}

int sendrecv_replace(nb::handle tensor, nb::handle dst, nb::handle src, nb::handle group, nb::handle send_tag,
                     nb::handle recv_tag, nb::handle group_dst, nb::handle group_src, nb::handle timeout) {
    constexpr const char* name = "sendrecv_replace";
    Exchange e(name, dst, src, group, send_tag, recv_tag, group_dst, group_src, timeout);
    e.arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = e.arrays[0].view();
    return block(e.arrays, [&] { return tutti::sendrecv_replace(view, e.dst, e.src, e.options); });
}

// ---- Probes

ProbeOptions probe_options(const char* name, nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src,
                           nb::handle timeout) {
    return {.src = rank_of(src, name, "src"),
            .tag = rank_of(tag, name, "tag"),
            .group = group_of(group, name),
            .group_src = rank_of(group_src, name, "group_src"),
            .timeout = timeout_of(timeout, name)};
}

/// A MatchedMessage that several threads may use, and that returns its message without the interpreter's lock: whoever
/// drives may want that.
class HeldMessage {
 public:
    explicit HeldMessage(MatchedMessage message) : message_(std::move(message)) {}
    HeldMessage(const HeldMessage&) = delete;
    HeldMessage& operator=(const HeldMessage&) = delete;
    ~HeldMessage() { release(); }

    const MessageInfo& info() const { return message_.info(); }  // does not change
    nb::object recv(nb::handle tensor, nb::handle timeout) {
        constexpr const char* name = "MatchedMessage.recv";
        const milliseconds limit = timeout_of(timeout, name);
        if (tensor.is_none()) {
            return to_numpy(without_gil([&] {
                const std::lock_guard lock(mutex_);
                return message_.recv(limit);
            }));
        }
        auto arrays = list_of(Array(tensor, writes, name, "tensor"));
        without_gil([&] {
            const std::lock_guard lock(mutex_);
            message_.recv(arrays[0].view(), limit);
        });
        return nb::borrow(tensor);
    }
    OptionalWork irecv(nb::handle tensor, nb::handle timeout) {
        constexpr const char* name = "MatchedMessage.irecv";
        auto arrays = list_of(Array(tensor, writes, name, "tensor"));
        const TensorView view = arrays[0].view();
        const milliseconds limit = timeout_of(timeout, name);
        return begin(std::move(arrays), one(tensor), [&] {
            const std::lock_guard lock(mutex_);
            return message_.irecv(view, limit);
        });
    }
    void release() {
        const WithoutGil without;
        const std::lock_guard lock(mutex_);
        message_.release();
    }

 private:
    std::mutex mutex_;
    MatchedMessage message_;
};

MessageInfo probe(nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src, nb::handle timeout) {
    const ProbeOptions options = probe_options("probe", src, group, tag, group_src, timeout);
    return without_gil([&] { return tutti::probe(options); });
}

std::optional<MessageInfo> iprobe(nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src) {
    const ProbeOptions options = probe_options("iprobe", src, group, tag, group_src, nb::none());
    return without_gil([&] { return tutti::iprobe(options); });
}

std::unique_ptr<HeldMessage> matched_probe(nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src,
                                           nb::handle timeout) {
    const ProbeOptions options = probe_options("matched_probe", src, group, tag, group_src, timeout);
    return std::make_unique<HeldMessage>(without_gil([&] { return tutti::matched_probe(options); }));
}

nb::typed<nb::object, std::optional<HeldMessage>> matched_iprobe(nb::handle src, nb::handle group, nb::handle tag,
                                                                 nb::handle group_src) {
    const ProbeOptions options = probe_options("matched_iprobe", src, group, tag, group_src, nb::none());
    auto message = without_gil([&] { return tutti::matched_iprobe(options); });
    if (!message) return nb::typed<nb::object, std::optional<HeldMessage>>(nb::none());
    return nb::typed<nb::object, std::optional<HeldMessage>>(
        nb::cast(std::make_unique<HeldMessage>(std::move(*message))));
}

}  // namespace

void bind_probes(nb::module_& m) {
    m.def("sendrecv", &sendrecv);
    m.def("isendrecv", &isendrecv);
    m.def("sendrecv_replace", &sendrecv_replace);
    nb::class_<MessageInfo>(m, "MessageInfo", "What a probe knows of a message.")
        .def_ro("source", &MessageInfo::source, "The global rank of the sender.")
        .def_ro("group_source", &MessageInfo::group_source, "The sender's rank in the group.")
        .def_ro("tag", &MessageInfo::tag, "The message's tag.")
        .def_prop_ro(
            "dtype", [](const MessageInfo& i) { return std::string(to_string(i.dtype)); },
            "The type of its elements: \"float32\".")
        .def_ro("count", &MessageInfo::element_count, "The number of its elements.")
        .def_ro("nbytes", &MessageInfo::byte_count, "Its length in bytes.")
        .def(
            "__eq__",
            [](const MessageInfo& a, nb::handle b) {
                return nb::isinstance<MessageInfo>(b) && a == nb::cast<const MessageInfo&>(b);
            },
            nb::arg().none(), nb::sig("def __eq__(self, arg: object, /) -> bool"))
        .def("__repr__", [](const MessageInfo& i) {
            return fmt::format("MessageInfo(source={}, tag={}, dtype='{}', count={})", i.source, i.tag,
                               to_string(i.dtype), i.element_count);
        });
    nb::class_<HeldMessage>(
        m, "MatchedMessage",
        "A message that matched_probe has found, and that no other receive and no probe can get.\n"
        "One that is dropped unreceived is not lost: it returns to its place, where a receive gets\n"
        "it.\n\n"
        "Example:\n"
        "    >>> me = dist.get_rank()\n"
        "    >>> work = dist.isend(np.arange(3), dst=me)\n"
        "    >>> message = dist.matched_probe(src=me)\n"
        "    >>> message.info.count, message.recv().tolist()\n"
        "    (3, [0, 1, 2])")
        .def_prop_ro(
            "info", [](const HeldMessage& self) { return self.info(); },  // a copy, which does not keep the message
            "What the message is; also after it has been received.")
        .def("recv", &HeldMessage::recv, nb::arg("tensor") = nb::none(), nb::kw_only(), nb::arg("timeout") = nb::none(),
             nb::sig("def recv(self, tensor: Array | None = None, *, timeout: datetime.timedelta | None = None) -> "
                     "typing.Any"),
             "Receives the message into `tensor`, of its dtype and number of elements; None: into a new NumPy\n"
             "array. Returns the array. InvalidArgument for another tensor, and the message is still held.")
        .def("irecv", &HeldMessage::irecv, nb::arg("tensor"), nb::kw_only(), nb::arg("timeout") = nb::none(),
             nb::sig("def irecv(self, tensor: Array, *, timeout: datetime.timedelta | None = None) -> Work | None"),
             "The same without waiting.")
        .def("release", &HeldMessage::release, nb::sig("def release(self) -> None"),
             "Gives the message back, so that others can receive it; nothing happens to one that has been received.");
    m.def("probe", &probe);
    m.def("iprobe", &iprobe);
    m.def("matched_probe", &matched_probe);
    m.def("matched_iprobe", &matched_iprobe);
}

}  // namespace tutti::python
