// probe, iprobe, and matched receives.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "core/log.hpp"
#include "operation/channel.hpp"
#include "operation/fingerprint.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>
#include <tutti/probe.hpp>

#include <utility>

namespace tutti {

using api::PreparedOperation;
using detail::Channel;
using detail::Group;
using transport::Transfer;

/// Makes MatchedMessages of what probes have claimed.
struct MatchedMessages {
    static MatchedMessage of(std::shared_ptr<Group> group, const Transfer& found);
};

namespace {

void check_carrier(const char* name, const Group& group) {
    const auto& names = group.backends().names();
    const auto of_host = names.find(Device::Type::cpu);
    const bool own = group.serves(Device::Type::cpu) &&
                     (of_host == names.end() || of_host->second == backend::native || group.transport() != nullptr);
    if (own) return;
    api::refuse(
        "{}: {} the messages of group \"{}\" in host memory, and cannot be asked for them: expected a group of "
        "native",
        name, of_host == names.end() ? "no backend carries" : "the backend " + of_host->second + " carries",
        group.name());
}

/// One call of a probe: its group, and what it looks for.
struct Probing {
    Probing(const char* called, const ProbeOptions& o, Transfer::Match match)
        : name(called), group(api::group_of(o.group, called)) {
        api::refuse_if_recorded(name);
        check_carrier(name, *group);
        api::check_timeout(name, o.timeout);
        timeout = o.timeout.count() > 0 ? o.timeout : group->timeout();
        if (o.tag && *o.tag < 0) api::refuse("{}: tag {}: expected zero or more, or none for any tag", name, *o.tag);
        transfer.match = match;
        transfer.channel = Channel::of_message(group->index(), static_cast<std::uint64_t>(o.tag.value_or(0)));
        if (!o.tag) transfer.channel_bits = ~Channel::tag_mask;
        transfer.fingerprint = group::any_message;
        if (o.src || o.group_src)
            transfer.peer = group->ranks().global(api::root_of(name, "src", o.src, o.group_src, *group, -1));
    }

    /// Returns what it has found.
    Transfer wait() const {
        auto operation = std::make_shared<detail::Operation>();
        operation->name = name;
        operation->is_collective = false;
        operation->is_receive = true;
        operation->timeout = timeout;
        operation->group = group;
        operation->transfer = transfer;
        group->run(operation);
        TUTTI_ASSERT(operation->transfer.done && operation->transfer.number > 0);
        return operation->transfer;
    }
    std::optional<Transfer> look() { return group->probe_now(transfer, name) ? std::optional(transfer) : std::nullopt; }

    const char* name;
    std::shared_ptr<Group> group;
    milliseconds timeout{0};
    Transfer transfer{};
};

MessageInfo info_of(const Group& group, const Transfer& found) {
    TUTTI_ASSERT(found.done && Channel::tag(found.channel) >= 0);
    const DType dtype = group::Fingerprint::dtype(found.fingerprint);
    return {.source = found.peer,
            .group_source = group.ranks().rank_of(found.peer),
            .tag = Channel::tag(found.channel),
            .dtype = dtype,
            .element_count = static_cast<std::int64_t>(found.bytes / size_of(dtype)),
            .byte_count = found.bytes};
}

}  // namespace

MatchedMessage MatchedMessages::of(std::shared_ptr<Group> group, const Transfer& found) {
    MatchedMessage message;
    message.info_ = info_of(*group, found);
    message.group_ = std::move(group);
    message.channel_ = found.channel;
    message.number_ = found.number;
    TUTTI_ASSERT(static_cast<bool>(message));
    return message;
}

MessageInfo probe(const ProbeOptions& o) {
    const record::PublicCall public_call("probe");
    const Probing probing("probe", o, Transfer::Match::probe);
    return info_of(*probing.group, probing.wait());
}

std::optional<MessageInfo> iprobe(const ProbeOptions& o) {
    const record::PublicCall public_call("iprobe");
    Probing probing("iprobe", o, Transfer::Match::probe);
    const auto found = probing.look();
    return found ? std::optional(info_of(*probing.group, *found)) : std::nullopt;
}

MatchedMessage matched_probe(const ProbeOptions& o) {
    const record::PublicCall public_call("matched_probe");
    const Probing probing("matched_probe", o, Transfer::Match::claim);
    return MatchedMessages::of(probing.group, probing.wait());
}

std::optional<MatchedMessage> matched_iprobe(const ProbeOptions& o) {
    const record::PublicCall public_call("matched_iprobe");
    Probing probing("matched_iprobe", o, Transfer::Match::claim);
    const auto found = probing.look();
    if (!found) return std::nullopt;
    return MatchedMessages::of(probing.group, *found);
}

// ---- MatchedMessage

MatchedMessage::MatchedMessage(MatchedMessage&& other) noexcept
    : group_(std::move(other.group_)),
      channel_(other.channel_),
      number_(std::exchange(other.number_, 0)),
      info_(other.info_) {}

MatchedMessage& MatchedMessage::operator=(MatchedMessage&& other) noexcept {
    if (this == &other) return *this;
    release();
    group_ = std::move(other.group_);
    channel_ = other.channel_;
    number_ = std::exchange(other.number_, 0);
    info_ = other.info_;
    return *this;
}

MatchedMessage::~MatchedMessage() {
    release();
}

void MatchedMessage::release() noexcept {
    if (number_ == 0) return;
    try {
        group_->release(channel_, std::exchange(number_, 0));
    } catch (const std::exception& error) {
        TUTTI_ERROR("a message from rank {} with tag {} could not be given back: {}", info_.source, info_.tag,
                    error.what());
    }
    group_.reset();
}

Work MatchedMessage::start(const char* name, const TensorView& tensor, milliseconds timeout, bool waits) {
    const record::PublicCall public_call(name);
    api::refuse_if_recorded(name);
    if (number_ == 0) api::refuse("{}: it holds no message: expected one that nobody has received or released", name);
    if (tensor.device().type != Device::Type::cpu)
        api::refuse("{}: tensor on {}: expected host memory", name, to_string(tensor.device()));
    if (tensor.dtype() != info_.dtype || tensor.element_count() != info_.element_count) {
        api::refuse("{}: tensor {}: expected {} × {}, as the message from rank {} with tag {} has", name,
                    tensor.to_string(), to_string(info_.dtype), info_.element_count, info_.source, info_.tag);
    }
    const PreparedOperation operation = api::prepare_recv(
        tensor, {.src = info_.source, .tag = info_.tag, .group = ProcessGroup(group_), .timeout = timeout});
    operation->transfer.number = std::exchange(number_, 0);
    const std::shared_ptr<Group> group = std::move(group_);
    TUTTI_ASSERT(operation->transfer.channel == channel_ && !*this);
    if (waits)
        group->run(operation);
    else
        group->submit(operation, true);
    return Work(operation);
}

void MatchedMessage::recv(TensorView tensor, milliseconds timeout) {
    start("MatchedMessage.recv", tensor, timeout, true);
}

Tensor MatchedMessage::recv(milliseconds timeout) {
    Tensor tensor = empty(info_.dtype, Extents::of(info_.element_count));
    start("MatchedMessage.recv", tensor, timeout, true);
    return tensor;
}

Work MatchedMessage::irecv(TensorView tensor, milliseconds timeout) {
    return start("MatchedMessage.irecv", tensor, timeout, false);
}

}  // namespace tutti
