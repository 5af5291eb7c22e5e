// The object collectives. Every object travels as bytes in one or two exchanges: first a block of fixed size with the
// number of bytes, and the bytes too where they fit; then, where they do not, the bytes themselves.
//
// Threads: as the public headers say.
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "api/coalescing_internal.hpp"
#include "api/host_bytes.hpp"
#include "core/assert.hpp"
#include "object/codec.hpp"
#include "operation/fingerprint.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti {
namespace {

using api::group_of;
using api::PreparedOperation;
using api::root_of;
using detail::Group;
using detail::OwnMessage;
using group::Fingerprint;
using Encoded = EncodedObject;
namespace describe = api::describe;

struct Head {
    std::uint64_t bytes = 0;     // of the encoded list
    std::uint64_t reserved = 0;  // zero
};
constexpr std::size_t block_bytes = 4096, room_bytes = block_bytes - sizeof(Head);

// Sizes that make no sense become one that no memory has, and no overflow.
std::size_t padded(std::uint64_t bytes) {
    return (static_cast<std::size_t>(std::min(bytes, std::uint64_t{1} << 62)) + 63) / 64 * 64;
}
Tensor bytes_tensor(std::size_t count) {
    return empty(uint8, Extents::of(static_cast<std::int64_t>(count)));
}
TensorView slice(const Tensor& tensor, std::size_t from, std::size_t count) {
    return TensorView(static_cast<std::byte*>(tensor.raw_data()) + from, Extents::of(static_cast<std::int64_t>(count)),
                      uint8);
}

Head head_of(const Tensor& blocks, std::size_t index = 0) {
    TUTTI_ASSERT((index + 1) * block_bytes <= static_cast<std::size_t>(blocks.byte_count()));
    Head head;
    std::memcpy(&head, static_cast<const std::byte*>(blocks.raw_data()) + index * block_bytes, sizeof head);
    return head;
}
bool fits(const Head& head) {
    return head.bytes <= room_bytes;
}
void fill_block(const Tensor& blocks, std::size_t index, const Encoded& encoded) {
    TUTTI_ASSERT((index + 1) * block_bytes <= static_cast<std::size_t>(blocks.byte_count()));
    auto* block = static_cast<std::byte*>(blocks.raw_data()) + index * block_bytes;
    const Head head{encoded.bytes, 0};
    std::memset(block, 0, block_bytes);
    std::memcpy(block, &head, sizeof head);
    if (fits(head)) std::memcpy(block + sizeof head, encoded.buffer.raw_data(), encoded.bytes);
}
Encoded short_body(const Tensor& blocks, std::size_t index = 0) {
    const Head head = head_of(blocks, index);
    TUTTI_ASSERT(fits(head));
    Encoded encoded{bytes_tensor(padded(head.bytes)), static_cast<std::size_t>(head.bytes)};
    std::memcpy(encoded.buffer.raw_data(),
                static_cast<const std::byte*>(blocks.raw_data()) + index * block_bytes + sizeof head, encoded.bytes);
    return encoded;
}

// One call: its group, its name, the rest of its time.
class Call {
 public:
    Call(const char* name, const ProcessGroup& group, milliseconds timeout, std::optional<Device> device = {})
        : name_(name), group_(group_of(group, name)) {
        if (timeout < milliseconds::zero()) {
            throw InvalidArgument(
                fmt::format("{}: timeout {} ms: expected zero (the group's) or more", name, timeout.count()));
        }
        if (device && device->type != Device::Type::cpu && !group_->serves(device->type)) {
            throw InvalidArgument(fmt::format("{}: device {}: expected cpu, or a device that group \"{}\" serves: {}",
                                              name, to_string(*device), group_->name(),
                                              backend::to_string(group_->backends().names())));
        }
        deadline_ = Deadline::after(timeout.count() > 0 ? timeout : group_->timeout());
        TUTTI_ASSERT(timeout.count() > 0 || group_->timeout().count() > 0);
    }

