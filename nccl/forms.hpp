// The two forms of tutti's operations under one name: those that return a Work at once, and those that return when it
// is done, which are faster where nothing else is to be done meanwhile. Of the latter the Work is empty.
#pragma once

#include <tutti/distributed.hpp>

namespace tutti::nccl_library {

struct AtOnce {
    static Work all_reduce(TensorView t, const AllReduceOptions& o) { return async::all_reduce(t, o); }
    static Work broadcast(TensorView t, const BroadcastOptions& o) { return async::broadcast(t, o); }
    static Work reduce(TensorView t, const ReduceOptions& o) { return async::reduce(t, o); }
    static Work all_gather(TensorView out, ConstTensorView in, const CollectiveOptions& o) {
        return async::all_gather_into_tensor(out, in, o);
    }
    static Work reduce_scatter(TensorView out, ConstTensorView in, const ReduceScatterOptions& o) {
        return async::reduce_scatter_tensor(out, in, o);
    }
    static Work all_to_all(TensorView out, ConstTensorView in, const AllToAllSingleOptions& o) {
        return async::all_to_all_single(out, in, o);
    }
    static Work gather(ConstTensorView in, const TensorList& out, const GatherOptions& o) {
        return async::gather(in, out, o);
    }
    static Work scatter(TensorView out, const ConstTensorList& in, const ScatterOptions& o) {
        return async::scatter(out, in, o);
    }
    static Work send(ConstTensorView t, int peer, const SendOptions& o) { return isend(t, peer, o); }
    static Work receive(TensorView t, const RecvOptions& o) { return irecv(t, o); }
};

struct WhenDone {
    static Work all_reduce(TensorView t, const AllReduceOptions& o) { return tutti::all_reduce(t, o), Work(); }
    static Work broadcast(TensorView t, const BroadcastOptions& o) { return tutti::broadcast(t, o), Work(); }
    static Work reduce(TensorView t, const ReduceOptions& o) { return tutti::reduce(t, o), Work(); }
    static Work all_gather(TensorView out, ConstTensorView in, const CollectiveOptions& o) {
        return all_gather_into_tensor(out, in, o), Work();
    }
    static Work reduce_scatter(TensorView out, ConstTensorView in, const ReduceScatterOptions& o) {
        return reduce_scatter_tensor(out, in, o), Work();
    }
    static Work all_to_all(TensorView out, ConstTensorView in, const AllToAllSingleOptions& o) {
        return all_to_all_single(out, in, o), Work();
    }
    static Work gather(ConstTensorView in, const TensorList& out, const GatherOptions& o) {
        return tutti::gather(in, out, o), Work();
    }
    static Work scatter(TensorView out, const ConstTensorList& in, const ScatterOptions& o) {
        return tutti::scatter(out, in, o), Work();
    }
    static Work send(ConstTensorView t, int peer, const SendOptions& o) { return tutti::send(t, peer, o), Work(); }
    static Work receive(TensorView t, const RecvOptions& o) { return recv(t, o), Work(); }
};

}  // namespace tutti::nccl_library
