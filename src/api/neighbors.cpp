// Neighbourhood collectives on a graph of ranks, and plans of exchanges.
#include "api/arguments.hpp"
#include "api/coalescing_internal.hpp"
#include "api/halos.hpp"
#include "api/neighbor_graph.hpp"
#include "api/planned_call.hpp"
#include "core/assert.hpp"
#include "operation/fingerprint.hpp"
#include "record/public_call.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

namespace tutti {

// ---- Plans

namespace api {
namespace {

class PlannedExchange final : public detail::PlannedCall {
 public:
    explicit PlannedExchange(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
    const char* name() const noexcept override { return exchange_->name(); }
    void run() override {
        check("run");
        exchange_->run();
    }
    Work start() override {
        check("start");
        return exchange_->start();
    }
    int source_rank() const override {
        throw InvalidArgument("Plan.source_rank: this plan has several messages: expected a plan of recv");
    }

 private:
    void check(const char* method) const {
        refuse_if_recorded(name());
        if (!exchange_->idle()) {
            throw InvalidArgument(
                fmt::format("Plan.{}: the last {} has not finished; wait for its Work first", method, name()));
        }
    }
    const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

Plan plan_of_exchange(std::shared_ptr<Exchange> exchange) {
    return Plan(std::make_unique<PlannedExchange>(std::move(exchange)));
}

void check_neighbor_group(const char* name, const Group& group) {
    const auto& names = group.backends().names();
    const auto of_host = names.find(Device::Type::cpu);
    const bool is_own = of_host == names.end() || of_host->second == backend::native;
    if (group.serves(Device::Type::cpu) && (is_own || group.transport() != nullptr)) return;
    refuse("{}: host memory of group \"{}\" is served by {}: expected a group of tutti's own backend, native", name,
           group.name(), of_host == names.end() ? "no backend" : "the backend " + of_host->second);
}

}  // namespace api

// ---- Collectives on a graph

namespace {

using detail::NeighborGraphState;
using group::Fingerprint;
using group::NeighborTerms;

struct Neighborhood {
    const char* name;
    NeighborTerms::Function function;
    const NeighborGraphState& graph;

    void check_tensor(const char* list, std::size_t i, const ConstTensorView& view) const {
        if (view.device().type != Device::Type::cpu)
            api::refuse("{}: {}[{}] is on {}: expected host memory", name, list, i, to_string(view.device()));
    }
    void check_length(const char* list, std::size_t length, const char* ranks, std::size_t expected) const {
        if (length == expected) return;
        api::refuse("{}: {} has {} tensors: expected {}, one for each of the graph's {}", name, list, length, expected,
                    ranks);
    }
    std::uint64_t fingerprint_of(const ConstTensorView& view) const {
        return Fingerprint::pack(NeighborTerms{.function = function}, view.dtype(), api::count_of(view));
    }

    // `input(i)`: the tensor for destination i.
    template <class Input>
    std::shared_ptr<api::Exchange> exchange(const TensorList& outputs, Input&& input, milliseconds timeout) const {
        api::refuse_if_recorded(name);
        api::check_timeout(name, timeout);
        check_length("output_list", outputs.size(), "sources", graph.sources().size());
        for (std::size_t j = 0; j < outputs.size(); ++j) check_tensor("output_list", j, outputs[j]);
        auto exchange = std::make_shared<api::Exchange>(name, timeout, outputs);
        exchange->add_phase(graph.group());
        const int me = graph.group()->ranks().own_global();
        std::vector<std::size_t> to_itself;
        for (std::size_t i = 0; i < graph.destinations().size(); ++i) {
            const int peer = graph.destinations()[i];
            if (peer == me) to_itself.push_back(i);
            if (peer != me && peer != no_rank)
                exchange->send(input(i), {peer, graph.channel(), fingerprint_of(input(i))});
        }
        std::size_t next = 0;
        for (std::size_t j = 0; j < outputs.size(); ++j) {
            const int peer = graph.sources()[j];
            if (peer == me) copy_own(*exchange, outputs[j], j, input(to_itself.at(next)), to_itself.at(next)), ++next;
            if (peer != me && peer != no_rank)
                exchange->receive(outputs[j], {peer, graph.channel(), fingerprint_of(outputs[j])});
        }
        TUTTI_ASSERT(next == to_itself.size());
        return exchange;
    }

