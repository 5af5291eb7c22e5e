#include "nccl/with_title.hpp"

#include <tutti/error.hpp>

namespace tutti::nccl {

std::exception_ptr with_title(const std::string& title, const std::string& what, const std::exception_ptr& error) {
    if (text_of(error).starts_with(title)) return error;
    const auto text = [&](const std::exception& e) { return title + ": " + what + ": " + e.what(); };
    try {
        std::rethrow_exception(error);
    } catch (const Timeout& e) {
        return std::make_exception_ptr(Timeout(text(e), e.context()));
    } catch (const PeerLost& e) {
        return std::make_exception_ptr(PeerLost(text(e), e.context()));
    } catch (const CollectiveMismatch& e) {
        return std::make_exception_ptr(CollectiveMismatch(text(e), e.context()));
    } catch (const Aborted& e) {
        return std::make_exception_ptr(Aborted(text(e), e.context(), e.code()));
    } catch (const DistError& e) {
        return std::make_exception_ptr(DistBackendError(text(e), e.context(), e.code()));
    } catch (const std::exception& e) {
        return std::make_exception_ptr(DistBackendError(text(e)));
    } catch (...) {
        return std::make_exception_ptr(DistBackendError(title + ": " + what + ": an unknown error"));
    }
}

std::string text_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "an unknown error";
    }
}

}  // namespace tutti::nccl
