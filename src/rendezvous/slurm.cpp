#include "rendezvous/slurm.hpp"

#include "core/text.hpp"

#include <algorithm>
#include <charconv>

namespace tutti::rendezvous::slurm {
std::string first_host(std::string_view list) {
    std::string host;
    for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
        if (list[i] != '[') {
            host += list[i];
            continue;
        }
        const std::size_t end = list.find(']', i);
        host += list.substr(i + 1, list.find_first_of("-,]", i) - i - 1);
        if (end == std::string_view::npos) break;
        i = end;
    }
    return host;
}

std::optional<int> tasks_of_node(std::string_view list, std::string_view node) {
    const auto wanted = number_in<std::uint64_t>(node);
    if (!wanted) return std::nullopt;
    std::uint64_t left = *wanted;
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), item.size() + 1));
        int tasks = 0;
        std::uint64_t times = 1;
        const char* const end = item.data() + item.size();
        const auto count = std::from_chars(item.data(), end, tasks);
        if (end - count.ptr > 2) std::from_chars(count.ptr + 2, end, times);
        if (left < times) return tasks;
        left -= times;
    }
    return std::nullopt;
}

std::optional<std::uint16_t> port(std::string_view job, std::string_view step) {
    // Below the ports that systems give to clients (32768 and up). The first steps are more than a thousand jobs apart.
    constexpr std::uint64_t first = 20000, count = 10000, between_steps = 4099;
    const auto job_number = number_in<std::uint64_t>(job), step_number = number_in<std::uint64_t>(step);
    if (!job_number || !step_number) return std::nullopt;
    return static_cast<std::uint16_t>(first + (*job_number % count + *step_number % count * between_steps) % count);
}

}  // namespace tutti::rendezvous::slurm
