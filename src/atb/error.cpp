#include "capi/handles.hpp"

#include <tutti/atb.hpp>

#include <utility>

namespace tutti::atb {

const char* to_string(ErrorType code) noexcept {
    switch (code) {
        case NO_ERROR: return "NO_ERROR";
        case ERROR_INVALID_PARAM: return "ERROR_INVALID_PARAM";
        case ERROR_INVALID_IN_TENSOR_NUM: return "ERROR_INVALID_IN_TENSOR_NUM";
        case ERROR_INVALID_TENSOR_DTYPE: return "ERROR_INVALID_TENSOR_DTYPE";
        case ERROR_INVALID_TENSOR_DIM: return "ERROR_INVALID_TENSOR_DIM";
        case ERROR_INVALID_TENSOR_ADDR: return "ERROR_INVALID_TENSOR_ADDR";
        case ERROR_OUT_OF_HOST_MEMORY: return "ERROR_OUT_OF_HOST_MEMORY";
    }
    return "unknown";
}

Error::Error(ErrorType code, const std::string& message, ErrorContext context)
    : InvalidArgument(message, std::move(context)), code_(code) {}
Error::~Error() = default;

HcclComm::HcclComm(tutti_group* handle) : group_(capi::group_of("HcclComm", handle)) {}

}  // namespace tutti::atb