    void copy_own(api::Exchange& exchange, const TensorView& output, std::size_t j, const ConstTensorView& input,
                  std::size_t i) const {
        if (output.dtype() != input.dtype() || output.element_count() != input.element_count()) {
            api::refuse(
                "{}: destination {} and source {} are this rank itself, but the input is {} and the output {}: "
                "expected equal dtypes and counts",
                name, i, j, input.to_string(), output.to_string());
        }
        exchange.copy(output, input);
    }
};

const NeighborGraphState& state_of(const char* name, const NeighborGraph& graph) {
    if (!graph) api::refuse("{}: graph is empty: expected a NeighborGraph of lists of ranks", name);
    return *graph.state();
}

std::shared_ptr<api::Exchange> all_to_all_of(const TensorList& outputs, const ConstTensorList& inputs,
                                             const NeighborGraph& graph, const NeighborOptions& options) {
    constexpr const char* name = "neighbor_all_to_all";
    const Neighborhood call{name, NeighborTerms::Function::all_to_all, state_of(name, graph)};
    call.check_length("input_list", inputs.size(), "destinations", call.graph.destinations().size());
    for (std::size_t i = 0; i < inputs.size(); ++i) call.check_tensor("input_list", i, inputs[i]);
    return call.exchange(
        outputs, [&](std::size_t i) -> const ConstTensorView& { return inputs[i]; }, options.timeout);
}
std::shared_ptr<api::Exchange> all_gather_of(const TensorList& outputs, const ConstTensorView& input,
                                             const NeighborGraph& graph, const NeighborOptions& options) {
    constexpr const char* name = "neighbor_all_gather";
    const Neighborhood call{name, NeighborTerms::Function::all_gather, state_of(name, graph)};
    if (input.device().type != Device::Type::cpu)
        api::refuse("{}: input is on {}: expected host memory", name, to_string(input.device()));
    return call.exchange(
        outputs, [&](std::size_t) -> const ConstTensorView& { return input; }, options.timeout);
}

}  // namespace

void neighbor_all_to_all(const TensorList& output_list, const ConstTensorList& input_list, const NeighborGraph& graph,
                         const NeighborOptions& options) {
    const record::PublicCall public_call("neighbor_all_to_all");
    all_to_all_of(output_list, input_list, graph, options)->run();
}
void neighbor_all_gather(const TensorList& output_list, ConstTensorView input, const NeighborGraph& graph,
                         const NeighborOptions& options) {
    const record::PublicCall public_call("neighbor_all_gather");
    all_gather_of(output_list, input, graph, options)->run();
}
Work async::neighbor_all_to_all(const TensorList& output_list, const ConstTensorList& input_list,
                                const NeighborGraph& graph, const NeighborOptions& options) {
    const record::PublicCall public_call("neighbor_all_to_all");
    return all_to_all_of(output_list, input_list, graph, options)->start();
}
Work async::neighbor_all_gather(const TensorList& output_list, ConstTensorView input, const NeighborGraph& graph,
                                const NeighborOptions& options) {
    const record::PublicCall public_call("neighbor_all_gather");
    return all_gather_of(output_list, input, graph, options)->start();
}
Plan plan::neighbor_all_to_all(const TensorList& output_list, const ConstTensorList& input_list,
                               const NeighborGraph& graph, const NeighborOptions& options) {
    return api::plan_of_exchange(all_to_all_of(output_list, input_list, graph, options));
}
Plan plan::neighbor_all_gather(const TensorList& output_list, ConstTensorView input, const NeighborGraph& graph,
                               const NeighborOptions& options) {
    return api::plan_of_exchange(all_gather_of(output_list, input, graph, options));
}

}  // namespace tutti
