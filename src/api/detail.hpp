// The checks of the debug level DETAIL before a collective (tutti/debug.hpp).
#pragma once

#include "core/debug_level.hpp"

#include <tutti/distributed.hpp>

#include <optional>

namespace tutti::api {

/// The tensor whose element count must be the same on all ranks, if there is one.
struct Compared {
    const ProcessGroup& group;
    milliseconds timeout;
    std::optional<ConstTensorView> tensor{};
};

inline bool in_detail() noexcept {
    return debug_level_is_detail();
}
/// Waits for all ranks and compares. Throws CollectiveMismatch on all of them, or as monitored_barrier does.
void verify(const char* name, const Compared& mine);

// By the arguments of each collective.
template <class Options>
Compared compared(const TensorView& tensor, const Options& o) {
    return {o.group, o.timeout, tensor};
}
inline Compared compared(const TensorList&, const ConstTensorView&, const CollectiveOptions& o) {
    return {o.group, o.timeout};  // counts may differ
}
inline Compared compared(const TensorView&, const ConstTensorView& input, const CollectiveOptions& o) {
    return {o.group, o.timeout, input};
}
inline Compared compared(const ConstTensorView& tensor, const TensorList&, const GatherOptions& o) {
    return {o.group, o.timeout, tensor};
}
inline Compared compared(const TensorView& tensor, const ConstTensorList&, const ScatterOptions& o) {
    return {o.group, o.timeout, tensor};
}
inline Compared compared(const TensorView&, const ConstTensorList&, const ReduceScatterOptions& o) {
    return {o.group, o.timeout};
}
inline Compared compared(const TensorView& output, const ConstTensorView&, const ReduceScatterOptions& o) {
    return {o.group, o.timeout, output};
}
inline Compared compared(const TensorView&, const ConstTensorView&, const AllGatherUnevenOptions& o) {
    return {o.group, o.timeout};
}
inline Compared compared(const TensorView&, const ConstTensorView&, const ReduceScatterUnevenOptions& o) {
    return {o.group, o.timeout};
}
inline Compared compared(const TensorView&, const ConstTensorView&, const AllToAllSingleOptions& o) {
    return {o.group, o.timeout};
}
inline Compared compared(const TensorView&, const ConstTensorView&, const AllToAllVOptions& o) {
    return {o.group, o.timeout};
}
inline Compared compared(const TensorList&, const ConstTensorList&, const CollectiveOptions& o) {
    return {o.group, o.timeout};
}
inline Compared compared(const BarrierOptions& o) {
    return {o.group, o.timeout};
}

}  // namespace tutti::api
