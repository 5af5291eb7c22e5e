// The calls that a thread may make while another one captures a stream into a graph. CUDA and HIP let a program choose,
// and a program that does not know of this library's threads allows them little: a query of an event would break its
// capture.
//
// Threads: the one that makes it.
#pragma once

namespace tutti::nccl {

/// While it lives, calls of this thread do not affect the captures of other threads.
class BesideCaptures {
 public:
    /// cuThreadExchangeStreamCaptureMode, or HIP's: sets the thread's mode and returns the previous one.
    using Exchange = int (*)(int* mode);

    explicit BesideCaptures(Exchange exchange) : exchange_(exchange) { exchange_(&mode_); }
    ~BesideCaptures() { exchange_(&mode_); }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
    static constexpr int relaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED, hipStreamCaptureModeRelaxed

    const Exchange exchange_;
    int mode_ = relaxed;  // and then the previous one
};

}  // namespace tutti::nccl
