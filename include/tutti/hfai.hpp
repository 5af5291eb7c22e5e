// Names of hfai.distributed.
#pragma once

namespace tutti::hfai {

/// The backend over ZeroMQ, for barriers, objects and other small data: init_process_group({.backend =
/// HF_ZMQ_BACKEND}). "hf_barrier" is the same backend.
inline constexpr const char* HF_ZMQ_BACKEND = "hf_zmq";

}  // namespace tutti::hfai
