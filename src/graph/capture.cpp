// Capture: this thread's calls become nodes; at the end their memory becomes buffers with numbers.
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "graph/accesses.hpp"
#include "graph/captured.hpp"
#include "graph/value.hpp"
#include "operation/channel.hpp"
#include "record/call_site.hpp"
#include "record/source_lines.hpp"
#include "tensor/host_read.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

namespace tutti::graph {

HostRead::HostRead(const std::string& message, std::string read_at, std::string written_at)
    : InvalidArgument(message), read_at_(std::move(read_at)), written_at_(std::move(written_at)) {}
HostRead::~HostRead() = default;

namespace detail {
namespace {

using tutti::detail::Operation;

/// A binding to another language gives its own call sites.
std::string text_of(const std::source_location& site) {
    if (record::given_call_site != nullptr) return record::describe_call_site(record::given_call_site);
    std::string_view file = site.file_name();
    file = file.substr(file.find_last_of('/') + 1);
    return fmt::format("{}:{}", file, site.line());
}

}  // namespace

/// A node whose memory has no numbers yet.
struct Draft {
    Draft() { node.pieces.emplace_back(); }
    Node node;
    Accesses accesses;
};

// Bytes that some node touches, without those of other stretches between.
struct Stretch {
    const std::byte *begin, *end;
    std::uint32_t number;
};

/// One capture of one thread.
class Scope final : public api::CallRecorder {
 public:
    Scope() {
        if (api::call_recorder != nullptr)
            throw InvalidArgument("capture: this thread captures already: expected one capture at a time");
        if (api::open_scopes > 0)
            throw InvalidArgument("capture: this thread has an open Coalescing scope: expected none");
        api::call_recorder = this;
        ++api::open_scopes;
        before_host_read = [](const ConstTensorView& tensor, const char* reader, const void* site) {
            if (record::current_call_site != nullptr) site = record::current_call_site;
            if (of_this_thread() != nullptr)
                of_this_thread()->check_read(tensor, reader,
                                             record::describe_call_site(site, &of_this_thread()->lines_));
        };
    }
    ~Scope() override { close(); }

    static Scope* of_this_thread() noexcept { return static_cast<Scope*>(api::call_recorder); }

    void run(const api::PreparedOperation& call) override { add(call, false); }

    Work start(const api::PreparedOperation& call) override {
        const int id = add(call, true);
        const auto handle = std::make_shared<Operation>();
        handle->name = call->name;
        handle->group = call->group;
        handle->when_awaited = [open = std::weak_ptr<Scope*>(self_), id] {
            const auto scope = open.lock();
            if (!scope || *scope != of_this_thread())
                throw InvalidArgument(
                    "Work.wait: a graph has captured the call, and the capture has ended or is another thread's: "
                    "expected "
                    "wait() inside of it");
            (*scope)->wait_for(id);
        };
        return Work(handle);
    }

    [[noreturn]] void refuse(const char* call) override {
        throw InvalidArgument(fmt::format(
            "{}: a graph is being captured, which cannot hold this call: expected it outside of capture()", call));
    }

    void compute(const ConstTensorList& reads, const TensorList& writes, Views run, bool takes_views,
                 const ComputeOptions& options, const std::source_location& site) {
        if (!(options.cost_us >= 0 && options.cost_us <= cost_us_max))
            throw InvalidArgument(fmt::format("graph::compute: cost_us is {}: expected microseconds from 0 to {:g}",
                                              options.cost_us, cost_us_max));
        Draft draft;
        draft.node.kind = Kind::compute;
        draft.node.name = options.name;
        draft.node.cost_us = options.cost_us;
        draft.node.fixed = !takes_views;
        draft.node.rows = rows_of(reads, writes, takes_views, options);
        if (draft.node.rows > 0) draft.node.whole = options.whole;
        draft.node.site = text_of(site);
        for (const ConstTensorView& view : reads) draft.accesses.reads.push_back(bytes_of("reads", view));
        for (const TensorView& view : writes) draft.accesses.writes.push_back(bytes_of("writes", view));
        add(std::move(draft), {nullptr, std::move(run), takes_views, options.elementwise, reads, writes});
    }

    void temporary(const ConstTensorView& tensor) { temporaries_.push_back(bytes_of("tensor", tensor)); }

