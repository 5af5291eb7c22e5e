// send and recv, their plans, and batches of them.
#include "parts.hpp"
#include "plans.hpp"

#include <tutti/groups.hpp>

#include <fmt/format.h>

namespace tutti::python {
namespace {

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

// A send of one array, and its receiver.
struct Sending {
    Sending(const char* name, nb::handle tensor, nb::handle dst, nb::handle group, nb::handle tag, nb::handle group_dst,
            nb::handle timeout)
        : arrays(list_of(Array(tensor, reads, name, "tensor"))),
          view(arrays[0].view()),
          options{.tag = integer_of(tag, name, "tag"),
                  .group = group_of(group, name),
                  .timeout = timeout_of(timeout, name)},
          outside(options.group.is_non_member()),
          to(outside ? -1 : destination(dst, group_dst, options.group, name)) {}

    std::vector<Array> arrays;
    ConstTensorView view;
    SendOptions options;
    bool outside;  // of the group
    int to;
};

RecvOptions recv_options(const char* name, nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src,
                         nb::handle timeout) {
    return {.src = rank_of(src, name, "src"),
            .tag = integer_of(tag, name, "tag"),
            .group = group_of(group, name),
            .group_src = rank_of(group_src, name, "group_src"),
            .timeout = timeout_of(timeout, name)};
}

void send(nb::handle tensor, nb::handle dst, nb::handle group, nb::handle tag, nb::handle group_dst,
          nb::handle timeout) {
    Sending what("send", tensor, dst, group, tag, group_dst, timeout);
    block(what.arrays, [&] { tutti::send(what.view, what.to, what.options); });
}

int recv(nb::handle tensor, nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src,
         nb::handle timeout) {
    constexpr const char* name = "recv";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const RecvOptions options = recv_options(name, src, group, tag, group_src, timeout);
    if (is_outside(options.group, name)) return -1;
    return block(arrays, [&] { return tutti::recv(view, options); });
}

OptionalWork isend(nb::handle tensor, nb::handle dst, nb::handle group, nb::handle tag, nb::handle group_dst,
                   nb::handle timeout) {
    Sending what("isend", tensor, dst, group, tag, group_dst, timeout);
    if (is_outside(what.options.group, "isend")) return OptionalWork(nb::none());
    return begin(std::move(what.arrays), nb::list(), [&] { return tutti::isend(what.view, what.to, what.options); });
}

OptionalWork irecv(nb::handle tensor, nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src,
                   nb::handle timeout) {
    constexpr const char* name = "irecv";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const RecvOptions options = recv_options(name, src, group, tag, group_src, timeout);
    if (is_outside(options.group, name)) return OptionalWork(nb::none());
    return begin(std::move(arrays), one(tensor), [&] { return tutti::irecv(view, options); });
}

ArrayPlan plan_send(nb::handle tensor, nb::handle dst, nb::handle group, nb::handle tag, nb::handle group_dst,
                    nb::handle timeout) {
    constexpr const char* name = "plan.send";
    Sending what(name, tensor, dst, group, tag, group_dst, timeout);
    if (what.outside) {
        throw InvalidArgument(fmt::format("{}: group is one that this rank is not in: expected a group of its", name));
    }
    Plan plan = without_gil([&] { return plan::send(what.view, what.to, what.options); });
    return {std::move(plan), std::move(what.arrays), nb::list()};
}

ArrayPlan plan_recv(nb::handle tensor, nb::handle src, nb::handle group, nb::handle tag, nb::handle group_src,
                    nb::handle timeout) {
    constexpr const char* name = "plan.recv";
    auto arrays = list_of(Array(tensor, writes, name, "tensor"));
    const TensorView view = arrays[0].view();
    const RecvOptions options = recv_options(name, src, group, tag, group_src, timeout);
    Plan plan = without_gil([&] { return plan::recv(view, options); });
    return {std::move(plan), std::move(arrays), one(tensor)};
}

// Each operation: (receives, tensor, peer, group, tag, group_peer).
nb::typed<nb::list, PendingWork> batch_isend_irecv(
    const nb::typed<nb::list, nb::typed<nb::tuple, nb::object, nb::ellipsis>>& operations) {
    constexpr const char* name = "batch_isend_irecv";
    std::vector<P2POp> batch;
    std::vector<Array> arrays;
    for (const nb::handle operation : operations) {
        const bool receives = nb::cast<bool>(operation[0]);
        arrays.emplace_back(operation[1], receives ? writes : reads, name, "tensor");
        batch.push_back({.kind = receives ? P2POp::Kind::irecv : P2POp::Kind::isend,
                         .tensor = arrays.back().view(),
                         .peer = rank_of(operation[2], name, "peer"),
                         .group = group_of(operation[3], name),
                         .tag = integer_of(operation[4], name, "tag"),
                         .group_peer = rank_of(operation[5], name, "group_peer")});
    }
    const InStream in_stream(source_of(arrays));
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
    m.def("plan_send", &plan_send);
    m.def("plan_recv", &plan_recv);
}

}  // namespace tutti::python
