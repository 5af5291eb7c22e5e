// Param: the parameters of an AllToAllVV2, checked, and from a JSON text. Free functions; any thread.
#pragma once

#include <tutti/atb.hpp>

#include <string>

namespace tutti::atb {

inline constexpr std::size_t domain_name_characters = 128;

/// Throws Error (ERROR_INVALID_PARAM) for parameters of which no domain could be made.
void check(const AllToAllVV2Param& param);
/// From the text of set_param.
AllToAllVV2Param param_from_json(const std::string& text);

}  // namespace tutti::atb