    void check_read(const ConstTensorView& tensor, std::string_view reader, std::string read_at) const {
        if (tensor.element_count() == 0) return;
        const auto [begin, end] = api::range_of(tensor);
        for (auto draft = drafts_.rbegin(); draft != drafts_.rend(); ++draft) {
            for (const Bytes& b : draft->accesses.writes) {
                if (b.bytes == 0 || b.at >= end || begin >= b.at + b.bytes) continue;
                const std::string text = fmt::format(
                    "{} reads {} at {}, but {} at {} writes it, which a graph has captured and nobody has run: "
                    "expected the read in a graph::compute step, or after a replay",
                    reader, tensor.to_string(), read_at,
                    draft->node.kind == Kind::compute ? draft->node.name : to_string(draft->node.kind),
                    draft->node.site);
                throw HostRead(text, std::move(read_at), draft->node.site);
            }
        }
    }

    Graph end() {
        TUTTI_ASSERT(calls_ != nullptr);
        close();
        while (!unwaited_.empty()) wait_for(unwaited_.front());
        TUTTI_ASSERT(unwaited_.empty());
        Graph graph;
        number_memory(graph);
        TUTTI_ASSERT(graph.buffers.size() == calls_->buffers.size());
        for (const Draft& d : drafts_) {
            Node node = d.node;
            if (!node.pieces.empty()) {
                for (const Bytes& b : d.accesses.reads) node.pieces.front().reads.push_back(range_of(b));
                for (const Bytes& b : d.accesses.writes) node.pieces.front().writes.push_back(range_of(b));
            }
            node.opaque = d.accesses.opaque;
            graph.nodes.push_back(std::move(node));
        }
        for (const Bytes& b : temporaries_) add_temporary(graph, b);
        for (const auto& group : groups_) graph.groups.push_back(info_of(group));
        TUTTI_ASSERT(graph.nodes.size() == drafts_.size() && graph.groups.size() == groups_.size());
        graph.calls = std::move(calls_);
        return graph;
    }

 private:
    void close() noexcept {
        if (api::call_recorder != this) return;
        api::call_recorder = nullptr;
        before_host_read = nullptr;
        --api::open_scopes;
    }

    static Bytes bytes_of(const char* argument, const ConstTensorView& view) {
        if (!view.contiguous() || view.device().type != Device::Type::cpu) {
            throw InvalidArgument(
                fmt::format("graph::compute: {} has {}{}: expected a tensor in one piece in host memory", argument,
                            view.to_string(), view.contiguous() ? " on a device" : " with gaps"));
        }
        return {static_cast<const std::byte*>(view.data()), view.byte_count()};
    }

    // Of a step that may run in chunks; 0: of the others, and where there is nothing to cut.
    static std::uint64_t rows_of(const ConstTensorList& reads, const TensorList& writes, bool takes_views,
                                 const ComputeOptions& options) {
        if (!options.splittable && !options.elementwise) {
            if (options.whole.empty()) return 0;
            throw InvalidArgument(
                fmt::format("graph::compute: \"{}\" lists whole reads: expected splittable or elementwise with them",
                            options.name));
        }
        const char* const unit = options.elementwise ? "elements" : "rows";
        const auto refuse = [&](const std::string& what) {
            throw InvalidArgument(fmt::format("graph::compute: \"{}\" may run in chunks, but {}", options.name, what));
        };
        if (!takes_views) refuse("its function takes nothing: expected one that takes the chunks' views");
        for (const std::uint32_t read : options.whole) {
            if (read >= reads.size()) refuse(fmt::format("whole lists {}: expected below {}", read, reads.size()));
        }
        std::optional<std::int64_t> rows;
        bool cuts_a_read = false;
        const auto look = [&](const char* list, std::size_t i, const ConstTensorView& view) {
            if (!options.elementwise && view.shape().size() == 0)
                refuse(fmt::format("{}[{}] has no dimension: expected {}", list, i, unit));
            const std::int64_t its = options.elementwise ? view.element_count() : view.shape()[0];
            if (rows && *rows != its)
                refuse(fmt::format("{}[{}] is {} with {} {}: expected {} as of the others", list, i, view.to_string(),
                                   its, unit, *rows));
            rows = its;
        };
        for (std::size_t i = 0; i < reads.size(); ++i) {
            if (std::ranges::find(options.whole, i) != options.whole.end()) continue;
            look("reads", i, reads[i]);
            cuts_a_read = true;
        }
        for (std::size_t i = 0; i < writes.size(); ++i) look("writes", i, writes[i]);
        if (!cuts_a_read) refuse(fmt::format("no read would be cut: expected one with {}", unit));
        const auto empty = [](const auto& view) { return view.byte_count() == 0; };
        const bool cuts_nothing = std::ranges::any_of(writes, empty) || std::ranges::any_of(reads, empty);
        return cuts_nothing ? 0 : static_cast<std::uint64_t>(*rows);
    }

