#include "failure.hpp"

#include <c10/util/Exception.h>

#include <tutti/error.hpp>

#include <string>

namespace tutti::torch {

std::exception_ptr translated(std::exception_ptr error) {
    constexpr c10::SourceLocation here{"tutti", "tutti.torch", 0};
    try {
        std::rethrow_exception(error);
    } catch (const InvalidArgument& e) {
        return std::make_exception_ptr(c10::Error(here, e.what()));
    } catch (const DistStoreError& e) {
        return std::make_exception_ptr(c10::DistStoreError(here, e.what()));
    } catch (const DistNetworkError& e) {
        return std::make_exception_ptr(c10::DistNetworkError(here, e.what()));
    } catch (const Timeout& e) {  // in gloo's words, which programs look for
        return std::make_exception_ptr(
            c10::DistBackendError(here, std::string("tutti: Timed out waiting: ") + e.what()));
    } catch (const PeerLost& e) {
        return std::make_exception_ptr(
            c10::DistBackendError(here, std::string("tutti: Connection closed by peer: ") + e.what()));
    } catch (const DistBackendError& e) {
        return std::make_exception_ptr(c10::DistBackendError(here, e.what()));
    } catch (const DistError& e) {
        return std::make_exception_ptr(c10::DistError(here, e.what()));
    } catch (...) {
        return error;
    }
}

}  // namespace tutti::torch
