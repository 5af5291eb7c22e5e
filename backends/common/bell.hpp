// Bell: a descriptor that one thread makes readable to wake another.
//
// Threads: one at a time.
#pragma once

namespace tutti::backends {

class Bell {
 public:
    /// Throws DistBackendError if the process may open no more files.
    Bell();
    ~Bell();
    Bell(const Bell&) = delete;
    Bell& operator=(const Bell&) = delete;
    int fd() const noexcept { return fd_; }
    void set(bool rings) noexcept;

 private:
    const int fd_;
    bool rings_ = false;
};

}  // namespace tutti::backends
