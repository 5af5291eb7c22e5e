// Everything: one include for programs.
#pragma once

#if __cplusplus < 202002L
#error "tutti needs C++20: compile with -std=c++20 or newer"
#else

#include <tutti/atb.hpp>
#include <tutti/backend.hpp>
#include <tutti/coalescing.hpp>
#include <tutti/collectives.hpp>
#include <tutti/ddp.hpp>
#include <tutti/debug.hpp>
#include <tutti/device_mesh.hpp>
#include <tutti/distributed.hpp>
#include <tutti/dtype.hpp>
#include <tutti/error.hpp>
#include <tutti/future.hpp>
#include <tutti/graph.hpp>
#include <tutti/groups.hpp>
#include <tutti/hfai.hpp>
#include <tutti/interrupt.hpp>
#include <tutti/meeting.hpp>
#include <tutti/neighbors.hpp>
#include <tutti/newcomers.hpp>
#include <tutti/object.hpp>
#include <tutti/object_collectives.hpp>
#include <tutti/plan.hpp>
#include <tutti/probe.hpp>
#include <tutti/process_group.hpp>
#include <tutti/quantized.hpp>
#include <tutti/reduce_op.hpp>
#include <tutti/resilient.hpp>
#include <tutti/spawn.hpp>
#include <tutti/step_function.hpp>
#include <tutti/store.hpp>
#include <tutti/symmetric.hpp>
#include <tutti/tensor.hpp>
#include <tutti/trace.hpp>
#include <tutti/version.hpp>
#include <tutti/window.hpp>
#include <tutti/work.hpp>

#endif
