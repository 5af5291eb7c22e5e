// The registered functions that call steps run, by name. Threads: any.
#pragma once

#include <tutti/step_function.hpp>

#include <memory>
#include <string_view>

namespace tutti::schedule {

/// Null: no function has that name.
std::shared_ptr<const StepFunction> find_function(std::string_view name);

}  // namespace tutti::schedule