    const Group& group() const { return *group_; }
    ProcessGroup handle() const { return ProcessGroup(group_); }
    int rank() const { return group_->rank(); }
    int size() const { return group_->size(); }
    std::size_t ranks() const { return static_cast<std::size_t>(group_->size()); }
    milliseconds time_left() const { return deadline_.timeout(); }

    Encoded encode(std::span<const Object> objects) const {
        try {
            return object::encode_list(objects);
        } catch (const ObjectError& error) {
            detail::rethrow_for(name_, error);
        }
    }
    ObjectList decode(const Encoded& encoded, int from, std::size_t count) const {
        try {
            Object list = object::decode_shared(encoded);
            if (list.as_list().size() != count)
                throw ObjectError("", fmt::format("{} objects: expected {}", list.size(), count));
            return std::move(list.as_list());
        } catch (const ObjectError& error) {
            throw ObjectError(error.path(),
                              fmt::format("{}: from rank {}: {}", name_, group_->ranks().global(from), error.reason()));
        }
    }
    Object decode_one(const Encoded& encoded, int from) const { return std::move(decode(encoded, from, 1)[0]); }
    // Memory for the objects that other ranks announce. Without it this rank cannot go on, and the others must not wait
    // for it.
    Tensor room_for(std::size_t bytes) const {
        try {
            return bytes_tensor(bytes);
        } catch (const std::exception&) {  // no memory, or a size that makes no sense
            const std::string text = fmt::format("{}: rank {} has no memory for {} bytes", name_, rank(), bytes);
            group_->abort(text);
            throw DistBackendError(text, {.operation = name_, .group = group_->name(), .rank = rank()});
        }
    }

    // Runs a collective under this call's name; a call of objects is compared as such.
    void run(const PreparedOperation& operation, std::optional<std::uint64_t> fingerprint = {}) const {
        TUTTI_ASSERT(operation->group == group_);
        api::refuse_if_recorded(name_);
        operation->name = name_;
        if (fingerprint) operation->call.fingerprint = *fingerprint;
        group_->run(operation);
    }
    static std::uint64_t fingerprint(int operation, std::size_t objects, int root = -1) {
        return Fingerprint::pack(operation, uint8, ReduceOp::Kind::sum, root, objects);
    }

    // All of `bytes`, which lives until the message has gone or come.
    PreparedOperation message(bool receives, int peer, OwnMessage channel, const Tensor& bytes,
                              std::size_t objects) const {
        TUTTI_ASSERT(peer < size());
        api::refuse_if_recorded(name_);
        auto operation = std::make_shared<detail::Operation>();
        operation->name = name_;
        operation->is_collective = false;
        operation->is_receive = receives;
        operation->timeout = time_left();
        operation->group = group_;
        operation->outputs = {bytes.view()};
        operation->temporaries = {bytes};
        auto* data = static_cast<std::byte*>(bytes.raw_data());
        operation->transfer.peer = group_->ranks().global(peer);
        operation->transfer.channel = detail::Channel::of_message(group_->index(), channel);
        operation->transfer.bytes = bytes.byte_count();
        operation->transfer.target = receives ? data : nullptr;
        operation->transfer.source = receives ? nullptr : data;
        operation->transfer.fingerprint = fingerprint(group::object_message, objects);
        return operation;
    }
    // Returns the other rank, as a rank of the group.
    int run_message(const PreparedOperation& operation) const {
        group_->run(operation);
        return group_->ranks().rank_of(operation->transfer.peer);
    }
    Work start_message(const PreparedOperation& operation) const {
        group_->submit(operation, true);
        return Work(operation);
    }

