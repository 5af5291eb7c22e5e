// The functions of distributed.hpp as members of the group that they are about.
#include <tutti/coalescing.hpp>
#include <tutti/distributed.hpp>
#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti {
namespace {

template <class Options>
Options here(const ProcessGroup& group, Options options, const char* name) {
    if (!group && !group.is_non_member())
        throw InvalidArgument(fmt::format("ProcessGroup.{}: an empty handle: expected a group", name));
    const bool named = options.group || options.group.is_non_member();
    if (named && options.group != group) {
        throw InvalidArgument(fmt::format("ProcessGroup.{}: options name another group{}: expected none, or this one",
                                          name, options.group ? ", \"" + options.group.name() + '"' : std::string()));
    }
    options.group = group;
    return options;
}

}  // namespace

#define TUTTI_OR_NONE
#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...)   \
    void ProcessGroup::name(TUTTI_PARAMETERS_##tensors(Options)) const {     \
        tutti::name(TUTTI_ARGUMENTS_##tensors(here(*this, options, #name))); \
    }
#define TUTTI_FORMER_FUNCTION(former, name, tensors, Options)              \
    void ProcessGroup::former(TUTTI_PARAMETERS_##tensors(Options)) const { \
        name(TUTTI_ARGUMENTS_##tensors(options));                          \
    }
#include <tutti/collectives.def>
#undef TUTTI_OR_NONE

void ProcessGroup::monitored_barrier(const MonitoredBarrierOptions& options) const {
    tutti::monitored_barrier(here(*this, options, "monitored_barrier"));
}
void ProcessGroup::send(ConstTensorView tensor, int dst, const SendOptions& options) const {
    tutti::send(tensor, dst, here(*this, options, "send"));
}
int ProcessGroup::recv(TensorView tensor, const RecvOptions& options) const {
    return tutti::recv(tensor, here(*this, options, "recv"));
}
Work ProcessGroup::isend(ConstTensorView tensor, int dst, const SendOptions& options) const {
    return tutti::isend(tensor, dst, here(*this, options, "isend"));
}
Work ProcessGroup::irecv(TensorView tensor, const RecvOptions& options) const {
    return tutti::irecv(tensor, here(*this, options, "irecv"));
}
Work ProcessGroup::allreduce(const TensorList& tensors, const AllReduceOptions& options) const {
    return async::all_reduce_coalesced(tensors, here(*this, options, "allreduce"));
}

}  // namespace tutti
