// The regret of the choice: every algorithm that can serve a collective takes turns with the one that is chosen.
#include "algorithm/plan.hpp"
#include "bench/collectives/bench.hpp"
#include "command/requests.hpp"
#include "group/group.hpp"

#include <tutti/distributed.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <system_error>

namespace tutti::bench {
namespace {

// One collective of one size. `chosen` and the candidates are the same on all ranks.
class Contest {
 public:
    Contest(const Options& options, const ProcessGroup& group, const std::string& collective, std::uint64_t bytes,
            DType dtype)
        : options_(options), group_(group) {
        work_ = make_case(collective, bytes, dtype, op_from_string(options.op), group);
        // bytes() counts the whole buffer on the root only, where there is one: all ranks need the same request.
        std::uint64_t whole = work_->bytes();
        broadcast(std::span<std::uint64_t>(&whole, 1), {.src = 0, .group = group});
        const algorithm::Request request = command::request_for(collective, whole, dtype, group.size());
        planned_ = request.collective;
        result_ = {.collective = collective, .bytes = whole, .dtype = dtype, .ranks = group.size()};
        result_.transport = options.transport;
        names_ = algorithm::applicable(group.impl()->planner().layout(), request);
        result_.chosen = algorithm::choose(group.impl()->planner().layout(), request).algorithm;
    }

    std::uint64_t bytes() const { return result_.bytes; }

    Regret run() {
        std::vector<std::vector<double>> times(names_.size());
        for (int round = 0; round < options_.rounds; ++round) {
            for (std::size_t i = 0; i < names_.size(); ++i) times[i].push_back(time_of(names_[i]));
        }
        for (std::size_t i = 0; i < names_.size(); ++i) {
            std::ranges::sort(times[i]);
            result_.times_us.emplace_back(names_[i], quantile(times[i], 0.5));
        }
        result_.best = std::ranges::min_element(result_.times_us, {}, &std::pair<std::string, double>::second)->first;
        return result_;
    }

 private:
    double time_of(const std::string& name) {
        const std::optional<std::string> before = group_.impl()->planner().named(planned_);
        group_.impl()->planner().serve_with(planned_, name);
        const auto times = sample(options_.sampling, ranks_of(group_), [this] { work_->run(); }).times_us;
        group_.impl()->planner().serve_with(planned_, before);
        return quantile(times, 0.5);
    }

    const Options& options_;
    ProcessGroup group_;
    std::unique_ptr<Case> work_;
    Collective planned_ = Collective::barrier;
    std::vector<std::string> names_;
    Regret result_;
};

void print(std::FILE* to, const Regret& r) {
    std::string others;
    for (const auto& [name, us] : r.times_us) others += fmt::format("  {} {:.2f}", name, us);
    std::fputs(fmt::format("{:>14} {:>12} {:>19} {:>19} {:>7.1f}%{}\n", r.collective, r.bytes, r.chosen, r.best,
                           r.percent(), others)
                   .c_str(),
               to);
    std::fflush(to);
}

}  // namespace

double Regret::percent() const {
    const auto time = [this](const std::string& name) {
        return std::ranges::find(times_us, name, &std::pair<std::string, double>::first)->second;
    };
    return 100 * (time(chosen) / time(best) - 1);
}

std::vector<Regret> measure_regret(const Options& options, const ProcessGroup& group, std::FILE* table) {
    if (options.pin) pin_to(group.rank(), group.size());
    if (table != nullptr) {
        std::fputs(fmt::format("#{:>13} {:>12} {:>19} {:>19} {:>8}  times in us\n", "collective", "size(B)", "chosen",
                               "best", "regret")
                       .c_str(),
                   table);
    }
    std::vector<Regret> regrets;
    const auto planned = command::planned_collectives();
    for (const std::string& collective : options.collectives) {
        if (std::ranges::find(planned, collective) == planned.end()) continue;  // sendrecv: there is one way
        for (const DType dtype : options.dtypes) {
            std::uint64_t last = UINT64_MAX;
            for (const std::uint64_t size : sizes_of(options)) {
                Contest contest(options, group, collective, size, dtype);
                if (contest.bytes() == last) continue;  // rounded to the same, or a barrier
                last = contest.bytes();
                const Regret regret = contest.run();
                if (group.rank() != 0) continue;
                if (table != nullptr) print(table, regret);
                regrets.push_back(regret);
            }
        }
    }
    if (table != nullptr && !regrets.empty()) {
        const auto worst = std::ranges::max_element(regrets, {}, &Regret::percent);
        std::fputs(fmt::format("# {} choices; the worst, {} of {} bytes, is {:.1f} % slower than {}\n", regrets.size(),
                               worst->collective, worst->bytes, worst->percent(), worst->best)
                       .c_str(),
                   table);
    }
    return regrets;
}

void write_json(const std::string& file, const std::vector<Regret>& regrets) {
    nlohmann::json list = nlohmann::json::array();
    for (const Regret& r : regrets) {
        nlohmann::json times = nlohmann::json::object();
        for (const auto& [name, us] : r.times_us) times[name] = us;
        list.push_back({{"collective", r.collective},
                        {"bytes", r.bytes},
                        {"dtype", std::string(to_string(r.dtype))},
                        {"ranks", r.ranks},
                        {"transport", r.transport},
                        {"chosen", r.chosen},
                        {"best", r.best},
                        {"regret_percent", r.percent()},
                        {"times_us", times}});
    }
    std::ofstream out(file);
    out << list.dump(1) << '\n';
    if (!out.flush()) throw std::system_error(errno, std::generic_category(), "cannot write " + file);
}

}  // namespace tutti::bench
