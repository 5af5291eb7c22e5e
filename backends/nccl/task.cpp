#include "nccl/task.hpp"

#include "nccl/communicator.hpp"

#include <tutti/error.hpp>

#include <algorithm>
#include <numeric>
#include <string>

namespace tutti::nccl {
namespace {

constexpr int by_value = 1;  // ncclScalarHostImmediate
constexpr std::size_t barrier_bytes = sizeof(std::int32_t);

bool is_worse(Result a, Result b) {
    const auto weight = [](Result result) {
        return result == Result::success ? 0 : (result == Result::in_progress ? 1 : 2);
    };
    return weight(a) > weight(b);
}

}  // namespace

Task::Task(const BackendRequest& request, int rank, int size, const std::optional<NativeReduction>& reduction,
           const Agreement& agreed)
    : request_(&request), rank_(rank), size_(size), element_(size_of(request.dtype)), reduction_(reduction) {
    const bool input_adjoins = request.inputs.empty(), output_adjoins = request.outputs.empty();
    switch (request.call) {
        case BackendCall::all_reduce: plan_one(Form::all_reduce); break;
        case BackendCall::broadcast: plan_one(Form::broadcast); break;
        case BackendCall::reduce: plan_one(Form::reduce); break;
        case BackendCall::all_gather: plan_blocks(Form::all_gather, Form::all_gather_blocks, output_adjoins); break;
        case BackendCall::reduce_scatter:
            plan_blocks(Form::reduce_scatter, Form::reduce_scatter_blocks, input_adjoins);
            break;
        case BackendCall::gather_v:
        case BackendCall::scatter_v:
        case BackendCall::all_to_all: plan_exchange(); break;
        case BackendCall::gather:
            plan_gathering(agreed.gathers, Form::gather, Form::gather_blocks, rank != request.root || output_adjoins);
            break;
        case BackendCall::scatter:
            plan_gathering(agreed.gathers, Form::scatter, Form::scatter_blocks, rank != request.root || input_adjoins);
            break;
        case BackendCall::barrier:
            form_ = Form::barrier;
            scratch_bytes_ = barrier_bytes;
            break;
        default: throw InternalError("nccl has no form of " + std::string(to_string(request.call)));
    }
}

void Task::plan_one(Form form) {
    form_ = form;
    block_ = request_->count;
    if (block_ == 0) units_ = 0;
}

// all_gather and reduce_scatter. Their form depends on the counts alone, which all ranks know.
void Task::plan_blocks(Form one, Form blocks, bool adjoin) {
    const auto& counts = request_->counts;
    const bool even = all_equal(counts);
    const bool filled = even || fill_up(counts);
    form_ = filled ? one : blocks;
    block_ = *std::ranges::max_element(counts);
    packs_ = filled && !(even && adjoin);
    if (packs_) scratch_bytes_ = bytes(block_) * counts.size();
    if (block_ == 0)
        units_ = 0;
    else if (!filled)
        units_ = blocks == Form::all_gather_blocks ? size_ - 1 : size_;
}

// A rank does not know the others' blocks, so it cannot know whether one function would do for all.
void Task::plan_exchange() {
    form_ = Form::all_to_all;
    units_ = size_ - 1;
}

void Task::plan_gathering(bool native, Form one, Form blocks, bool adjoin) {
    form_ = native ? one : blocks;
    block_ = request_->count;
    packs_ = native && !adjoin;
    if (packs_) scratch_bytes_ = bytes(block_) * static_cast<std::size_t>(size_);
    if (block_ == 0)
        units_ = 0;
    else if (!native)
        units_ = size_ - 1;
}

std::uint64_t Task::count_of(int rank) const {
    return request_->counts.empty() ? request_->count : request_->counts[static_cast<std::size_t>(rank)];
}

std::uint64_t Task::offset_of(int rank) const {
    const auto& counts = request_->counts;
    if (counts.empty()) return static_cast<std::uint64_t>(rank) * request_->count;
    return std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0});
}

