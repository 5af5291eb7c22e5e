// Groups as Python objects.
#pragma once

#include <tutti/device_mesh.hpp>
#include <tutti/process_group.hpp>

#include "python.hpp"

namespace tutti::python {

/// The Python object of a group; for "not a member" always GroupMember.NON_GROUP_MEMBER.
nb::object group_object(const ProcessGroup& group);
/// Whether objects of this group may be pickled.
bool allows_pickle(const ProcessGroup& group);

void bind_groups(nb::module_& m);

/// A dimension of a mesh: None, an index (from the end, if negative) or a name, which `text` holds.
MeshDim dim_of(nb::handle dim, std::string& text, const DeviceMesh& mesh);

}  // namespace tutti::python
