// Call: the arguments of a collective call, checked. The one function that checks the arguments of a collective fills
// it in, and it lives on the caller's stack. A short call runs as it is (group/short_calls). An Operation is made of it
// if the call has to live longer: it is long, asynchronous, planned or collected, another backend runs it, its buffers
// are not contiguous, or it takes longer than a moment.
//
// Threads: its caller's.
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

/// Refers to its caller's arguments.
struct Call : engine::CollectiveCall {
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    const char* name = "";  ///< a literal
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
    std::optional<Device> device{};     ///< barrier: where it runs, if its caller says so
    /// All buffers are host memory in one piece, input and output apart: the call needs no copies.
    bool direct = false;
    RankNumbers send_room, receive_room;  // of `counts` and of the blocks of an all_to_all
};

/// The type of a function that checks a collective's arguments and fills in a call, from the type of its plan.
template <class Planned>
struct Describes;
template <class... Parameters>
struct Describes<Plan(Parameters...)> {
    using Type = void(Call&, const std::remove_cvref_t<Parameters>&...);
};
/// describe::all_reduce(call, tensor, options), and so on for each function of the table: it checks the arguments and
/// fills in `call`, which is new. Throws InvalidArgument.
namespace describe {
#define TUTTI_COLLECTIVE_FUNCTION(name, ...) Describes<decltype(plan::name)>::Type name;
#include <tutti/collectives.def>
}  // namespace describe

/// An operation that has not begun: it has not read its inputs.
using PreparedOperation = std::shared_ptr<Operation>;

/// Of a call that goes on as an operation (operation_builder.cpp).
PreparedOperation prepare(const Call& call);

/// The same from a collective's arguments: prepare(describe::all_reduce, tensor, {.op = ReduceOp::min}).
template <class... Parameters>
PreparedOperation prepare(void (*describe)(Call&, Parameters...), std::type_identity_t<Parameters>... arguments) {
    Call call;
    describe(call, arguments...);
    return prepare(call);
}

/// Messages (point_to_point.cpp).
PreparedOperation prepare_send(const ConstTensorView& tensor, int dst, const SendOptions& options);
PreparedOperation prepare_recv(const TensorView& tensor, const RecvOptions& options);

/// A plan of a call that is prepared already, with its time limit.
Plan plan_of(PreparedOperation call);

/// From the first byte of a tensor to the one after its last. Bytes in between may belong to others.
using Range = std::pair<const std::byte*, const std::byte*>;
Range range_of(const ConstTensorView& view);

/// Where the elements of all tensors begin, if each tensor begins where the one before it ends: empty ones lie
/// anywhere. Null: there are no elements. None: they are not in one piece.
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
