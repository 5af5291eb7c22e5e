#include <tutti/error.hpp>

#include <string>
#include <string_view>
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

namespace {

// The end of "…: expected …".
std::string expectation_in(std::string_view message) {
    const std::size_t at = message.rfind("expected ");
    return at == message.npos ? "" : std::string(message.substr(at));
}

// The end of "…; call this first".
std::string advice_in(std::string_view message) {
    constexpr std::string_view then = "; ";
    const std::size_t at = message.rfind(then);
    return at == message.npos ? "" : std::string(message.substr(at + then.size()));
}

std::string cure_of(ErrorCode code, std::string_view message) {
    switch (code) {
        case ErrorCode::invalid_argument:
        case ErrorCode::not_initialized: {
            std::string expectation = expectation_in(message);
            return expectation.empty() ? advice_in(message) : expectation;
        }
        case ErrorCode::backend: return expectation_in(message);
        case ErrorCode::timeout:
            return "look at what the ranks that the message names are doing, in their output or with `tutti status`; "
                   "if they are only slow, give a longer timeout";
        case ErrorCode::peer_lost:
            return "look at how that rank ended, in its output and its exit status; ProcessGroup.shrink goes on with "
                   "the other ranks";
        case ErrorCode::collective_mismatch:
            return "make all ranks of the group call the same collectives in the same order, with equal dtype, element "
                   "count, op and root";
        case ErrorCode::network: return "`tutti doctor` examines the network of this host";
        case ErrorCode::store: return "look whether the process that serves the store still runs";
        case ErrorCode::aborted: return "look at the error of the rank that ended the group, then make a new group";
        case ErrorCode::security: return "give all ranks the same TUTTI_JOB_SECRET and TUTTI_TLS";
        case ErrorCode::internal: return "please report it with its message";
        case ErrorCode::interrupted: break;
    }
    return {};
}

}  // namespace

DistError::DistError(ErrorCode code, const std::string& message, ErrorContext context)
    : std::runtime_error(message), code_(code), context_(std::move(context)) {
    if (context_.hint.empty()) context_.hint = cure_of(code, message);
}
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
