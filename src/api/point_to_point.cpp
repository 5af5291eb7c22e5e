// send, recv, batches, and the barrier that names the missing ranks.
#include "api/coalescing_internal.hpp"
#include "api/request.hpp"
#include "group/fingerprint.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>

namespace tutti {
namespace {

using api::group_of;
using api::Prepared;
using detail::Group;
using detail::OwnMessage;

// A view that is only read travels in the type that receives use too, which adds nothing to it.
void set_writable(TensorView& to, const ConstTensorView& from) {
    static_cast<ConstTensorView&>(to) = from;
}
TensorView writable(const ConstTensorView& view) {
    TensorView result;
    set_writable(result, view);
    return result;
}

/// The arguments of a call, as long as it lasts.
struct Message {
    const char* name;
    const ConstTensorView& tensor;
    std::optional<int> peer, group_peer;
    int tag;
    const ProcessGroup& group;
    milliseconds timeout{0};
    bool receives;
    std::optional<OwnMessage> own{};  ///< instead of a tag
    Stream stream{};

    std::uint64_t channel(const Group& at) const noexcept {
        using detail::Channel;
        return own ? Channel::of_message(at.index(), *own)
                   : Channel::of_message(at.index(), static_cast<std::uint64_t>(tag));
    }
};

std::uint64_t fingerprint_of(const ConstTensorView& tensor) {
    return group::Fingerprint::pack(group::point_to_point, tensor.dtype(), ReduceOp::Kind::sum, -1,
                                    static_cast<std::uint64_t>(tensor.element_count()));
}

// The global rank that the message goes to or comes from (any_source: any). Throws for any fault in it.
int check(const Message& m) {
    if (!m.own) api::check_device(m.name, "tensor", m.tensor, *group_of(m.group, m.name));
    if (m.tensor.device().type != Device::Type::cpu && !m.tensor.contiguous()) {
        throw InvalidArgument(fmt::format("{}: tensor on {} is not in one piece: expected contiguous memory", m.name,
                                          to_string(m.tensor.device())));
    }
    if (m.timeout < milliseconds::zero()) {
        throw InvalidArgument(
            fmt::format("{}: timeout {} ms: expected zero (the group's) or more", m.name, m.timeout.count()));
    }
    if (m.tag < 0) throw InvalidArgument(fmt::format("{}: tag {}: expected zero or more", m.name, m.tag));
    if (m.peer && m.group_peer)
        throw InvalidArgument(fmt::format("{}: both a global and a group rank are given: expected one", m.name));
    if (!m.receives && !m.peer && !m.group_peer)
        throw InvalidArgument(fmt::format("{}: no destination is given", m.name));
    if (!m.peer && !m.group_peer) return transport::any_source;
    const auto group = group_of(m.group, m.name);
    return group->global(api::rank_in(m.name, "rank", m.peer, m.group_peer, *group));
}

Prepared prepare(const Message& m) {
    const int peer = check(m);
    const auto& group = group_of(m.group, m.name);
    auto operation = std::make_shared<detail::Operation>();
    operation->name = m.receives ? "recv" : "send";  // the name does not say whether the caller waits at once
    operation->is_collective = false;
    operation->is_receive = m.receives;
    operation->timeout = m.timeout.count() > 0 ? m.timeout : group->timeout();
    operation->group = group;
    operation->outputs.push_back(writable(m.tensor));
    operation->device = m.tensor.device();
    if (operation->device.type != Device::Type::cpu)
        operation->stream = m.stream == Stream{} ? current_stream(operation->device.type) : m.stream;
    auto* data = static_cast<std::byte*>(operation->outputs.front().data());
    if (!m.tensor.contiguous()) {
        Tensor whole = empty(m.tensor.dtype(), m.tensor.shape());
        if (m.receives)
            operation->finish = [whole, view = operation->outputs.front()] { copy(view, whole); };
        else
            operation->begin = [whole, view = operation->outputs.front()] { copy(whole.view(), view); };
        data = static_cast<std::byte*>(whole.raw_data());
        operation->temporaries.push_back(whole);
    }
    transport::Transfer& transfer = operation->transfer;
    transfer.peer = peer;
    transfer.channel = m.channel(*group);
    transfer.bytes = m.tensor.byte_count();
    transfer.target = m.receives ? data : nullptr;
    transfer.source = m.receives ? nullptr : data;
    transfer.fingerprint = fingerprint_of(m.tensor);
    return operation;
}

void check_not_to_itself(const Group& group, std::optional<int> dst, std::optional<int> group_dst) {
    const int rank = group.global(group.rank());
    if (dst.value_or(-1) == rank || group_dst.value_or(-1) == group.rank()) {
        throw InvalidArgument(fmt::format("send: rank {} sends to itself: expected another rank (isend can)", rank));
    }
}

// A short message between ranks of one host at once (group/messages.cpp). Otherwise, also for a faulty call, it does
// nothing: the ordinary way reports the fault. Returns the peer, or not_run: an optional number would be assembled in
// memory, and to read that takes as long as the stores before it need to become visible to the peer.
constexpr int not_run = -1;
int run_quickly(const Message& m) {
    const bool plain = m.tensor.contiguous() && m.tensor.device().type == Device::Type::cpu;
    if (!plain || m.peer.has_value() == m.group_peer.has_value() || m.tag < 0 || m.timeout < milliseconds::zero())
        return not_run;
    Group* const at = api::group_unheld(m.group);
    if (at == nullptr) return not_run;
    Group& group = *at;
    const int in_group = m.peer ? group.rank_of(*m.peer) : *m.group_peer;
    if (in_group < 0 || in_group >= group.size()) return not_run;
    const int peer = group.global(in_group);
    const std::uint64_t channel = m.channel(group);
    const std::size_t bytes = m.tensor.byte_count();
    auto* data = static_cast<std::byte*>(const_cast<void*>(m.tensor.data()));
    if (!m.receives) {
        return group.send_now(peer, channel, fingerprint_of(m.tensor), {data, bytes}) ? peer : not_run;
    }
    transport::Transfer transfer;
    transfer.peer = peer;
    transfer.channel = channel;
    transfer.fingerprint = fingerprint_of(m.tensor);
    transfer.target = data;
    transfer.bytes = bytes;
    return group.receive_now(transfer) ? peer : not_run;
}

// A send that was gone at once: no caller will look at its group. One whose Work the caller has dropped serves again.
Work gone(const Message& m) {
    thread_local std::shared_ptr<detail::Operation> spare;
    if (spare && spare.use_count() == 1) {
        std::atomic_thread_fence(std::memory_order_acquire);  // another thread may have dropped it
    } else {
        spare = std::make_shared<detail::Operation>();
        spare->name = m.name;
        spare->is_collective = false;
        spare->outputs.resize(1);
        spare->complete_unseen();
    }
    set_writable(spare->outputs.front(), m.tensor);
    return Work(spare);
}

Work start(const Message& m) {
    if (!m.receives) {
        Work work = gone(m);  // made first: once the message is on its way, a reference count would wait for its stores
        if (run_quickly(m) != not_run) return work;
    }
    Prepared operation = prepare(m);
    const std::shared_ptr<Group> group = operation->group;
    group->submit(operation, true);
    return Work(std::move(operation));
}

int run(const Message& m) {
    const bool collected = api::open_scopes > 0 && api::is_collected(*group_of(m.group, m.name));
    if (const int peer = collected ? not_run : run_quickly(m); peer != not_run) return peer;
    Prepared operation = prepare(m);
    if (api::collect(operation)) return operation->transfer.peer;
    const std::shared_ptr<Group> group = operation->group;
    group->run(operation);
    return operation->transfer.peer;
}

void send_message(const ConstTensorView& tensor, std::optional<int> dst, std::optional<int> group_dst,
                  const SendOptions& o) {
    const Group* const unheld = api::group_unheld(o.group);
    const Group& group = unheld != nullptr ? *unheld : *group_of(o.group, "send");
    if (api::open_scopes == 0 || !api::is_collected(group)) check_not_to_itself(group, dst, group_dst);
    run({"send", tensor, dst, group_dst, o.tag, o.group, o.timeout, false, {}, o.stream});
}

}  // namespace

namespace api {

Prepared send(ConstTensorView tensor, int dst, const SendOptions& o) {
    check_not_to_itself(*group_of(o.group, "send"), dst, {});
    return prepare({"send", tensor, dst, {}, o.tag, o.group, o.timeout, false, {}, o.stream});
}
Prepared recv(TensorView tensor, const RecvOptions& o) {
    return prepare({"recv", tensor, o.src, o.group_src, o.tag, o.group, o.timeout, true, {}, o.stream});
}

}  // namespace api

void send(ConstTensorView tensor, int dst, const SendOptions& o) {
    if (o.group.is_non_member()) return;
    const record::PublicCall public_call("send");
    send_message(tensor, dst, {}, o);
}
void send_to_group_rank(ConstTensorView tensor, int group_dst, const SendOptions& o) {
    if (o.group.is_non_member()) return;
    const record::PublicCall public_call("send");
    send_message(tensor, {}, group_dst, o);
}
int recv(TensorView tensor, const RecvOptions& o) {
    if (o.group.is_non_member()) return -1;
    const record::PublicCall public_call("recv");
    return run({"recv", tensor, o.src, o.group_src, o.tag, o.group, o.timeout, true, {}, o.stream});
}
Work isend(ConstTensorView tensor, int dst, const SendOptions& o) {
    if (o.group.is_non_member()) return {};
    const record::PublicCall public_call("isend");
    return start({"isend", tensor, dst, {}, o.tag, o.group, o.timeout, false, {}, o.stream});
}
Work irecv(TensorView tensor, const RecvOptions& o) {
    if (o.group.is_non_member()) return {};
    const record::PublicCall public_call("irecv");
    return start({"irecv", tensor, o.src, o.group_src, o.tag, o.group, o.timeout, true, {}, o.stream});
}

P2POp isend_op(ConstTensorView tensor, int peer, const P2POptions& o) {
    return {P2POp::Kind::isend, writable(tensor), peer, o.group, o.tag, {}};
}
P2POp irecv_op(TensorView tensor, int peer, const P2POptions& o) {
    return {P2POp::Kind::irecv, tensor, peer, o.group, o.tag, {}};
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& operations) {
    const record::PublicCall public_call("batch_isend_irecv");
    if (operations.empty())
        throw InvalidArgument("batch_isend_irecv: the list is empty: expected at least one operation");
    const auto message = [](const P2POp& op) {
        const bool receives = op.kind == P2POp::Kind::irecv;
        return Message{receives ? "irecv" : "isend",
                       op.tensor,
                       op.peer,
                       op.group_peer,
                       op.tag,
                       op.group,
                       milliseconds{0},
                       receives};
    };
    for (const P2POp& op : operations) {  // all or none
        if (!op.group.is_non_member()) check(message(op));
    }
    std::vector<Work> works;
    works.reserve(operations.size());
    for (const P2POp& op : operations) works.push_back(op.group.is_non_member() ? Work() : start(message(op)));
    return works;
}

// Ranks report to rank 0 with messages of the library's own; rank 0 answers when all have come, or with the missing
// ones.
void monitored_barrier(const MonitoredBarrierOptions& o) {
    if (o.group.is_non_member()) return;
    const record::PublicCall public_call("monitored_barrier");
    const std::shared_ptr<Group> group = group_of(o.group, "monitored_barrier");
    const ProcessGroup handle(group);
    const auto timeout = o.timeout.count() > 0 ? o.timeout : group->timeout();
    const Deadline deadline = Deadline::after(timeout);
    const int first = group->global(0), own = group->global(group->rank());
    std::vector<std::uint8_t> sign(1, 1);
    const auto message = [&](const TensorView& word, int peer, OwnMessage as, bool receives) {
        return start({"monitored_barrier", word, peer, {}, 0, handle, milliseconds{0}, receives, as});
    };
    if (group->rank() != 0) {
        const std::string late =
            fmt::format("Rank {}, in monitoredBarrier: rank {} did not answer in {} ms", own, first, timeout.count());
        Work sent = message(sign, first, OwnMessage::barrier_report, false);
        std::vector<std::uint8_t> answer(1);
        Work answered = message(answer, first, OwnMessage::barrier_answer, true);
        try {
            sent.wait(timeout);
            answered.wait(timeout + milliseconds(500));
        } catch (const Timeout&) {
            group->abort(late);
            throw DistBackendError(late, {.operation = "monitored_barrier", .peer = first}, ErrorCode::timeout);
        }
        if (answer[0] == 0) {
            throw DistBackendError(
                fmt::format("Rank {}: another rank failed to pass monitoredBarrier, says rank {}", own, first),
                {.operation = "monitored_barrier", .peer = first}, ErrorCode::timeout);
        }
        return;
    }
    std::vector<std::vector<std::uint8_t>> signs(static_cast<std::size_t>(group->size()), std::vector<std::uint8_t>(1));
    std::vector<Work> reports(1);
    for (int r = 1; r < group->size(); ++r) {
        reports.push_back(
            message(signs[static_cast<std::size_t>(r)], group->global(r), OwnMessage::barrier_report, true));
    }
    std::vector<int> missing;
    for (int r = 1; r < group->size(); ++r) {
        Work& report = reports[static_cast<std::size_t>(r)];
        try {
            report.wait(std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline.remaining())));
        } catch (const Timeout&) {
            missing.push_back(group->global(r));
            if (!o.wait_all_ranks) break;
        }
    }
    sign[0] = missing.empty() ? 1 : 0;
    std::vector<Work> answers;
    for (int r = 1; r < group->size(); ++r) {
        if (reports[static_cast<std::size_t>(r)].is_completed())
            answers.push_back(message(sign, group->global(r), OwnMessage::barrier_answer, false));
    }
    for (Work& answer : answers) answer.wait(std::chrono::seconds(1));
    if (missing.empty()) return;
    const std::string text = fmt::format("Rank{} {} failed to pass monitoredBarrier in {} ms",
                                         o.wait_all_ranks ? "s" : "", fmt::join(missing, ", "), timeout.count());
    group->abort(text);  // receives from ranks that did not come are still posted
    throw DistBackendError(
        text, {.operation = "monitored_barrier", .rank = first, .peer = missing.front(), .elapsed = timeout},
        ErrorCode::timeout);
}

}  // namespace tutti
