// send, recv, sendrecv, batches, and the barrier that names the missing ranks.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "core/per_thread.hpp"
#include "operation/fingerprint.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

namespace tutti {
namespace {

using api::group_of;
using api::PreparedOperation;
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

/// One side's call of a message: its arguments, as long as it lasts, and what they mean.
struct Message {
    const char* name;
    const ConstTensorView& tensor;
    std::optional<int> named_peer, named_group_peer;
    int tag;
    const ProcessGroup& named_group;
    milliseconds timeout{0};
    bool receives;
    std::optional<OwnMessage> own{};  ///< instead of a tag
    Stream stream{};
    // Set by check():
    Group* group = nullptr;
    int peer = transport::any_source;  ///< a global rank

    std::uint64_t channel() const noexcept {
        TUTTI_ASSERT(group != nullptr && (own || tag >= 0));
        using detail::Channel;
        return own ? Channel::of_message(group->index(), *own)
                   : Channel::of_message(group->index(), static_cast<std::uint64_t>(tag));
    }
};

std::uint64_t fingerprint_of(const ConstTensorView& tensor) {
    return group::Fingerprint::pack(group::point_to_point, tensor.dtype(), ReduceOp::Kind::sum, -1,
                                    static_cast<std::uint64_t>(tensor.element_count()));
}

// Throws InvalidArgument for any fault in the arguments.
void check(Message& m) {
    m.group = api::group_unheld(m.named_group);
    if (m.group == nullptr) [[unlikely]]
        api::refuse_group(m.named_group, m.name);
    if (!m.own) api::check_device(m.name, "tensor", m.tensor, *m.group);
    if (m.tensor.device().type != Device::Type::cpu && !m.tensor.contiguous()) {
        api::refuse("{}: tensor on {} is not in one piece: expected contiguous memory", m.name,
                    to_string(m.tensor.device()));
    }
    api::check_timeout(m.name, m.timeout);
    if (m.tag < 0) api::refuse("{}: tag {}: expected zero or more", m.name, m.tag);
    if (m.receives && !m.named_peer && !m.named_group_peer) return;
    m.peer = m.group->ranks().global(
        api::root_of(m.name, m.receives ? "src" : "dst", m.named_peer, m.named_group_peer, *m.group, -1));
}

PreparedOperation prepare(const Message& m) {
    TUTTI_ASSERT(m.group != nullptr && m.tag >= 0);
    auto operation = std::make_shared<detail::Operation>();
    // The name does not say whether the caller waits at once.
    operation->name = m.own ? m.name : m.receives ? "recv" : "send";
    operation->is_collective = false;
    operation->is_receive = m.receives;
    operation->timeout = m.timeout.count() > 0 ? m.timeout : m.group->timeout();
    operation->group = m.group->shared_from_this();
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
    transfer.peer = m.peer;
    transfer.channel = m.channel();
    transfer.bytes = m.tensor.byte_count();
    transfer.target = m.receives ? data : nullptr;
    transfer.source = m.receives ? nullptr : data;
    transfer.fingerprint = fingerprint_of(m.tensor);
    TUTTI_ASSERT(operation->timeout.count() > 0 && (transfer.target == nullptr || transfer.source == nullptr));
    return operation;
}

// A send that its caller waits for would wait for itself.
void check_not_to_itself(const Message& m) {
    TUTTI_ASSERT(m.group != nullptr);
    if (m.receives || m.peer != m.group->ranks().global(m.group->rank())) return;
    api::refuse("send: rank {} sends to itself: expected another rank (isend can)", m.peer);
}

// A short message between ranks of one host at once (group/messages.cpp). Returns the peer, or not_run: then it has
// done nothing. An optional number would be assembled in memory, and to read that takes as long as the stores before it
// need to become visible to the peer.
constexpr int not_run = -1;
int run_at_once(const Message& m) {
    TUTTI_ASSERT(m.group != nullptr);
    if (m.peer < 0 || !m.tensor.contiguous() || m.tensor.device().type != Device::Type::cpu) return not_run;
    const std::size_t bytes = m.tensor.byte_count();
    auto* data = static_cast<std::byte*>(const_cast<void*>(m.tensor.data()));
    if (!m.receives) {
        const std::uint64_t fingerprint = fingerprint_of(m.tensor);
        return m.group->send_now(m.peer, m.channel(), fingerprint, {data, bytes}) ? m.peer : not_run;
    }
    transport::Transfer transfer;
    transfer.peer = m.peer;
    transfer.channel = m.channel();
    transfer.fingerprint = fingerprint_of(m.tensor);
    transfer.target = data;
    transfer.bytes = bytes;
    return m.group->receive_now(transfer) ? m.peer : not_run;
}

// The operation of this thread's last send that was gone at once.
struct LastGone {
    std::shared_ptr<detail::Operation> operation;
};

// A send that was gone at once: no caller will look at its group. One whose Work the caller has dropped serves again.
Work gone(const Message& m) {
    std::shared_ptr<detail::Operation>& spare = PerThread<LastGone>::get().operation;
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
    TUTTI_ASSERT(spare->done());
    return Work(spare);
}

Work start_checked(const Message& m) {
    if (api::call_recorder != nullptr) return api::call_recorder->start(prepare(m));
    if (!m.receives) {
        Work work = gone(m);  // made first: once the message is on its way, a reference count would wait for its stores
        if (run_at_once(m) != not_run) return work;
    }
    PreparedOperation operation = prepare(m);
    m.group->submit(operation, true);
    return Work(std::move(operation));
}
Work start(Message m) {
    check(m);
    return start_checked(m);
}

int run_checked(const Message& m) {
    if (api::open_scopes == 0 || !api::is_collected(*m.group)) {
        check_not_to_itself(m);
        if (const int peer = run_at_once(m); peer != not_run) return peer;
    }
    const PreparedOperation operation = prepare(m);
    if (!api::collect(operation)) detail::group_of(*operation).run(operation);
    TUTTI_ASSERT(operation->transfer.peer >= 0 || !operation->done());
    return operation->transfer.peer;
}
int run(Message m) {
    check(m);
    return run_checked(m);
}

// ---- Both directions at once

/// The two messages of a sendrecv; a side where nobody is has none.
struct Exchange {
    Exchange(const char* name, const ConstTensorView& sent, std::optional<int> dst, const ConstTensorView& received,
             std::optional<int> src, const SendrecvOptions& o)
        : group(group_of(o.group, name)) {
        api::check_timeout(name, o.timeout);
        if (dst != no_rank && o.group_dst != no_rank) {
            out.emplace(Message{name, sent, dst, o.group_dst, o.send_tag, o.group, o.timeout, false, {}, o.stream});
            check(*out);
        }
        if (src != no_rank && o.group_src != no_rank) {
            in.emplace(Message{name, received, src, o.group_src, o.recv_tag, o.group, o.timeout, true, {}, o.stream});
            check(*in);
        }
    }

