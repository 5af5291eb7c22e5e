#include "graph/steps.hpp"
#include "graph/value.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <utility>

namespace tutti::graph {

class Executable::State {
 public:
    explicit State(const Graph& graph) : graph_(graph) {
        if (!graph_.calls) {
            throw InvalidArgument(
                "instantiate: the graph has no functions and buffers: expected one of capture(), or what optimise() "
                "made of "
                "it");
        }
        if (graph_.arena >= 0) {
            const std::uint64_t bytes = graph_.buffers[static_cast<std::size_t>(graph_.arena)];
            arena_ = empty(uint8, Extents::of(static_cast<std::int64_t>(bytes)));
        }
        steps_ = steps_of(graph_, bindings_, arena());
    }

    const Graph& graph() const noexcept { return graph_; }

    void replay() {
        if (is_capturing())
            throw InvalidArgument("Executable.replay: this thread captures a graph: expected the replay outside of it");
        for (Step& step : steps_) step.run(steps_);
    }

    void bind(const ConstTensorView& captured, const TensorView& replacement) {
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
        if (captured.element_count() == 0) return;
        Bindings next = bindings_;
        next.add(captured, replacement);
        std::vector<Step> steps = steps_of(graph_, next, arena());  // all or nothing
        bindings_ = std::move(next);
        steps_ = std::move(steps);
    }

 private:
    std::byte* arena() const { return static_cast<std::byte*>(arena_.raw_data()); }

    Graph graph_;
    Bindings bindings_;
    Tensor arena_;  ///< of temporaries
    std::vector<Step> steps_;
};

Executable::Executable(const Graph& graph) : state_(std::make_unique<State>(graph)) {}
Executable::Executable(Executable&& other) noexcept = default;
Executable& Executable::operator=(Executable&& other) noexcept = default;
Executable::~Executable() = default;

void Executable::replay() {
    state_->replay();
}
void Executable::bind(ConstTensorView captured, TensorView replacement) {
    state_->bind(captured, replacement);
}
const Graph& Executable::graph() const noexcept {
    return state_->graph();
}

}  // namespace tutti::graph
