// Communicator: a vendor's communicator from its making to its end. The library makes it without blocking and the waits
// here poll it, so that every wait has a deadline; no call of it outlives abort() for more than a second.
//
// Threads: any, but calls that put operations into it, one at a time.
#pragma once

#include "nccl/library.hpp"

#include <tutti/nccl.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::nccl {

struct CommunicatorOptions {
    int rank = 0, size = 1;
    std::string name;  ///< for messages: "nccl: rank 1 of group \"dp\" (4 ranks)"
    NcclConfig config{};
    std::chrono::milliseconds timeout{0};
    Store store{};  ///< the group's
};

class Communicator {
 public:
    using Clock = std::chrono::steady_clock;

    /// `store`: the group's. It holds the library's ids if these are longer than NCCL's.
    static UniqueId make_id(const Library& library, Store& store);

    /// Blocks until all `size` ranks have come with the same ids, at most for the options' timeout. One id for each 128
    /// ranks is enough; a library that cannot take several gets the first. Its device must be the thread's current one.
    /// Throws DistBackendError, Timeout, Aborted (once `given_up`).
    Communicator(std::shared_ptr<const Library> library, std::span<const UniqueId> ids, CommunicatorOptions options,
                 const std::atomic<bool>* given_up = nullptr);
    /// Makes one of a part of `parent`'s ranks: those of an equal colour, by key; all of the parent's ranks call it,
    /// ranks outside every part with a negative colour and options of size 0. Blocks and throws as the constructor;
    /// returns null where the colour is negative.
    static std::shared_ptr<Communicator> split(Communicator& parent, int color, int key, CommunicatorOptions options,
                                               const std::atomic<bool>* given_up = nullptr);
    /// Makes one of the ranks of `parent` that are left: all but `left_out`, in their order. All of them call it, with
    /// a stopped parent. Blocks, at most for `timeout`, and throws as the constructor, also if the library cannot do it
    /// without the others.
    static std::shared_ptr<Communicator> shrink(Communicator& parent, std::vector<int> left_out,
                                                CommunicatorOptions options, std::chrono::milliseconds timeout);
    /// Frees it.
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Guards a call with the handle: abort() waits a moment for its end before the handle goes. Throws Aborted
    /// afterwards.
    class Use {
     public:
        explicit Use(const Communicator& communicator);
        ~Use() { communicator_.users_.fetch_sub(1, std::memory_order_release); }
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;
        Comm handle() const noexcept { return communicator_.handle_; }

     private:
        const Communicator& communicator_;
    };

    /// For calls under a Use.
    Comm handle() const noexcept { return handle_; }
    const Library& library() const noexcept { return *library_; }
    int rank() const noexcept { return options_.rank; }
    int size() const noexcept { return options_.size; }

    /// Throws DistBackendError with the communicator's name, `what`, `call`, the code and the library's words, unless
    /// the result is success or in_progress.
    void check(Result result, const char* call, const std::string& what) const;
    /// check(), and waits while the result is in_progress: until the call's work is in the stream, at most `timeout`
    /// (0: the options').
    void finish(Result result, const char* call, const std::string& what, std::chrono::milliseconds timeout = {});
    /// The communicator is aborted or freed: an event behind its kernels says nothing about their results.
    bool is_over() const noexcept { return over_; }
    /// The library's asynchronous state: success, in_progress, or the error. Success once the communicator is over.
    Result state() const;
    std::exception_ptr failure(Result result, const char* call, const std::string& what) const;

    /// Waits until all its work is done, then frees it; waits at most until the deadline, then aborts.
    void finalize(Clock::time_point until) noexcept;
    /// Makes stop() leave the state that shrink() needs, if the library can stop without freeing (NCCL from 2.28.7 on).
    void keep_for_shrink() noexcept;
    /// Ends its kernels, and frees it unless it is kept. Returns within about a second, as abort(). Any thread.
    void stop() noexcept;
    /// It is stopped, and kept.
    bool is_kept() const noexcept { return is_kept_; }
    /// Ends its kernels. Returns within about a second even if the library does not. More than once, any thread.
    void abort() noexcept;

 private:
    Communicator(std::shared_ptr<const Library> library, CommunicatorOptions options,
                 const std::atomic<bool>* given_up);
    Config config() const;
    /// Waits while `of` says in_progress.
    void wait_while_in_progress(const Communicator& of, const char* call, const std::string& what,
                                std::chrono::milliseconds timeout);
    bool take_handle() noexcept;

    const std::shared_ptr<const Library> library_;
    const CommunicatorOptions options_;
    const std::atomic<bool>* const given_up_;
    Comm handle_ = nullptr;
    std::atomic<bool> over_{false};
    std::atomic<bool> may_be_kept_{false}, is_kept_{false};
    mutable std::atomic<int> users_{0};
};

}  // namespace tutti::nccl