 private:
    const api::HostBytes own_;
    const char* name_;
    std::shared_ptr<Group> group_;
    Deadline deadline_ = Deadline::never();
};

// The peer that a pair of options names; any_source where neither does and `required` is false.
int peer_of(const char* name, const char* argument, std::optional<int> global, std::optional<int> in_group,
            const Group& group, bool required) {
    if (!required && !global && !in_group) return transport::any_source;
    return root_of(name, argument, global, in_group, group, -1);
}

// The lists of all ranks, one object each.
std::vector<Encoded> all_gather(const Call& call, const Encoded& mine) {
    TUTTI_ASSERT(call.size() > 0);
    const Tensor block = bytes_tensor(block_bytes), blocks = bytes_tensor(block_bytes * call.ranks());
    fill_block(block, 0, mine);
    call.run(api::prepare(describe::all_gather_into_tensor, blocks.view(), block,
                          {.group = call.handle(), .timeout = call.time_left()}),
             Call::fingerprint(group::all_gather_objects, 1));

    std::vector<std::size_t> sizes(call.ranks());  // of the second exchange
    std::size_t total = 0;
    for (std::size_t r = 0; r < call.ranks(); ++r) {
        const Head head = head_of(blocks, r);
        sizes[r] = fits(head) ? 0 : padded(head.bytes);
        if (__builtin_add_overflow(total, sizes[r], &total)) total = SIZE_MAX / 2;
    }
    Tensor bodies;
    std::vector<TensorView> parts;
    if (total > 0) {
        bodies = call.room_for(total);
        std::size_t at = 0;
        for (const std::size_t size : sizes) {
            parts.push_back(slice(bodies, at, size));
            at += size;
        }
        const auto me = static_cast<std::size_t>(call.rank());
        call.run(api::prepare(describe::all_gather, parts, slice(mine.buffer, 0, sizes[me]),
                              {.group = call.handle(), .timeout = call.time_left()}));
    }
    std::vector<Encoded> lists;
    for (std::size_t r = 0; r < call.ranks(); ++r) {
        const Head head = head_of(blocks, r);
        lists.push_back(fits(head) ? short_body(blocks, r)
                                   : Encoded{Tensor(parts[r], std::make_shared<Tensor>(bodies)),
                                             static_cast<std::size_t>(head.bytes)});
    }
    return lists;
}

// The same on the root; none elsewhere.
std::vector<Encoded> gather(const Call& call, const Encoded& mine, int root) {
    TUTTI_ASSERT(root >= 0 && root < call.size());
    const bool is_root = call.rank() == root;
    const Tensor block = bytes_tensor(block_bytes);
    const Tensor blocks = bytes_tensor(is_root ? block_bytes * call.ranks() : 0);
    fill_block(block, 0, mine);
    TensorList list;
    for (std::size_t r = 0; is_root && r < call.ranks(); ++r)
        list.push_back(slice(blocks, r * block_bytes, block_bytes));
    call.run(api::prepare(describe::gather, block, list,
                          {.group = call.handle(), .group_dst = root, .timeout = call.time_left()}),
             Call::fingerprint(group::gather_objects, 1, root));
    if (!is_root) {
        if (!fits({mine.bytes, 0}))
            call.run_message(call.message(false, root, OwnMessage::object_of_gather, mine.buffer, 1));
        return {};
    }
    std::vector<Encoded> bodies(call.ranks());
    std::vector<Work> works;
    for (std::size_t r = 0; r < call.ranks(); ++r) {
        const Head head = head_of(blocks, r);
        if (static_cast<int>(r) == root) {
            bodies[r] = mine;
        } else if (fits(head)) {
            bodies[r] = short_body(blocks, r);
        } else {
            bodies[r] = {call.room_for(padded(head.bytes)), static_cast<std::size_t>(head.bytes)};
            works.push_back(call.start_message(
                call.message(true, static_cast<int>(r), OwnMessage::object_of_gather, bodies[r].buffer, 1)));
        }
    }
    wait_all(works);
    return bodies;
}

// This rank's of the root's lists, one object each.
Encoded scatter(const Call& call, const std::vector<Encoded>& bodies, int root) {
    const bool is_root = call.rank() == root;
    TUTTI_ASSERT(root >= 0 && root < call.size() && (!is_root || bodies.size() == call.ranks()));
    const auto me = static_cast<std::size_t>(call.rank());
    const Tensor block = bytes_tensor(block_bytes), blocks = bytes_tensor(is_root ? block_bytes * call.ranks() : 0);
    ConstTensorList list;
    for (std::size_t r = 0; is_root && r < call.ranks(); ++r) {
        fill_block(blocks, r, bodies[r]);
        list.push_back(slice(blocks, r * block_bytes, block_bytes));
    }
    call.run(api::prepare(describe::scatter, block.view(), list,
                          {.group = call.handle(), .group_src = root, .timeout = call.time_left()}),
             Call::fingerprint(group::scatter_objects, call.ranks(), root));
    if (!is_root) {
        const Head head = head_of(block);
        if (fits(head)) return short_body(block);
        const Encoded body{call.room_for(padded(head.bytes)), static_cast<std::size_t>(head.bytes)};
        call.run_message(call.message(true, root, OwnMessage::object_of_scatter, body.buffer, 1));
        return body;
    }
    std::vector<Work> works;
    for (std::size_t r = 0; r < call.ranks(); ++r) {
        if (r == me || fits({bodies[r].bytes, 0})) continue;
        works.push_back(call.start_message(
            call.message(false, static_cast<int>(r), OwnMessage::object_of_scatter, bodies[r].buffer, 1)));
    }
    wait_all(works);
    return bodies[me];
}

void check_list(const Call& call, const char* name, const char* argument, std::size_t entries) {
    if (entries != call.ranks()) {
        throw InvalidArgument(
            fmt::format("{}: {} has {} entries: expected {}, one per rank", name, argument, entries, call.ranks()));
    }
}

// ---- The six, on lists that are encoded when the arguments have been checked

template <class Encode>
void send(const Call& call, const SendObjectOptions& o, std::size_t objects, Encode encode) {
    const int peer = peer_of("send_object_list", "dst", o.dst, o.group_dst, call.group(), true);
    if (peer == call.rank()) {
        throw InvalidArgument(fmt::format("send_object_list: rank {} sends to itself: expected another rank",
                                          call.group().ranks().global(peer)));
    }
    const Encoded encoded = encode();
    const Tensor block = bytes_tensor(block_bytes);
    fill_block(block, 0, encoded);
    call.run_message(call.message(false, peer, OwnMessage::object_head, block, objects));
    if (!fits({encoded.bytes, 0}))
        call.run_message(call.message(false, peer, OwnMessage::object_body, encoded.buffer, objects));
}

// Returns the sender, as a rank of the group.
int receive(const Call& call, const RecvObjectOptions& o, std::size_t objects, Encoded& body) {
    const int peer = peer_of("recv_object_list", "src", o.src, o.group_src, call.group(), false);
    const Tensor block = bytes_tensor(block_bytes);
    const int source = call.run_message(call.message(true, peer, OwnMessage::object_head, block, objects));
    const Head head = head_of(block);
    if (fits(head)) {
        body = short_body(block);
        return source;
    }
    body = {call.room_for(padded(head.bytes)), static_cast<std::size_t>(head.bytes)};
    call.run_message(call.message(true, source, OwnMessage::object_body, body.buffer, objects));
    return source;
}

int root_of_broadcast(const Call& call, const BroadcastObjectOptions& o) {
    return root_of("broadcast_object_list", "src", o.src, o.group_src, call.group(), -1);
}
// `encoded`: given on the root, filled in elsewhere.
void broadcast(const Call& call, int root, std::size_t objects, Encoded& encoded) {
    const bool is_root = call.rank() == root;
    const Tensor block = bytes_tensor(block_bytes);
    if (is_root) fill_block(block, 0, encoded);
    const auto options = [&] {
        return BroadcastOptions{.group = call.handle(), .group_src = root, .timeout = call.time_left()};
    };
    call.run(api::prepare(describe::broadcast, block.view(), options()),
             Call::fingerprint(group::broadcast_objects, objects, root));
    const Head head = head_of(block);
    if (!fits(head)) {
        if (!is_root) encoded = {call.room_for(padded(head.bytes)), static_cast<std::size_t>(head.bytes)};
        call.run(api::prepare(describe::broadcast, encoded.buffer.view(), options()));
    } else if (!is_root) {
        encoded = short_body(block);
    }
}

int root_of_gather(const Call& call, const GatherOptions& o, std::optional<std::size_t> places) {
    const int root = root_of("gather_object", "dst", o.dst, o.group_dst, call.group(), 0);
    if (call.rank() == root) {
        check_list(call, "gather_object", "object_gather_list", places.value_or(0));
    } else if (places) {
        throw InvalidArgument(
            fmt::format("gather_object: object_gather_list is given on rank {}: expected it only on the root, rank {}",
                        call.rank(), root));
    }
    return root;
}

int root_of_scatter(const Call& call, const ScatterOptions& o, const char* name, const char* argument,
                    std::size_t entries) {
    const int root = root_of(name, "src", o.src, o.group_src, call.group(), 0);
    if (call.rank() == root) check_list(call, name, argument, entries);
    return root;
}

void check_output(std::size_t entries) {
    if (entries > 0) return;
    throw InvalidArgument(
        "scatter_object_list: scatter_object_output_list is empty: expected at least one entry, for the result");
}

std::vector<Encoded> encode_each(const Call& call, const ObjectList& objects, int root) {
    std::vector<Encoded> lists;
    if (call.rank() != root) return lists;
    for (const Object& object : objects) lists.push_back(call.encode({&object, 1}));
    return lists;
}
ObjectList decode_each(const Call& call, const std::vector<Encoded>& lists) {
    ObjectList objects;
    for (std::size_t r = 0; r < lists.size(); ++r) objects.push_back(call.decode_one(lists[r], static_cast<int>(r)));
    return objects;
}

}  // namespace