const std::byte* Task::input_block(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    if (!request_->inputs.empty()) return static_cast<const std::byte*>(request_->inputs[at]);
    const auto offset = form_ == Form::all_to_all ? request_->send_offsets[at] : offset_of(rank);
    return static_cast<const std::byte*>(request_->input) + bytes(offset);
}

std::byte* Task::output_block(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    if (!request_->outputs.empty()) return static_cast<std::byte*>(request_->outputs[at]);
    const auto offset = form_ == Form::all_to_all ? request_->receive_offsets[at] : offset_of(rank);
    return static_cast<std::byte*>(request_->output) + bytes(offset);
}

void Task::prepare(const Driver& driver, Driver::StreamHandle stream, std::byte* scratch) {
    scratch_ = scratch;
    const auto copy = [&](void* to, const void* from, std::uint64_t elements) {
        if (to != from) driver.copy(to, from, bytes(elements), stream);
    };
    const auto own = static_cast<std::size_t>(rank_);
    const bool is_root = rank_ == request_->root;
    switch (form_) {
        case Form::all_gather:
            if (packs_) copy(scratch_ + bytes(block_) * own, request_->input, count_of(rank_));
            break;
        case Form::all_gather_blocks: copy(output_block(rank_), request_->input, count_of(rank_)); break;
        case Form::all_to_all: copy(output_block(rank_), input_block(rank_), request_->send_counts[own]); break;
        case Form::gather_blocks:
            if (is_root) copy(output_block(rank_), request_->input, block_);
            break;
        case Form::scatter_blocks:
            if (is_root) copy(request_->output, input_block(rank_), block_);
            break;
        case Form::reduce_scatter:
        case Form::scatter:
            for (int rank = 0; packs_ && rank < size_; ++rank)
                copy(scratch_ + bytes(block_) * static_cast<std::size_t>(rank), input_block(rank), count_of(rank));
            break;
        default: break;
    }
}

void Task::finish(const Driver& driver, Driver::StreamHandle stream) const {
    if (!packs_) return;
    const auto block = [&](int rank) { return scratch_ + bytes(block_) * static_cast<std::size_t>(rank); };
    if (form_ == Form::all_gather || form_ == Form::gather) {
        for (int rank = 0; rank < size_; ++rank)
            driver.copy(output_block(rank), block(rank), bytes(count_of(rank)), stream);
    } else if (form_ == Form::reduce_scatter) {
        driver.copy(request_->output, block(rank_), bytes(count_of(rank_)), stream);
    }
}

Result Task::note(Result result, const char* call) {
    if (result != Result::success) call_ = call;
    return result;
}

Result Task::send(const Interface& calls, const void* data, std::uint64_t elements, int peer, Comm comm,
                  Driver::StreamHandle stream) {
    if (elements == 0) return Result::success;
    return note(calls.Send(data, bytes(elements), uint8, peer, comm, stream), "Send");
}

Result Task::receive(const Interface& calls, void* data, std::uint64_t elements, int peer, Comm comm,
                     Driver::StreamHandle stream) {
    if (elements == 0) return Result::success;
    return note(calls.Recv(data, bytes(elements), uint8, peer, comm, stream), "Recv");
}

// Unit u: to the rank that is u + 1 behind this one, from the one that is u + 1 before it.
Result Task::issue_pair(int unit, const Interface& calls, Comm comm, Driver::StreamHandle stream) {
    const int to = (rank_ + unit + 1) % size_, from = (rank_ + size_ - unit - 1) % size_;
    const int root = request_->root;
    Result sent = Result::success, received = Result::success;
    switch (form_) {
        case Form::all_gather_blocks:
            sent = send(calls, request_->input, count_of(rank_), to, comm, stream);
            received = receive(calls, output_block(from), count_of(from), from, comm, stream);
            break;
        case Form::all_to_all:
            sent = send(calls, input_block(to), request_->send_counts[static_cast<std::size_t>(to)], to, comm, stream);
            received = receive(calls, output_block(from), request_->receive_counts[static_cast<std::size_t>(from)],
                               from, comm, stream);
            break;
        case Form::gather_blocks:
            if (to == root) sent = send(calls, request_->input, block_, to, comm, stream);
            if (rank_ == root) received = receive(calls, output_block(from), block_, from, comm, stream);
            break;
        default:  // scatter_blocks
            if (rank_ == root) sent = send(calls, input_block(to), block_, to, comm, stream);
            if (from == root) received = receive(calls, request_->output, block_, from, comm, stream);
    }
    return is_worse(received, sent) ? received : sent;
}

