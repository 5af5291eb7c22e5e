// empty_symmetric: agree on the size, make the memory on each host, agree that all ranks have it.
#include "api/symmetric.hpp"
#include "api/arguments.hpp"
#include "api/call.hpp"
#include "core/assert.hpp"
#include "operation/fingerprint.hpp"

#include <tutti/error.hpp>
#include <tutti/symmetric.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

using detail::Group;
using group::Fingerprint;

// The smallest of all ranks' values. A rank that asks for another size, or calls another operation, is a mismatch.
bool all_say(bool yes, std::uint64_t fingerprint, const std::shared_ptr<Group>& group, milliseconds timeout) {
    TUTTI_ASSERT(fingerprint != 0 && group != nullptr);
    std::uint8_t value = yes ? 1 : 0;
    const api::PreparedOperation operation =
        api::prepare(api::describe::all_reduce, view(&value, {}),
                     {.op = ReduceOp::min, .group = ProcessGroup(group), .timeout = timeout});
    operation->name = "empty_symmetric";
    operation->call.fingerprint = fingerprint;
    group->run(operation);
    return value != 0;
}

}  // namespace

Tensor api::symmetric_bytes(const std::shared_ptr<Group>& group, std::size_t bytes, DType dtype, std::uint64_t count,
                            const Deadline& deadline) {
    const std::uint64_t fingerprint = Fingerprint::pack(group::symmetric_memory, dtype, ReduceOp::Kind::sum, -1, count);
    const Extents shape = Extents::of(static_cast<std::int64_t>(bytes));
    all_say(true, fingerprint, group, deadline.timeout());
    if (bytes == 0 || !group->memory().has_symmetric()) {
        // Other hosts may have more to do, and fail.
        if (!all_say(true, fingerprint, group, deadline.timeout()))
            throw DistBackendError("empty_symmetric: another rank cannot get the memory");
        return zeros(uint8, shape);
    }
    std::shared_ptr<transport::SymmetricSegment> segment;
    std::string reason = "another rank cannot get the memory";
    try {
        segment = group->make_symmetric(bytes, deadline);
    } catch (const DistError& error) {
        reason = error.what();
    }
    if (!all_say(segment != nullptr, fingerprint, group, deadline.timeout()))
        throw DistBackendError(fmt::format("empty_symmetric: {}", reason));
    group->memory().add_symmetric(segment);
    TUTTI_ASSERT(segment != nullptr);
    std::byte* data = segment->own_part();
    TUTTI_ASSERT(data != nullptr);
    std::shared_ptr<void> owner(data, [segment](void*) { segment->let_go(); });
    return {TensorView(data, shape, uint8), std::move(owner)};
}

Tensor empty_symmetric(DType dtype, Extents shape, const CollectiveOptions& options) {
    const auto group = api::group_of(options.group, "empty_symmetric");
    if (options.timeout < milliseconds::zero()) {
        throw InvalidArgument(fmt::format("empty_symmetric: timeout {} ms: expected zero (the group's) or more",
                                          options.timeout.count()));
    }
    const milliseconds timeout = options.timeout.count() > 0 ? options.timeout : group->timeout();
    const ConstTensorView wanted(&group, shape, dtype);  // checks the shape, and counts
    Tensor memory = api::symmetric_bytes(group, wanted.byte_count(), dtype,
                                         static_cast<std::uint64_t>(wanted.element_count()), Deadline::after(timeout));
    void* const data = memory.raw_data();
    return {TensorView(data, std::move(shape), dtype), std::make_shared<Tensor>(std::move(memory))};
}

}  // namespace tutti
