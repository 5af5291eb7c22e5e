#include "core/rethrow_about.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <string>

namespace tutti {

void rethrow_about(const std::exception_ptr& cause, std::string_view about, ErrorContext context) {
    TUTTI_ASSERT(cause != nullptr && !about.empty());
    std::string text;
    try {
        std::rethrow_exception(cause);
    } catch (const DistError& error) {
        text = fmt::format("{}: {}", about, error.what());
        context.peer = error.context().peer;
        if (context.hint.empty()) context.hint = error.context().hint;
    }
    try {
        std::rethrow_exception(cause);
    } catch (const PeerLost&) {
        throw PeerLost(text, context);
    } catch (const Timeout&) {
        throw Timeout(text, context);
    } catch (const CollectiveMismatch&) {
        throw CollectiveMismatch(text, context);
    } catch (const Aborted& error) {
        throw Aborted(text, context, error.code());
    } catch (const DistBackendError& error) {
        throw DistBackendError(text, context, error.code());
    } catch (const DistNetworkError& error) {
        throw DistNetworkError(text, context, error.code());
    } catch (const DistStoreError& error) {
        throw DistStoreError(text, context, error.code());
    } catch (const InvalidArgument& error) {
        throw InvalidArgument(text, context, error.code());
    } catch (const InternalError&) {
        throw InternalError(text, context);
    }
}

}  // namespace tutti
