#include "transport/shm/copy_choice.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport {

CopyChoice::Lately& CopyChoice::lately(std::size_t bytes) {
    return by_size_[size_class(bytes)];
}

CopyChoice::Way CopyChoice::next(std::size_t bytes) {
    Lately& known = lately(bytes);
    const Way quicker = known.ns[1] != 0 && known.ns[1] < known.ns[0] ? Way::staging : Way::kernel;
    const Way other = quicker == Way::kernel ? Way::staging : Way::kernel;
    const auto tries = static_cast<std::uint32_t>(
        std::clamp<std::size_t>(bytes_of_trial / std::max<std::size_t>(1, bytes), 1, uses_of_trial));
    if (known.tries_left == 0 && std::exchange(known.may_go_on, false) && known.trying != quicker) {
        const double tried = known.ns[static_cast<std::size_t>(known.trying)];
        if (tried < little_more * known.ns[static_cast<std::size_t>(quicker)]) known.tries_left = longer * tries;
    }
    if (known.tries_left == 0 && (known.ns[1] == 0 || --known.until_trial == 0)) {
        known.trying = known.ns[0] == 0 ? Way::kernel : other;
        known.tries_left = tries;
        known.may_go_on = known.ns[0] != 0;
        known.until_trial = known.wait;
        if (known.ns[1] != 0) known.wait = std::min(2 * known.wait, most_between_trials);
    }
    if (known.tries_left == 0) return quicker;
    --known.tries_left;
    return known.trying;
}

void CopyChoice::took(Way way, std::size_t bytes, double ns) {
    if (bytes == 0 || !(ns > 0)) return;
    double& known = lately(bytes).ns[static_cast<std::size_t>(way)];
    const double now = ns / static_cast<double>(bytes);
    known = known == 0 || now < known ? now : known + (std::min(now, 2 * known) - known) / 16;
}

}  // namespace tutti::transport
