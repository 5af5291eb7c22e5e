#include "schedule/functions.hpp"

#include "core/assert.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

struct Registry {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<const StepFunction>, std::less<>> functions;
};

Registry& registry() {
    static Registry& all = *new Registry;  // operations may outlive statics
    return all;
}

}  // namespace

void register_step_function(std::string name, StepFunction function) {
    if (name.empty() || name.find_first_of(" \t\r\n#") != std::string::npos)
        throw InvalidArgument(fmt::format("register_step_function: name \"{}\": expected one word, without '#'", name));
    if (!function) throw InvalidArgument(fmt::format("register_step_function: \"{}\": expected a function", name));
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto [at, is_new] =
        all.functions.try_emplace(std::move(name), std::make_shared<const StepFunction>(std::move(function)));
    if (!is_new)
        throw InvalidArgument(fmt::format(
            "register_step_function: name \"{}\" is taken: expected one that is not registered yet", at->first));
}

namespace schedule {

std::shared_ptr<const StepFunction> find_function(std::string_view name) {
    TUTTI_ASSERT(!name.empty());
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    const auto found = all.functions.find(name);
    TUTTI_ASSERT(found == all.functions.end() || found->second != nullptr);
    return found == all.functions.end() ? nullptr : found->second;
}

}  // namespace schedule
}  // namespace tutti
