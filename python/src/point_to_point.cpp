// send and recv, and batches of them.
#include "calls.hpp"
#include "parts.hpp"

#include <tutti/groups.hpp>

#include <fmt/format.h>

namespace tutti::python {
namespace {

SendOptions send_options(nb::handle group, int tag, const char* name) {
    return {.tag = tag, .group = group_of(group, name)};
}
RecvOptions recv_options(nb::handle src, nb::handle group, int tag, nb::handle group_src, const char* name) {
    return {.src = rank_of(src, name, "src"),
            .tag = tag,
            .group = group_of(group, name),
            .group_src = rank_of(group_src, name, "group_src")};
}

// The global rank to send to: exactly one of dst and group_dst.
int destination(nb::handle dst, nb::handle group_dst, const ProcessGroup& group, const char* name) {
    const auto global = rank_of(dst, name, "dst"), local = rank_of(group_dst, name, "group_dst");
    if (global.has_value() == local.has_value()) {
        throw InvalidArgument(
            fmt::format("{}: {} of dst and group_dst: expected exactly one", name, global ? "both" : "none"));
    }
    if (global) return *global;
    return get_global_rank(group ? group : default_group(), *local);
}

void send(nb::handle tensor, nb::handle dst, nb::handle group, int tag, nb::handle group_dst) {
    constexpr const char* name = "send";
    auto arrays = list_of(Array(tensor, Array::Access::read, name, "tensor"));
    const ConstTensorView view = arrays[0].view();
    const SendOptions options = send_options(group, tag, name);
    if (options.group.is_non_member()) return;
    const int to = destination(dst, group_dst, options.group, name);
    block(arrays, [&] { tutti::send(view, to, options); });
}

int recv(nb::handle tensor, nb::handle src, nb::handle group, int tag, nb::handle group_src) {
    constexpr const char* name = "recv";
    auto arrays = list_of(Array(tensor, Array::Access::write, name, "tensor"));
    const TensorView view = arrays[0].view();
    const RecvOptions options = recv_options(src, group, tag, group_src, name);
    return block(arrays, [&] { return tutti::recv(view, options); });
}

OptionalWork isend(nb::handle tensor, nb::handle dst, nb::handle group, int tag, nb::handle group_dst) {
    constexpr const char* name = "isend";
    auto arrays = list_of(Array(tensor, Array::Access::read, name, "tensor"));
    const ConstTensorView view = arrays[0].view();
    const SendOptions options = send_options(group, tag, name);
    if (options.group.is_non_member()) return OptionalWork(nb::none());
    const int to = destination(dst, group_dst, options.group, name);
    return begin(std::move(arrays), nb::list(), [&] { return tutti::isend(view, to, options); });
}

OptionalWork irecv(nb::handle tensor, nb::handle src, nb::handle group, int tag, nb::handle group_src) {
    constexpr const char* name = "irecv";
    auto arrays = list_of(Array(tensor, Array::Access::write, name, "tensor"));
    const TensorView view = arrays[0].view();
    const RecvOptions options = recv_options(src, group, tag, group_src, name);
    nb::list outputs;
    outputs.append(tensor);
    return begin(std::move(arrays), outputs, [&] { return tutti::irecv(view, options); });
}

// Each operation: (receives, tensor, peer, group, tag, group_peer).
nb::typed<nb::list, PendingWork> batch_isend_irecv(
    const nb::typed<nb::list, nb::typed<nb::tuple, nb::object, nb::ellipsis>>& operations) {
    constexpr const char* name = "batch_isend_irecv";
    std::vector<P2POp> batch;
    std::vector<Array> arrays;
    for (const nb::handle operation : operations) {
        const bool receives = nb::cast<bool>(operation[0]);
        arrays.emplace_back(operation[1], receives ? Array::Access::write : Array::Access::read, name, "tensor");
        batch.push_back({.kind = receives ? P2POp::Kind::irecv : P2POp::Kind::isend,
                         .tensor = arrays.back().view(),
                         .peer = rank_of(operation[2], name, "peer"),
                         .group = group_of(operation[3], name),
                         .tag = nb::cast<int>(operation[4]),
                         .group_peer = rank_of(operation[5], name, "group_peer")});
    }
    std::vector<Work> works = without_gil([&] { return tutti::batch_isend_irecv(batch); });
    nb::typed<nb::list, PendingWork> result;
    for (std::size_t i = 0; i < works.size(); ++i) {
        if (!works[i]) continue;
        nb::list outputs;
        if (batch[i].kind == P2POp::Kind::irecv) outputs.append(operations[i][1]);
        result.append(PendingWork::object(std::move(works[i]), list_of(std::move(arrays[i])), outputs));
    }
    return result;
}

}  // namespace

void bind_point_to_point(nb::module_& m) {
    m.def("send", &send);
    m.def("recv", &recv);
    m.def("isend", &isend);
    m.def("irecv", &irecv);
    m.def("batch_isend_irecv", &batch_isend_irecv);
}

}  // namespace tutti::python
