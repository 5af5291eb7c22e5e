// The numbers and rules by which explain and simulate predict.
#pragma once

#include "algorithm/request.hpp"

#include <string>

namespace tutti::cli {

/// As rank 0 on this host would decide.
algorithm::Tuning tuning_of_this_host();
/// The source of the numbers of `layout`, in words.
std::string source_of(const algorithm::Layout& layout);

}  // namespace tutti::cli