void send_object_list(const ObjectList& objects, const SendObjectOptions& o) {
    const record::PublicCall public_call("send_object_list");
    const Call call("send_object_list", o.group, o.timeout, o.device);
    send(call, o, objects.size(), [&] { return call.encode(objects); });
}

int recv_object_list(ObjectList& objects, const RecvObjectOptions& o) {
    if (api::is_outside(o.group, "recv_object_list")) return -1;
    const record::PublicCall public_call("recv_object_list");
    const Call call("recv_object_list", o.group, o.timeout, o.device);
    Encoded body;
    const int source = receive(call, o, objects.size(), body);
    objects = call.decode(body, source, objects.size());
    return call.group().ranks().global(source);
}

void broadcast_object_list(ObjectList& objects, const BroadcastObjectOptions& o) {
    if (api::is_outside(o.group, "broadcast_object_list")) return;
    const record::PublicCall public_call("broadcast_object_list");
    const Call call("broadcast_object_list", o.group, o.timeout, o.device);
    const int root = root_of_broadcast(call, o);
    Encoded encoded;
    if (call.rank() == root) encoded = call.encode(objects);
    broadcast(call, root, objects.size(), encoded);
    if (call.rank() != root) objects = call.decode(encoded, root, objects.size());
}

void all_gather_object(ObjectList& list, const Object& object, const CollectiveOptions& o) {
    if (api::is_outside(o.group, "all_gather_object")) return;
    const record::PublicCall public_call("all_gather_object");
    const Call call("all_gather_object", o.group, o.timeout);
    check_list(call, "all_gather_object", "object_list", list.size());
    list = decode_each(call, all_gather(call, call.encode({&object, 1})));
}

