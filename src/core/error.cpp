#include <tutti/error.hpp>

#include <utility>

namespace tutti {

const char* to_string(ErrorCode code) noexcept {
    switch (code) {
        case ErrorCode::invalid_argument: return "invalid_argument";
        case ErrorCode::timeout: return "timeout";
        case ErrorCode::peer_lost: return "peer_lost";
        case ErrorCode::collective_mismatch: return "collective_mismatch";
        case ErrorCode::network: return "network";
        case ErrorCode::store: return "store";
        case ErrorCode::backend: return "backend";
        case ErrorCode::aborted: return "aborted";
        case ErrorCode::interrupted: return "interrupted";
        case ErrorCode::security: return "security";
        case ErrorCode::not_initialized: return "not_initialized";
        case ErrorCode::internal: return "internal";
    }
    return "unknown";
}

DistError::DistError(ErrorCode code, const std::string& message, ErrorContext context)
    : std::runtime_error(message), code_(code), context_(std::move(context)) {}
DistError::~DistError() = default;

DistBackendError::DistBackendError(const std::string& message, ErrorContext context, ErrorCode code)
    : DistError(code, message, std::move(context)) {}
DistBackendError::~DistBackendError() = default;

DistNetworkError::DistNetworkError(const std::string& message, ErrorContext context, ErrorCode code)
    : DistError(code, message, std::move(context)) {}
DistNetworkError::~DistNetworkError() = default;

DistStoreError::DistStoreError(const std::string& message, ErrorContext context, ErrorCode code)
    : DistError(code, message, std::move(context)) {}
DistStoreError::~DistStoreError() = default;

InvalidArgument::InvalidArgument(const std::string& message, ErrorContext context, ErrorCode code)
    : DistError(code, message, std::move(context)) {}
InvalidArgument::~InvalidArgument() = default;

CollectiveMismatch::CollectiveMismatch(const std::string& message, ErrorContext context)
    : DistBackendError(message, std::move(context), ErrorCode::collective_mismatch) {}
CollectiveMismatch::~CollectiveMismatch() = default;

PeerLost::PeerLost(const std::string& message, ErrorContext context)
    : DistBackendError(message, std::move(context), ErrorCode::peer_lost) {}
PeerLost::~PeerLost() = default;

Timeout::Timeout(const std::string& message, ErrorContext context)
    : DistBackendError(message, std::move(context), ErrorCode::timeout) {}
Timeout::~Timeout() = default;

Aborted::Aborted(const std::string& message, ErrorContext context, ErrorCode code)
    : DistBackendError(message, std::move(context), code) {}
Aborted::~Aborted() = default;

InternalError::InternalError(const std::string& message, ErrorContext context)
    : DistError(ErrorCode::internal, message, std::move(context)) {}
InternalError::~InternalError() = default;

}  // namespace tutti
