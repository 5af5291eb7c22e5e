#include "record/metrics.hpp"

#include "core/assert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::record {
namespace {

// As the format wants label values.
std::string label_value(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '\\' || c == '"') result += '\\';
        if (c == '\n')
            result += "\\n";
        else
            result += c;
    }
    TUTTI_ASSERT(result.size() > text.size());
    return result + '"';
}

class Text {
 public:
    explicit Text(std::span<const Counters> all) : all_(all.begin(), all.end()) {
        // A series must not appear twice: a smaller world after a failure may have the name of the one before.
        std::set<std::pair<std::string, int>> names;
        for (Counters& c : all_) {
            const std::string name = c.group;
            for (int again = 2; !names.emplace(c.group, c.rank).second; ++again)
                c.group = fmt::format("{}#{}", name, again);
        }
    }

    /// `value(counters)`: one for each group.
    template <class Value>
    void by_group(const char* name, const char* type, const char* help, Value value) {
        head(name, type, help);
        for (const Counters& c : all_) text_ += fmt::format("{}{{{}}} {}\n", name, labels(c), value(c));
    }
    /// `value(numbers)`: one for each operation of each group.
    template <class Value>
    void by_operation(const char* name, const char* help, Value value) {
        head(name, "counter", help);
        for_each_operation([&](const Counters& c, const Counters::ByOperation& one) {
            text_ += fmt::format("{}{{{},operation={}}} {}\n", name, labels(c), label_value(one.operation),
                                 value(one.numbers));
        });
    }
    void waits() {
        head("tutti_waited_seconds_total", "counter",
             "Time spent waiting for a rank, in waits of more than some 10 ms.");
        for (const Counters& c : all_) {
            for (std::size_t peer = 0; peer < c.waited_s.size(); ++peer) {
                if (c.waited_s[peer] == 0) continue;
                text_ +=
                    fmt::format("tutti_waited_seconds_total{{{},peer=\"{}\"}} {}\n", labels(c), peer, c.waited_s[peer]);
            }
        }
    }
    void errors() {
        head("tutti_operation_errors_total", "counter", "Operations that failed, by why their group did.");
        for_each_operation([&](const Counters& c, const Counters::ByOperation& one) {
            if (one.numbers.failed == 0) return;
            text_ +=
                fmt::format("tutti_operation_errors_total{{{},operation={},cause=\"{}\"}} {}\n", labels(c),
                            label_value(one.operation), c.failure != nullptr ? c.failure : "other", one.numbers.failed);
        });
    }
    void durations() {
        constexpr const char* name = "tutti_operation_duration_seconds";
        head(name, "histogram", "Time from call to completion.");
        for_each_operation([&](const Counters& c, const Counters::ByOperation& one) {
            const std::string all = fmt::format("{},operation={}", labels(c), label_value(one.operation));
            std::uint64_t count = 0;
            TUTTI_ASSERT(one.numbers.buckets.size() == Statistics::bounds_s.size() + 1);
            for (std::size_t i = 0; i < one.numbers.buckets.size(); ++i) {
                count += one.numbers.buckets[i];
                const std::string bound =
                    i < Statistics::bounds_s.size() ? fmt::format("{}", Statistics::bounds_s[i]) : "+Inf";
                text_ += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, all, bound, count);
            }
            text_ += fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, all, one.numbers.seconds, count);
        });
    }
    std::string take() { return std::move(text_); }

 private:
    void head(const char* name, const char* type, const char* help) {
        text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
    }
    template <class F>
    void for_each_operation(F f) const {
        for (const Counters& c : all_) {
            for (const Counters::ByOperation& one : c.by_operation) f(c, one);
        }
    }
    static std::string labels(const Counters& c) {
        return fmt::format("group={},rank=\"{}\"", label_value(c.group), c.rank);
    }

    std::vector<Counters> all_;
    std::string text_;
};

}  // namespace

std::string prometheus_text_of(std::span<const Counters> all) {
    Text text(all);
    text.by_group("tutti_operations_issued_total", "counter", "Operations that were called.",
                  [](const auto& c) { return c.issued; });
    text.by_group("tutti_operations_completed_total", "counter", "Operations that succeeded.",
                  [](const auto& c) { return c.completed; });
    text.by_group("tutti_operations_failed_total", "counter", "Operations that failed.",
                  [](const auto& c) { return c.failed; });
    text.by_group("tutti_bytes_total", "counter", "Bytes that this rank contributed or received in messages.",
                  [](const auto& c) { return c.bytes; });
    text.by_group("tutti_operation_seconds_total", "counter",
                  "Time from call to completion, of operations that were not over in a moment.",
                  [](const auto& c) { return c.seconds; });
    text.waits();
    text.by_group("tutti_live_peers", "gauge", "Other ranks of the group that have neither died nor left.",
                  [](const auto& c) { return c.size - 1 - c.gone; });
    if (std::ranges::none_of(all, [](const Counters& c) { return !c.by_operation.empty(); })) return text.take();
    text.by_group("tutti_outstanding_operations", "gauge", "Operations that were called and have not ended.",
                  [](const auto& c) { return c.open; });
    text.by_group("tutti_oldest_outstanding_seconds", "gauge", "For how long the oldest of them has been open.",
                  [](const auto& c) { return c.oldest_s; });
    text.by_operation("tutti_operation_calls_total", "Calls, by operation.", [](const auto& row) { return row.calls; });
    text.by_operation("tutti_operation_bytes_total", "Bytes that this rank contributed or received in messages.",
                      [](const auto& row) { return row.bytes; });
    text.errors();
    text.durations();
    return text.take();
}

}  // namespace tutti::record
