#include "core/assert.hpp"
#include "graph/steps.hpp"
#include "graph/value.hpp"
#include "group/group.hpp"
#include "record/call_site.hpp"
#include "record/replays.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::graph {

namespace {

std::vector<std::string> words_of(const Graph& graph) {
    std::vector<std::string> words;
    for (const Node& node : graph.nodes) words.push_back(describe(graph, node));
    return words;
}

/// Of the groups whose calls the graph has; the graph keeps them.
std::vector<const record::Recorder*> recorders_of(const detail::CapturedCalls& calls) {
    std::set<const record::Recorder*> recorders;
    for (const detail::CapturedCall& call : calls.calls) {
        if (call.model) recorders.insert(&call.model->group->recorder());
    }
    return {recorders.begin(), recorders.end()};
}

/// While it lives, the record has a node, and calls have the captured call sites.
class Place {
 public:
    explicit Place(record::ReplayRecord& replay) : record_(replay), outer_(record::given_call_site) { record_.begin(); }
    ~Place() {
        record_.end();
        record::given_call_site = outer_;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    void move_to(std::size_t node, const void* site) noexcept {
        record_.at(node);
        record::given_call_site = site != nullptr ? site : outer_;
    }

 private:
    record::ReplayRecord& record_;
    const void* const outer_;
};

}  // namespace

class Executable::State {
 public:
    explicit State(const Graph& graph) : graph_(runnable(graph)), bindings_(graph_) {
        if (graph_.arena >= 0) {
            const std::uint64_t bytes = graph_.buffers[static_cast<std::size_t>(graph_.arena)];
            arena_ = empty(uint8, Extents::of(static_cast<std::int64_t>(bytes)));
        }
        steps_ = steps_of(graph_, bindings_, arena());
        TUTTI_ASSERT(steps_.size() == graph_.nodes.size());
        record_.emplace(words_of(graph_), recorders_of(*graph_.calls));
    }

    const Graph& graph() const noexcept { return graph_; }

    void replay() {
        if (is_capturing())
            throw InvalidArgument("Executable.replay: this thread captures a graph: expected the replay outside of it");
        Place place(*record_);
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            place.move_to(i, steps_[i].site);
            steps_[i].run(steps_);
        }
    }

    void bind(std::span<const Binding> wanted) {
        Bindings next = bindings_;
        for (const auto& [captured, replacement] : wanted) check(captured, replacement);
        next.move(wanted);
        std::vector<Step> steps = steps_of(graph_, next, arena());  // all or nothing
        TUTTI_ASSERT(steps.size() == graph_.nodes.size());
        bindings_ = std::move(next);
        steps_ = std::move(steps);
    }

 private:
    static const Graph& runnable(const Graph& graph) {
        if (graph.calls) return graph;
        throw InvalidArgument(
            "instantiate: the graph has no functions and buffers: expected one of capture(), or what optimise() made "
            "of it");
    }
    static void check(const ConstTensorView& captured, const TensorView& replacement) {
        for (const auto& [name, view] : {std::pair<const char*, const ConstTensorView&>("captured", captured),
                                         std::pair<const char*, const ConstTensorView&>("replacement", replacement)}) {
            if (!view.contiguous() || view.device().type != Device::Type::cpu)
                throw InvalidArgument(
                    fmt::format("Executable.bind: {} is {}: expected a tensor in one piece in host memory", name,
                                view.to_string()));
        }
        if (captured.dtype() != replacement.dtype() || captured.element_count() != replacement.element_count())
            throw InvalidArgument(
                fmt::format("Executable.bind: replacement is {}: expected the captured tensor's type and "
                            "size, {}",
                            replacement.to_string(), captured.to_string()));
    }

    std::byte* arena() const { return static_cast<std::byte*>(arena_.raw_data()); }

    Graph graph_;
    Bindings bindings_;
    Tensor arena_;             ///< of temporaries
    std::vector<Step> steps_;  ///< one for each node
    std::optional<record::ReplayRecord> record_;
};

Executable::Executable(const Graph& graph) : state_(std::make_unique<State>(graph)) {}
Executable::Executable(Executable&& other) noexcept = default;
Executable& Executable::operator=(Executable&& other) noexcept = default;
Executable::~Executable() = default;

void Executable::replay() {
    state_->replay();
}
void Executable::bind(ConstTensorView captured, TensorView replacement) {
    const Binding one{captured, replacement};
    state_->bind({&one, 1});
}
void Executable::bind(std::span<const Binding> bindings) {
    state_->bind(bindings);
}
const Graph& Executable::graph() const noexcept {
    return state_->graph();
}

}  // namespace tutti::graph