    /// Those that there are. The receive first, so that it waits when a message to this rank itself comes.
    std::vector<PreparedOperation> prepared() const {
        std::vector<PreparedOperation> operations;
        if (in) operations.push_back(prepare(*in));
        if (out) operations.push_back(prepare(*out));
        return operations;
    }

    std::shared_ptr<Group> group;
    std::optional<Message> out{}, in{};
};

int run_recorded(const Exchange& both) {
    std::vector<Work> works;
    for (const auto* side : {&both.in, &both.out}) {
        if (*side) works.push_back(start_checked(**side));
    }
    for (Work& work : works) work.wait();
    return both.in ? both.in->peer : no_rank;
}

int run_exchange(const Exchange& both) {
    if (api::call_recorder != nullptr) return run_recorded(both);
    if (!both.in || !both.out) {
        if (both.out) run_checked(*both.out);
        return both.in ? run_checked(*both.in) : no_rank;
    }
    const bool collected = api::is_collected(*both.group);
    if (!collected && run_at_once(*both.out) != not_run) return run_checked(*both.in);
    const std::vector<PreparedOperation> operations = both.prepared();
    const detail::Operation& receiving = *operations.front();
    TUTTI_ASSERT(receiving.is_receive && operations.size() == 2);
    if (collected) {
        for (const auto& operation : operations) api::collect(operation);
        return receiving.transfer.peer;
    }
    const auto results = api::set_apart("sendrecv", operations);
    both.group->backends().submit_together(operations, false);
    for (const auto& operation : operations) both.group->world().wait_for_call(*operation);
    for (const auto& write : results) write();
    return receiving.transfer.peer;
}

constexpr std::size_t replaced_bytes = transport::Mailbox::eager_bytes;  // of a piece: needs no answer over TCP

// The pieces that leave are one ahead of those that come, which wait until their place has been read.
int replace(const TensorView& whole, const Exchange& both, milliseconds timeout) {
    TUTTI_ASSERT(whole.contiguous());
    if (both.out && !both.in) check_not_to_itself(*both.out);
    const Deadline deadline = Deadline::after(timeout.count() > 0 ? timeout : both.group->timeout());
    const std::size_t bytes = whole.byte_count(), element = size_of(whole.dtype());
    const auto scratch = std::make_unique_for_overwrite<std::byte[]>(std::min(bytes, replaced_bytes));
    const auto view_of = [&](std::byte* data, std::size_t length) {
        return TensorView(data, Extents::of(static_cast<std::int64_t>(length / element)), whole.dtype());
    };
    auto* const data = static_cast<std::byte*>(whole.data());
    const auto length_at = [&](std::size_t at) { return std::min(bytes - at, replaced_bytes); };
    const auto begin = [&](std::size_t at) -> PreparedOperation {
        const TensorView piece = view_of(data + at, length_at(at));
        Message message{"sendrecv_replace",         piece,         both.out->named_peer,
                        both.out->named_group_peer, both.out->tag, both.out->named_group,
                        deadline.timeout(),         false};
        check(message);
        if (run_at_once(message) != not_run) return nullptr;
        PreparedOperation sending = prepare(message);
        both.group->submit(sending, false);
        return sending;
    };
    int source = both.in ? both.in->peer : no_rank;
    PreparedOperation ahead = both.out ? begin(0) : nullptr;
    std::size_t at = 0;
    do {
        const PreparedOperation sending = std::move(ahead);
        const std::size_t length = length_at(at), next = at + length;
        ahead = both.out && next < bytes ? begin(next) : nullptr;
        if (both.in) {
            const TensorView piece = view_of(scratch.get(), length);
            const std::optional<int> from = source >= 0 ? std::optional(source) : std::nullopt;
            source = run(
                {"sendrecv_replace", piece, from, {}, both.in->tag, both.in->named_group, deadline.timeout(), true});
        }
        if (sending) both.group->world().wait_for_call(*sending);
        if (both.in && length > 0) std::memcpy(data + at, scratch.get(), length);
        at = next;
    } while (at < bytes);
    TUTTI_ASSERT(ahead == nullptr && (source >= 0 || source == no_rank));
    return source;
}

}  // namespace

namespace api {

PreparedOperation prepare_send(const ConstTensorView& tensor, int dst, const SendOptions& o) {
    Message message{"send", tensor, dst, {}, o.tag, o.group, o.timeout, false, {}, o.stream};
    check(message);
    check_not_to_itself(message);
    return prepare(message);
}
PreparedOperation prepare_recv(const TensorView& tensor, const RecvOptions& o) {
    Message message{"recv", tensor, o.src, o.group_src, o.tag, o.group, o.timeout, true, {}, o.stream};
    check(message);
    return prepare(message);
}

}  // namespace api

void send(ConstTensorView tensor, int dst, const SendOptions& o) {
    const record::PublicCall public_call("send");
    run({"send", tensor, dst, {}, o.tag, o.group, o.timeout, false, {}, o.stream});
}
void send_to_group_rank(ConstTensorView tensor, int group_dst, const SendOptions& o) {
    const record::PublicCall public_call("send");
    run({"send", tensor, {}, group_dst, o.tag, o.group, o.timeout, false, {}, o.stream});
}
int recv(TensorView tensor, const RecvOptions& o) {
    if (api::is_outside(o.group, "recv")) return -1;
    const record::PublicCall public_call("recv");
    return run({"recv", tensor, o.src, o.group_src, o.tag, o.group, o.timeout, true, {}, o.stream});
}
Work isend(ConstTensorView tensor, int dst, const SendOptions& o) {
    if (api::is_outside(o.group, "isend")) return {};
    const record::PublicCall public_call("isend");
    return start({"isend", tensor, dst, {}, o.tag, o.group, o.timeout, false, {}, o.stream});
}
Work irecv(TensorView tensor, const RecvOptions& o) {
    if (api::is_outside(o.group, "irecv")) return {};
    const record::PublicCall public_call("irecv");
    return start({"irecv", tensor, o.src, o.group_src, o.tag, o.group, o.timeout, true, {}, o.stream});
}

int sendrecv(ConstTensorView sent, std::optional<int> dst, TensorView received, std::optional<int> src,
             const SendrecvOptions& o) {
    const record::PublicCall public_call("sendrecv");
    return run_exchange({"sendrecv", sent, dst, received, src, o});
}

Work isendrecv(ConstTensorView sent, std::optional<int> dst, TensorView received, std::optional<int> src,
               const SendrecvOptions& o) {
    if (api::is_outside(o.group, "isendrecv")) return {};
    const record::PublicCall public_call("isendrecv");
    const Exchange both("isendrecv", sent, dst, received, src, o);
    return api::launch("isendrecv", both.group, both.prepared(), api::Driver::background);
}

int sendrecv_replace(TensorView tensor, std::optional<int> dst, std::optional<int> src, const SendrecvOptions& o) {
    constexpr const char* name = "sendrecv_replace";
    const record::PublicCall public_call(name);
    api::refuse_if_recorded(name);
    const Exchange both(name, tensor, dst, tensor, src, o);
    if (tensor.device().type != Device::Type::cpu) {
        api::refuse("{}: tensor on {}: expected host memory (sendrecv takes a second tensor on the device)", name,
                    to_string(tensor.device()));
    }
    if (api::is_collected(*both.group))
        api::refuse("{}: a Coalescing scope collects this thread's calls: expected sendrecv in it", name);
    if (tensor.contiguous()) return replace(tensor, both, o.timeout);
    const Tensor packed = empty(tensor.dtype(), tensor.shape());
    copy(packed.view(), tensor);
    const int source = replace(packed.view(), both, o.timeout);
    copy(tensor, packed.view());
    return source;
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
    std::vector<Message> messages;
    for (const P2POp& op : operations) {  // all or none
        messages.push_back(message(op));
        check(messages.back());
    }
    std::vector<Work> works;
    works.reserve(operations.size());
    for (const Message& each : messages) works.push_back(start_checked(each));
    TUTTI_ASSERT(works.size() == operations.size());
    return works;
}

// Ranks report to rank 0 with messages of the library's own; rank 0 answers when all have come, or with the missing
// ones.
void monitored_barrier(const MonitoredBarrierOptions& o) {
    if (api::is_outside(o.group, "monitored_barrier")) return;
    const record::PublicCall public_call("monitored_barrier");
    api::refuse_if_recorded("monitored_barrier");
    const std::shared_ptr<Group> group = group_of(o.group, "monitored_barrier");
    const ProcessGroup handle(group);
    const auto timeout = o.timeout.count() > 0 ? o.timeout : group->timeout();
    const Deadline deadline = Deadline::after(timeout);
    const int first = group->ranks().global(0), own = group->ranks().global(group->rank());
    TUTTI_ASSERT(timeout.count() > 0);
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
            message(signs[static_cast<std::size_t>(r)], group->ranks().global(r), OwnMessage::barrier_report, true));
    }
    TUTTI_ASSERT(reports.size() == static_cast<std::size_t>(group->size()));
    std::vector<int> missing;
    for (int r = 1; r < group->size(); ++r) {
        Work& report = reports[static_cast<std::size_t>(r)];
        try {
            report.wait(deadline.timeout());
        } catch (const Timeout&) {
            missing.push_back(group->ranks().global(r));
            if (!o.wait_all_ranks) break;
        } catch (const PeerLost& lost) {  // it has left, or died: there is nothing more to wait for
            const int gone = lost.context().peer >= 0 ? lost.context().peer : group->ranks().global(r);
            throw PeerLost(
                fmt::format("Rank {} failed to pass monitoredBarrier in {} ms: {}", gone, timeout.count(), lost.what()),
                lost.context());
        }
    }
    sign[0] = missing.empty() ? 1 : 0;
    std::vector<Work> answers;
    for (int r = 1; r < group->size(); ++r) {
        if (reports[static_cast<std::size_t>(r)].is_completed())
            answers.push_back(message(sign, group->ranks().global(r), OwnMessage::barrier_answer, false));
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
