// The meaning of Slurm's variables.
//
// Threads: any; functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::rendezvous::slurm {

/// The first host of a list as Slurm writes it: "node[007-010,012],login" is node007.
std::string first_host(std::string_view list);

/// The number of tasks of node number `node`, from SLURM_STEP_TASKS_PER_NODE: "2(x3),1" means 2, 2, 2, 1.
std::optional<int> tasks_of_node(std::string_view list, std::string_view node);

/// The port of a step, from 20000 to 29999; nothing: the arguments are not numbers. Jobs whose numbers differ by less
/// than a thousand, as the tasks of a job array on one node do, never share a port, nor do the first steps of a job.
std::optional<std::uint16_t> port(std::string_view job, std::string_view step);

}  // namespace tutti::rendezvous::slurm
