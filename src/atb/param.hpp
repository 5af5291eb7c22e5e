// Param: the parameters of an AllToAllVV2, checked, and from a JSON text. Free functions; any thread.
#pragma once

#include <tutti/atb.hpp>

#include <string>

namespace tutti::atb {

inline constexpr std::size_t domain_name_characters = 128;

/// Throws Error (ERROR_INVALID_PARAM) for parameters that allow no domain.
void check(const AllToAllVV2Param& param);
/// Reads the text of set_param.
AllToAllVV2Param param_from_json(const std::string& text);

}  // namespace tutti::atb