    int add(Draft draft, CapturedCall call) {
        TUTTI_ASSERT(draft.node.pieces.size() == 1);
        const int id = static_cast<int>(drafts_.size());
        draft.node.id = id;
        draft.node.pieces.front().call = static_cast<int>(calls_->calls.size());
        calls_->calls.push_back(std::move(call));
        drafts_.push_back(std::move(draft));
        TUTTI_ASSERT(static_cast<std::size_t>(id) + 1 == drafts_.size());
        return id;
    }

    int add(const api::PreparedOperation& call, bool asynchronous) {
        if (call->device.type != Device::Type::cpu)
            throw InvalidArgument(
                fmt::format("{}: a graph is being captured, and a tensor is on {}: expected host memory", call->name,
                            tutti::to_string(call->device)));
        Draft draft;
        Node& node = draft.node;
        node.asynchronous = asynchronous;
        node.site = record::describe_call_site(record::current_call_site, &lines_);
        node.group = index_of(tutti::detail::group_of(*call).shared_from_this());
        draft.accesses = accesses_of(*call);
        // Only the captured call has the operator of its caller: no pass makes another call of it.
        if (call->is_collective && call->call.user != nullptr) draft.accesses.opaque = true;
        node.pieces.front().fingerprint = call->is_collective ? call->call.fingerprint : call->transfer.fingerprint;
        if (call->is_collective)
            describe_collective(node, *call);
        else
            describe_message(node, *call);
        const int id = add(std::move(draft), {call, {}, false, false, {}, {}});
        if (asynchronous) unwaited_.push_back(id);
        return id;
    }

    static void describe_collective(Node& node, const Operation& call) {
        TUTTI_ASSERT(call.is_collective);
        node.kind = static_cast<Kind>(call.call.collective);
        node.dtype = call.outputs.empty() ? call.call.dtype : call.outputs.front().dtype();
        node.op = call.call.divisor > 1 ? ReduceOp::Kind::avg : call.call.op;
        if (traits_of(node.kind).is_rooted()) node.root = call.call.root;
    }
    static void describe_message(Node& node, const Operation& call) {
        TUTTI_ASSERT(!call.is_collective && !call.outputs.empty());
        if (call.transfer.peer < 0) {
            throw InvalidArgument(fmt::format(
                "{}: a graph is being captured, and no source is named: expected src or group_src", call.name));
        }
        node.kind = call.is_receive ? Kind::receive : Kind::send;
        node.dtype = call.outputs.front().dtype();
        node.peer = call.transfer.peer;
        node.tag = static_cast<int>(tutti::detail::Channel::number(call.transfer.channel));
    }

    int index_of(const std::shared_ptr<api::Group>& group) {
        const auto found = std::ranges::find(groups_, group);
        if (found != groups_.end()) return static_cast<int>(found - groups_.begin());
        groups_.push_back(group);
        return static_cast<int>(groups_.size()) - 1;
    }

    static GroupInfo info_of(const std::shared_ptr<api::Group>& group) {
        TUTTI_ASSERT(group != nullptr);
        constexpr std::uint64_t few = 8, many = 4 << 20;
        constexpr double call_us = 2;  // of the program, beside what the ranks exchange
        const ProcessGroup handle(group);
        const double latency = handle.predicted_us("all_reduce", few);
        const double byte = std::max(handle.predicted_us("all_reduce", many) - latency, 1e-3) / (many - few);
        return {group->name(), handle.ranks(), group->rank(), group->determinism(), latency + call_us, byte};
    }

    void wait_for(int id) {
        TUTTI_ASSERT(id >= 0 && static_cast<std::size_t>(id) < drafts_.size());
        if (std::erase(unwaited_, id) == 0) return;
        Draft draft;
        draft.node.kind = Kind::wait;
        draft.node.id = static_cast<int>(drafts_.size());
        draft.node.of = id;
        draft.node.pieces.clear();
        draft.node.site = drafts_[static_cast<std::size_t>(id)].node.site;
        drafts_.push_back(std::move(draft));
    }