void gather_object(const Object& object, ObjectList* list, const GatherOptions& o) {
    if (api::is_outside(o.group, "gather_object")) return;
    const record::PublicCall public_call("gather_object");
    const Call call("gather_object", o.group, o.timeout);
    const int root = root_of_gather(call, o, list != nullptr ? std::optional<std::size_t>(list->size()) : std::nullopt);
    ObjectList all = decode_each(call, gather(call, call.encode({&object, 1}), root));
    if (list != nullptr) *list = std::move(all);
}

void scatter_object_list(ObjectList& output, const ObjectList& input, const ScatterOptions& o) {
    if (api::is_outside(o.group, "scatter_object_list")) return;
    const record::PublicCall public_call("scatter_object_list");
    const Call call("scatter_object_list", o.group, o.timeout);
    check_output(output.size());
    const int root = root_of_scatter(call, o, "scatter_object_list", "scatter_object_input_list", input.size());
    output[0] = call.decode_one(scatter(call, encode_each(call, input, root), root), root);
}

namespace detail {

void send_encoded(const EncodedObject& list, std::size_t objects, const SendObjectOptions& o) {
    const record::PublicCall public_call("send_object_list");
    const Call call("send_object_list", o.group, o.timeout, o.device);
    send(call, o, objects, [&] { return list; });
}
int recv_encoded(EncodedObject& list, std::size_t objects, const RecvObjectOptions& o) {
    const record::PublicCall public_call("recv_object_list");
    const Call call("recv_object_list", o.group, o.timeout, o.device);
    return call.group().ranks().global(receive(call, o, objects, list));
}
void broadcast_encoded(EncodedObject& list, std::size_t objects, const BroadcastObjectOptions& o) {
    const record::PublicCall public_call("broadcast_object_list");
    const Call call("broadcast_object_list", o.group, o.timeout, o.device);
    broadcast(call, root_of_broadcast(call, o), objects, list);
}
std::vector<EncodedObject> all_gather_encoded(const EncodedObject& mine, std::size_t places,
                                              const CollectiveOptions& o) {
    const record::PublicCall public_call("all_gather_object");
    const Call call("all_gather_object", o.group, o.timeout);
    check_list(call, "all_gather_object", "object_list", places);
    return all_gather(call, mine);
}
std::vector<EncodedObject> gather_encoded(const EncodedObject& mine, std::optional<std::size_t> places,
                                          const GatherOptions& o) {
    const record::PublicCall public_call("gather_object");
    const Call call("gather_object", o.group, o.timeout);
    return gather(call, mine, root_of_gather(call, o, places));
}
EncodedObject scatter_encoded(const std::vector<EncodedObject>& lists, std::size_t places, const ScatterOptions& o) {
    const record::PublicCall public_call("scatter_object_list");
    const Call call("scatter_object_list", o.group, o.timeout);
    check_output(places);
    const char* const argument = "scatter_object_input_list";
    return scatter(call, lists, root_of_scatter(call, o, "scatter_object_list", argument, lists.size()));
}

ObjectList all_gathered(const Object& object, const CollectiveOptions& o) {
    if (api::is_outside(o.group, "all_gather_object")) return {};
    const record::PublicCall public_call("all_gather_object");
    const Call call("all_gather_object", o.group, o.timeout);
    return decode_each(call, all_gather(call, call.encode({&object, 1})));
}
ObjectList gathered(const Object& object, const GatherOptions& o) {
    if (api::is_outside(o.group, "gather_object")) return {};
    const record::PublicCall public_call("gather_object");
    const Call call("gather_object", o.group, o.timeout);
    const int root = root_of("gather_object", "dst", o.dst, o.group_dst, call.group(), 0);
    return decode_each(call, gather(call, call.encode({&object, 1}), root));
}
Object scattered(const ObjectList& objects, const ScatterOptions& o) {
    if (api::is_outside(o.group, "scatter_object_list")) return {};
    const record::PublicCall public_call("scatter_object_list");
    const Call call("scatter_object", o.group, o.timeout);
    const int root = root_of_scatter(call, o, "scatter_object", "values", objects.size());
    return call.decode_one(scatter(call, encode_each(call, objects, root), root), root);
}
void rethrow_for(const char* operation, const ObjectError& error) {
    throw ObjectError(error.path(), fmt::format("{} (in {})", error.reason(), operation));
}

}  // namespace detail
}  // namespace tutti