Result Task::issue_reduce_of_block(int owner, const Interface& calls, Comm comm, Driver::StreamHandle stream) {
    if (count_of(owner) == 0) return Result::success;
    return note(calls.Reduce(input_block(owner), owner == rank_ ? request_->output : nullptr, numbers(count_of(owner)),
                             reduction_->type, op(), owner, comm, stream),
                "Reduce");
}

Result Task::issue(int unit, const Interface& calls, Comm comm, Driver::StreamHandle stream) {
    const BackendRequest& r = *request_;
    switch (form_) {
        case Form::all_reduce:
            return note(calls.AllReduce(r.input, r.output, numbers(block_), reduction_->type, op(), comm, stream),
                        "AllReduce");
        case Form::broadcast:
            return note(calls.Broadcast(r.output, r.output, bytes(block_), uint8, r.root, comm, stream), "Broadcast");
        case Form::reduce:
            return note(calls.Reduce(r.input, r.output, numbers(block_), reduction_->type, op(), r.root, comm, stream),
                        "Reduce");
        case Form::all_gather: {
            const void* const own = packs_ ? scratch_ + bytes(block_) * static_cast<std::size_t>(rank_) : r.input;
            return note(calls.AllGather(own, packs_ ? scratch_ : r.output, bytes(block_), uint8, comm, stream),
                        "AllGather");
        }
        case Form::reduce_scatter: {
            void* const own = packs_ ? scratch_ + bytes(block_) * static_cast<std::size_t>(rank_) : r.output;
            return note(calls.ReduceScatter(packs_ ? scratch_ : r.input, own, numbers(block_), reduction_->type, op(),
                                            comm, stream),
                        "ReduceScatter");
        }
        case Form::reduce_scatter_blocks: return issue_reduce_of_block(unit, calls, comm, stream);
        case Form::gather:
            return note(calls.Gather(r.input, packs_ ? scratch_ : r.output, bytes(block_), uint8, r.root, comm, stream),
                        "Gather");
        case Form::scatter:
            return note(
                calls.Scatter(packs_ ? scratch_ : r.input, r.output, bytes(block_), uint8, r.root, comm, stream),
                "Scatter");
        case Form::barrier:
            return note(
                calls.AllReduce(scratch_, scratch_, 1, int32, static_cast<ReduceOpHandle>(Op::max), comm, stream),
                "AllReduce");
        case Form::all_gather_blocks:
        case Form::all_to_all:
        case Form::gather_blocks:
        case Form::scatter_blocks: return issue_pair(unit, calls, comm, stream);
    }
    return Result::success;
}

void Task::make_operator(const Communicator& communicator, const std::string& what) {
    Scalar factor = scalar_of(request_->op.factor(), reduction_->type);
    ReduceOpHandle made = 0;
    communicator.check(communicator.library().calls().RedOpCreatePreMulSum(&made, factor.bytes, reduction_->type,
                                                                           by_value, communicator.handle()),
                       "RedOpCreatePreMulSum", what);
    operator_ = made;
}

void Task::drop_operator(const Communicator& communicator) noexcept {
    if (operator_) (void)communicator.library().calls().RedOpDestroy(*operator_, communicator.handle());
    operator_.reset();
}

}  // namespace tutti::nccl
