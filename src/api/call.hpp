// Call: the checked arguments of a collective call, on the caller's stack. Each collective has one function that checks
// its arguments and fills in a Call. A short call runs directly from it (group/short_calls). An Operation, which may
// outlive the caller's function, is made from a call that is long, asynchronous, planned or coalesced, that another
// backend runs, whose buffers are not contiguous, or that is short but does not end within a moment.
//
// Threads: only the caller's.
#pragma once

#include "api/blocks.hpp"
#include "group/group.hpp"

#include <tutti/distributed.hpp>
#include <tutti/plan.hpp>

#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace tutti::api {

using detail::Group;
using detail::Operation;

/// Refers to the caller's arguments.
struct Call : engine::CollectiveCall {
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    const char* name = "";  ///< a string literal
    Group* group = nullptr;
    milliseconds timeout{0};  ///< zero: the group's
    Stream stream{};
    // The tensor that is read, or a list with one for each rank; and the tensor that is written, which may also be
    // read. Null if this rank has none.
    const ConstTensorView* source = nullptr;
    const ConstTensorList* sources = nullptr;
    const TensorView* target = nullptr;
    const TensorList* targets = nullptr;
    const ReduceOp* scaling = nullptr;  ///< premul_sum, with its factor
    bool is_plain = true;               ///< neither that nor an operator of the caller
    std::optional<Device> device{};     ///< barrier: the device that runs it, if given
    /// All buffers are contiguous host memory, and input and output are in place or disjoint, and the operator is
    /// plain: the call needs no copies, and no function of the caller runs in it.
    bool direct = false;
    RankNumbers send_room, receive_room;  // memory for counts and offsets
};

/// The type of describe::NAME, from the type of plan::NAME.
template <class Planned>
struct Describes;
template <class... Parameters>
struct Describes<Plan(Parameters...)> {
    using Type = void(Call&, const std::remove_cvref_t<Parameters>&...);
};
/// Each function of the table, such as describe::all_reduce(call, tensor, options), checks the arguments of its
/// collective and fills in `call`, which must be new. Throws InvalidArgument.
namespace describe {
#define TUTTI_COLLECTIVE_FUNCTION(name, ...) Describes<decltype(plan::name)>::Type name;
#include <tutti/collectives.def>
}  // namespace describe

/// An operation that has not begun: it has not read its inputs.
using PreparedOperation = std::shared_ptr<Operation>;

/// Makes an operation from a call (operation_builder.cpp).
PreparedOperation prepare(const Call& call);

/// Makes an operation from a collective's arguments: prepare(describe::all_reduce, tensor, {.op = ReduceOp::min}).
template <class... Parameters>
PreparedOperation prepare(void (*describe)(Call&, Parameters...), std::type_identity_t<Parameters>... arguments) {
    Call call;
    describe(call, arguments...);
    return prepare(call);
}

/// Operations that send or receive a message (point_to_point.cpp).
PreparedOperation prepare_send(const ConstTensorView& tensor, int dst, const SendOptions& options);
PreparedOperation prepare_recv(const TensorView& tensor, const RecvOptions& options);

/// A plan of a prepared operation, with the operation's time limit.
Plan plan_of(PreparedOperation call);

/// The addresses of a tensor's first byte and of the byte after its last. Bytes in between may belong to other tensors.
using Range = std::pair<const std::byte*, const std::byte*>;
Range range_of(const ConstTensorView& view);

/// Where the elements of all tensors begin, if each tensor begins where the one before it ends; empty tensors may lie
/// anywhere. Null: there are no elements. nullopt: the tensors are not in one piece.
template <class List>
std::optional<std::byte*> in_one_piece(const List& list) {
    const std::byte *begin = nullptr, *end = nullptr;
    for (const ConstTensorView& view : list) {
        if (!view.contiguous()) return std::nullopt;
        if (view.element_count() == 0) continue;
        const auto* data = static_cast<const std::byte*>(view.data());
        if (begin != nullptr && data != end) return std::nullopt;
        if (begin == nullptr) begin = data;
        end = data + view.byte_count();
    }
    return const_cast<std::byte*>(begin);
}

}  // namespace tutti::api
