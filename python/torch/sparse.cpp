// all_reduce of sparse tensors (COO): all ranks gather indices and values, and each adds them up.
#include "issue.hpp"

#include <ATen/ATen.h>

namespace tutti::torch {
namespace {

/// The facts that a rank sends about its tensor: dimensions, the number of entries, and the sizes, which must be equal
/// on all.
at::Tensor facts_of_tensor(const at::Tensor& tensor) {
    std::vector<std::int64_t> facts{tensor.sparse_dim(), tensor.dense_dim(), tensor._nnz()};
    facts.insert(facts.end(), tensor.sizes().begin(), tensor.sizes().end());
    return at::tensor(facts, at::kLong);
}

}  // namespace

// Blocks until it is done, also if the caller asks for a Work: only its first part gives the lengths of the second and
// third.
WorkPtr ProcessGroupTutti::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
    check_not_coalesced("allreduce");
    at::Tensor& tensor = tensors.front();
    if (tensor.layout() != at::kSparse) {
        refuse("allreduce",
               c10::str("unsupported layout ", tensor.layout(), "; expected a dense or a sparse (COO) tensor"));
    }
    if (!tensor.device().is_cpu())
        refuse("allreduce", c10::str("unsupported device ", tensor.device(), "; expected cpu"));
    const ReduceOp op = operator_of(options.reduceOp, "all_reduce");
    if (op.kind() != ReduceOp::Kind::sum && op.kind() != ReduceOp::Kind::avg) {
        refuse("allreduce",
               "unsupported reduction operation (allreduce of sparse tensors only works with ReduceOp.SUM and AVG)");
    }
    const CollectiveOptions ours{.group = group(), .timeout = timeout_of(options.timeout)};
    const CallSiteScope site(python::call_site());
    const at::NoGradGuard no_grad;
    at::Tensor own = tensor.coalesce();
    // Several tensors of one rank count as if each were another rank's; all get the result.
    for (std::size_t i = 1; i < tensors.size(); ++i) own = (own + tensors[i]).coalesce();
    const at::Tensor facts = facts_of_tensor(own);
    std::vector<at::Tensor> all(static_cast<std::size_t>(size_));
    for (at::Tensor& one : all) one = at::empty_like(facts);
    sequence_.fetch_add(1, std::memory_order_relaxed);
    const Call call{"all_reduce", c10d::OpType::_ALLREDUCE_SPARSE, options.asyncOp, ours.timeout};
    std::optional<std::uint64_t> recorded;
    if (Recorder::is_on()) recorded = record(call, facts_of(call), {{tensors}, tensors});
    const auto gather = [&](std::vector<at::Tensor>& to, const at::Tensor& from) {
        translating([&] {
            tutti::all_gather(views_of(to, "all_reduce", "sparse tensor"), view_of(from, "all_reduce", "sparse tensor"),
                              ours);
        });
    };
    gather(all, facts);
    std::vector<at::Tensor> indices;
    std::vector<at::Tensor> values;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const std::int64_t* other = all[rank].const_data_ptr<std::int64_t>();
        const std::int64_t* mine = facts.const_data_ptr<std::int64_t>();
        for (std::int64_t i = 0; i < facts.numel(); ++i) {
            if (i != 2 && other[i] != mine[i]) {
                refuse("allreduce", c10::str("sparse tensor of rank ", rank, " has another shape than rank ", rank_,
                                             "'s ", tensor.sizes()));
            }
        }
        std::vector<std::int64_t> shape = own._values().sizes().vec();
        shape[0] = other[2];
        indices.push_back(at::empty({own.sparse_dim(), other[2]}, own._indices().options()));
        values.push_back(at::empty(shape, own._values().options()));
    }
    gather(indices, own._indices().contiguous());
    gather(values, own._values().contiguous());
    at::Tensor sum =
        at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), tensor.sizes(), tensor.options()).coalesce();
    if (op.kind() == ReduceOp::Kind::avg) sum.div_(size_);
    for (at::Tensor& one : tensors) one.copy_(sum);
    if (recorded) Recorder::get().end(*recorded, Recorder::End::well);
    return finished(call, {tensors});
}

}  // namespace tutti::torch