    // Overlapping memory is one buffer; buffers are numbered in the order of their first use.
    void number_memory(Graph& graph) {
        for (const Draft& d : drafts_) {
            for (const auto* list : {&d.accesses.reads, &d.accesses.writes}) {
                const std::byte* end = nullptr;  // of the block before: blocks that adjoin are one tensor
                for (const Bytes& b : *list) {
                    if (b.bytes == 0) continue;
                    if (b.at == end)
                        stretches_.back().end += b.bytes;
                    else
                        stretches_.push_back({b.at, b.at + b.bytes, unnumbered});
                    end = b.at + b.bytes;
                }
            }
        }
        std::ranges::sort(stretches_, {}, &Stretch::begin);
        std::vector<Stretch> merged;
        for (const Stretch& s : stretches_) {
            if (!merged.empty() && s.begin < merged.back().end)
                merged.back().end = std::max(merged.back().end, s.end);
            else
                merged.push_back(s);
        }
        stretches_ = std::move(merged);
        for (const Draft& d : drafts_) {
            for (const auto* list : {&d.accesses.reads, &d.accesses.writes}) {
                for (const Bytes& b : *list) {
                    if (b.bytes == 0 || stretch_of(b.at)->number != unnumbered) continue;
                    Stretch& s = *stretch_of(b.at);
                    s.number = static_cast<std::uint32_t>(graph.buffers.size());
                    graph.buffers.push_back(static_cast<std::uint64_t>(s.end - s.begin));
                    calls_->buffers.push_back(const_cast<std::byte*>(s.begin));
                }
            }
        }
    }
    static constexpr std::uint32_t unnumbered = ~std::uint32_t{0};

    std::vector<Stretch>::iterator stretch_of(const std::byte* at) {
        return std::prev(std::ranges::upper_bound(stretches_, at, {}, &Stretch::begin));
    }
    Range range_of(const Bytes& b) {
        if (b.bytes == 0) return {};
        const Stretch& s = *stretch_of(b.at);
        return {s.number, static_cast<std::uint64_t>(b.at - s.begin), b.bytes};
    }
    void add_temporary(Graph& graph, const Bytes& b) {
        for (const Stretch& s : stretches_) {
            const std::byte *begin = std::max(s.begin, b.at), *end = std::min(s.end, b.at + b.bytes);
            if (begin < end)
                graph.temporaries.push_back(
                    {s.number, static_cast<std::uint64_t>(begin - s.begin), static_cast<std::uint64_t>(end - begin)});
        }
    }

    std::shared_ptr<Scope*> self_ = std::make_shared<Scope*>(this);
    std::shared_ptr<CapturedCalls> calls_ = std::make_shared<CapturedCalls>();
    record::SourceLines lines_{std::chrono::milliseconds(300)};
    std::vector<Draft> drafts_;
    std::vector<std::shared_ptr<api::Group>> groups_;
    std::vector<Bytes> temporaries_;
    std::vector<int> unwaited_;  ///< ids
    std::vector<Stretch> stretches_;
};

Capture::Capture() : scope_(std::make_unique<Scope>()) {}
Capture::~Capture() = default;
Graph Capture::end() {
    return scope_->end();
}

void capture_compute(const ConstTensorList& reads, const TensorList& writes, Views run, bool takes_views,
                     const ComputeOptions& options, const std::source_location& site) {
    Scope* const scope = Scope::of_this_thread();
    if (scope == nullptr) return run(reads, writes);
    scope->compute(reads, writes, std::move(run), takes_views, options, site);
}

}  // namespace detail

bool is_capturing() noexcept {
    return detail::Scope::of_this_thread() != nullptr;
}

void temporary(ConstTensorView tensor) {
    if (detail::Scope* const scope = detail::Scope::of_this_thread())
        scope->temporary(tensor);
    else
        throw InvalidArgument("graph::temporary: this thread captures nothing: expected it inside of capture()");
}

void check_host_read(ConstTensorView tensor, std::string_view reader, const std::source_location& site) {
    if (const detail::Scope* const scope = detail::Scope::of_this_thread())
        scope->check_read(tensor, reader, detail::text_of(site));
}

}  // namespace tutti::graph
