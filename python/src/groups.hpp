// Groups as Python objects.
#pragma once

#include <tutti/process_group.hpp>

#include "python.hpp"

namespace tutti::python {

/// The Python object of a group; for "not a member" always GroupMember.NON_GROUP_MEMBER.
nb::object group_object(const ProcessGroup& group);
/// Whether objects of this group may be pickled.
bool allows_pickle(const ProcessGroup& group);

void bind_groups(nb::module_& m);

}  // namespace tutti::python
