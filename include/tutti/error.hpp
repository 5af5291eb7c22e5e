// The exceptions that tutti throws.
//
// Three kinds: a request that cannot be carried out is InvalidArgument, before any byte moves; a failure from outside
// (a lost peer, a deadline, the network, a store) is one of the other classes and carries the known facts; a broken
// invariant of tutti itself is InternalError.
// Follows torch.distributed: DistError, DistBackendError, DistNetworkError, DistStoreError.
#pragma once

#include <tutti/export.hpp>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tutti {

/// Stable numbers: they never change their meaning and are not re-used.
enum class ErrorCode : int {
    invalid_argument = 1,     ///< the caller asked for something impossible; nothing was sent
    timeout = 2,              ///< a deadline passed
    peer_lost = 3,            ///< a rank died, left, or cannot be reached any more
    collective_mismatch = 4,  ///< the ranks called different collectives, or one with different arguments
    network = 5,              ///< a connection was refused, reset or could not be made, or bytes changed on the way
    store = 6,                ///< a key/value store failed or is unreachable
    backend = 7,              ///< a backend cannot do the requested operation, or failed
    aborted = 8,              ///< the group was aborted or destroyed while the operation ran
    interrupted = 9,          ///< a signal (Ctrl-C) ended the wait
    security = 10,            ///< a peer could not prove the job's secret, or a secret is missing
    not_initialized = 11,     ///< init_process_group has not been called
    internal = 99,            ///< a bug in tutti
};

/// A short stable name, such as "peer_lost".
TUTTI_API const char* to_string(ErrorCode code) noexcept;

/// The known facts about a failure; fields that do not apply keep their defaults.
struct ErrorContext {
    std::string operation;       ///< "all_reduce", "Store.get", …
    std::uint64_t sequence = 0;  ///< number of the operation in its group, from 1; 0: none
    std::string group;           ///< name of the group
    int rank = -1;               ///< global rank that throws the error
    int peer = -1;               ///< global rank that the error is about
    std::string phase;           ///< the step in which the operation failed
    std::uint64_t bytes_done = 0;
    std::uint64_t bytes_total = 0;
    std::chrono::nanoseconds elapsed{0};  ///< since the call began
    /// What the user can do. If the code that throws gives no hint, an InvalidArgument gets what its message expects,
    /// and other errors get the usual advice for their code. Empty: there is no advice.
    std::string hint;
};

/// Base of all exceptions of tutti.
class TUTTI_API DistError : public std::runtime_error {
 public:
    DistError(ErrorCode code, const std::string& message, ErrorContext context = {});
    ~DistError() override;
    ErrorCode code() const noexcept { return code_; }
    const ErrorContext& context() const noexcept { return context_; }

 private:
    ErrorCode code_;
    ErrorContext context_;
};

/// A backend failed; the base of all errors that end a collective.
class TUTTI_API DistBackendError : public DistError {
 public:
    explicit DistBackendError(const std::string& message, ErrorContext context = {},
                              ErrorCode code = ErrorCode::backend);
    ~DistBackendError() override;
};

/// The network failed: refused, reset, unreachable, not authenticated.
class TUTTI_API DistNetworkError : public DistError {
 public:
    explicit DistNetworkError(const std::string& message, ErrorContext context = {},
                              ErrorCode code = ErrorCode::network);
    ~DistNetworkError() override;
};

/// A store failed: timed out, lost its server, was misused.
class TUTTI_API DistStoreError : public DistError {
 public:
    explicit DistStoreError(const std::string& message, ErrorContext context = {}, ErrorCode code = ErrorCode::store);
    ~DistStoreError() override;
};

/// The caller asked for something impossible; thrown before any communication.
class TUTTI_API InvalidArgument : public DistError {
 public:
    explicit InvalidArgument(const std::string& message, ErrorContext context = {},
                             ErrorCode code = ErrorCode::invalid_argument);
    ~InvalidArgument() override;
};

/// The ranks called different collectives, or one collective with different arguments. Every rank throws it.
class TUTTI_API CollectiveMismatch : public DistBackendError {
 public:
    explicit CollectiveMismatch(const std::string& message, ErrorContext context = {});
    ~CollectiveMismatch() override;
};

/// A rank died, left or cannot be reached; `context().peer` names it. The group is unusable afterwards.
class TUTTI_API PeerLost : public DistBackendError {
 public:
    explicit PeerLost(const std::string& message, ErrorContext context = {});
    ~PeerLost() override;
};

/// A deadline passed.
class TUTTI_API Timeout : public DistBackendError {
 public:
    explicit Timeout(const std::string& message, ErrorContext context = {});
    ~Timeout() override;
};

/// The group was aborted or destroyed by another thread, or a signal ended the wait (code interrupted).
class TUTTI_API Aborted : public DistBackendError {
 public:
    explicit Aborted(const std::string& message, ErrorContext context = {}, ErrorCode code = ErrorCode::aborted);
    ~Aborted() override;
};

/// A bug in tutti: please report it with the message.
class TUTTI_API InternalError : public DistError {
 public:
    explicit InternalError(const std::string& message, ErrorContext context = {});
    ~InternalError() override;
};

}  // namespace tutti
