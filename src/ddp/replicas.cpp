#include "ddp/replicas.hpp"

#include "api/host_bytes.hpp"
#include "core/assert.hpp"
#include "core/hash.hpp"
#include "group/group.hpp"

#include <tutti/coalescing.hpp>
#include <tutti/error.hpp>
#include <tutti/object_collectives.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>

namespace tutti::ddp {

// All that ranks compare, in words.
struct Description {
    std::string fault;
    std::vector<std::string> parameters, buffers, options;
};
TUTTI_OBJECT(Description, fault, parameters, buffers, options);

namespace {

// Ranks may use devices with other indices, but not others of another kind.
std::string in_words(const TensorView& view) {
    if (view.device().type == Device::Type::cpu) return view.to_string();
    return fmt::format("{} on {}", view.to_string(), name_of(view.device().type));
}

Description describe(const std::vector<NamedParameter>& parameters, const DistributedDataParallelOptions& o,
                     const std::string& fault) {
    Description all;
    all.fault = fault;
    for (const NamedParameter& p : parameters)
        all.parameters.push_back(fmt::format("\"{}\" {}", p.name, in_words(p.tensor)));
    for (const NamedBuffer& b : o.buffers) all.buffers.push_back(fmt::format("\"{}\" {}", b.name, in_words(b.tensor)));
    all.options = {fmt::format("broadcast_buffers = {}", o.broadcast_buffers),
                   fmt::format("bucket_cap_bytes = {}", o.bucket_cap_bytes),
                   fmt::format("find_unused_parameters = {}", o.find_unused_parameters)};
    return all;
}

std::uint64_t digest(const Description& all) {
    std::uint64_t hash = fnv1a_basis;
    const auto add = [&](const std::string& text) { hash = fnv1a(text + '\n', hash); };
    for (const auto* list : {&all.parameters, &all.buffers, &all.options}) {
        add(std::to_string(list->size()));
        for (const std::string& text : *list) add(text);
    }
    return hash;
}

// The lists of the first rank and of another one, which have these numbers in the world.
struct Pair {
    int first, other;
};

// The first thing in which two lists differ: "parameter 1 is "a" float32[2] on rank 0, but ...". Empty: none.
std::string difference(const char* what, const std::vector<std::string>& first, const std::vector<std::string>& other,
                       Pair ranks) {
    const auto [mine, theirs] = std::ranges::mismatch(first, other);
    const auto index = mine - first.begin();
    if (mine != first.end() && theirs != other.end())
        return fmt::format("{} {} is {} on rank {}, but {} on rank {}", what, index, *mine, ranks.first, *theirs,
                           ranks.other);
    if (mine != first.end())
        return fmt::format("{} {} is {} on rank {}, but rank {} has only {}", what, index, *mine, ranks.first,
                           ranks.other, other.size());
    if (theirs != other.end())
        return fmt::format("{} {} is {} on rank {}, but rank {} has only {}", what, index, *theirs, ranks.other,
                           ranks.first, first.size());
    return {};
}

std::string difference(const Description& first, const Description& other, Pair ranks) {
    std::string text = difference("parameter", first.parameters, other.parameters, ranks);
    if (text.empty()) text = difference("buffer", first.buffers, other.buffers, ranks);
    if (text.empty()) text = difference("option", first.options, other.options, ranks);
    return text;
}

std::string fault_of_gradient(const NamedParameter& p, const DistributedDataParallelOptions& o) {
    if (o.gradient_as_bucket_view) {
        if (!p.gradient) return {};
        return "it has a gradient, but gradient_as_bucket_view is true: expected none, as gradient() tells the place";
    }
    if (!p.gradient) {
        if (!o.find_unused_parameters) return {};
        return "it has no gradient: expected one, for what other ranks say about a parameter that is unused here";
    }
    if (p.gradient->dtype() != p.tensor.dtype() || p.gradient->shape() != p.tensor.shape()) {
        return fmt::format("its gradient is {}: expected {}, as the parameter", p.gradient->to_string(),
                           p.tensor.to_string());
    }
    return {};
}

bool is_on_device(const TensorView& view) {
    return view.device().type != Device::Type::cpu;
}

bool serves(const DistributedDataParallelOptions& o, const TensorView& view) {
    return o.group.impl()->serves(view.device().type);
}
std::string fault_of_serving(const DistributedDataParallelOptions& o, const std::string& what, const TensorView& view) {
    return fmt::format("{} is on {}: no backend of group \"{}\" serves it", what, to_string(view.device()),
                       o.group.name());
}

// tutti has no memory on devices, and writes none there: gradients are averaged where they are.
std::string fault_of_device(const NamedParameter& p, const DistributedDataParallelOptions& o) {
    const std::string device = to_string(p.tensor.device());
    if (!serves(o, p.tensor)) return fault_of_serving(o, "it", p.tensor);
    if (p.gradient && p.gradient->device() != p.tensor.device())
        return fmt::format("its gradient is on {}: expected {}, as the parameter", to_string(p.gradient->device()),
                           device);
    if (!is_on_device(p.tensor)) return {};
    if (o.gradient_as_bucket_view)
        return fmt::format(
            "it is on {}, but gradient_as_bucket_view is true: expected host memory, in which buckets are", device);
    if (o.find_unused_parameters)
        return fmt::format(
            "it is on {}, but find_unused_parameters is true: expected host memory, as an unused "
            "parameter counts as zeros, which are to be written",
            device);
    for (const TensorView* view : {&p.tensor, p.gradient ? &*p.gradient : nullptr}) {
        if (view != nullptr && !view->contiguous())
            return fmt::format("it, or its gradient, is on {} and not in one piece: expected contiguous memory",
                               device);
    }
    return {};
}

std::string fault_of(const NamedParameter& p, const DistributedDataParallelOptions& o) {
    const DType dtype = p.tensor.dtype();
    if (!is_floating_point(dtype) && !is_complex(dtype))
        return fmt::format("it is {}: expected a floating-point or complex dtype", p.tensor.to_string());
    const std::string fault = fault_of_device(p, o);
    return fault.empty() ? fault_of_gradient(p, o) : fault;
}

std::string fault_of_devices(const DistributedDataParallelOptions& o) {
    if (o.device_ids.size() > 1) {
        return fmt::format("device_ids has {} entries: expected at most one, the device of this process",
                           o.device_ids.size());
    }
    for (const int device : o.device_ids) {
        if (device < 0) return fmt::format("device_ids has {}: expected zero or more", device);
        if (o.output_device && *o.output_device != device)
            return fmt::format("output_device is {}: expected {}, as device_ids", *o.output_device, device);
    }
    return {};
}

// Memory that is written twice would hold neither value. Looks at tensors in one piece; the bytes between the elements
// of others are not theirs.
std::string fault_of_memory(const std::vector<NamedParameter>& parameters, const DistributedDataParallelOptions& o) {
    struct Piece {
        const std::byte* begin;
        const std::byte* end;
        std::string name;
    };
    std::vector<Piece> pieces;
    const auto add = [&](const char* what, const std::string& name, const TensorView& view) {
        const auto* data = static_cast<const std::byte*>(view.data());
        if (view.contiguous() && view.element_count() > 0)
            pieces.push_back({data, data + view.byte_count(), fmt::format("{} \"{}\"", what, name)});
    };
    for (const NamedParameter& p : parameters) {
        add("parameter", p.name, p.tensor);
        if (p.gradient) add("the gradient of", p.name, *p.gradient);
    }
    for (const NamedBuffer& b : o.buffers) add("buffer", b.name, b.tensor);
    std::ranges::stable_sort(pieces, {}, &Piece::begin);
    for (std::size_t i = 1; i < pieces.size(); ++i) {
        if (pieces[i].begin >= pieces[i - 1].end) continue;
        return fmt::format("{} and {} are the same memory: expected tensors that do not overlap", pieces[i - 1].name,
                           pieces[i].name);
    }
    return {};
}

}  // namespace

std::string title(const DistributedDataParallelOptions& o, const char* method) {
    std::string text = "DistributedDataParallel";
    if (method != nullptr) text += fmt::format(".{}", method);
    if (!o.module_name.empty()) text += fmt::format(" (module {})", o.module_name);
    return text;
}

std::string fault_of(const std::vector<NamedParameter>& parameters, const DistributedDataParallelOptions& o) {
    const std::string begin = title(o) + ": ";
    if (parameters.empty()) return begin + "parameters is empty: expected at least one parameter";
    std::set<std::string> names;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const NamedParameter& p = parameters[i];
        if (p.name.empty()) return fmt::format("{}parameter {} has an empty name: expected a name", begin, i);
        if (!names.insert(p.name).second)
            return fmt::format("{}parameter {} is called \"{}\", as another one: expected a name for each", begin, i,
                               p.name);
        const std::string fault = fault_of(p, o);
        if (!fault.empty()) return fmt::format("{}parameter {} (\"{}\"): {}", begin, i, p.name, fault);
    }
    for (const NamedBuffer& b : o.buffers) {
        if (!serves(o, b.tensor)) return begin + fault_of_serving(o, fmt::format("buffer \"{}\"", b.name), b.tensor);
        if (is_on_device(b.tensor) && !b.tensor.contiguous())
            return fmt::format("{}buffer \"{}\" is on {} and not in one piece: expected contiguous memory", begin,
                               b.name, to_string(b.tensor.device()));
    }
    std::string fault = fault_of_devices(o);
    if (fault.empty()) fault = fault_of_memory(parameters, o);
    return fault.empty() ? fault : begin + fault;
}

void compare_replicas(const ProcessGroup& group, const std::vector<NamedParameter>& parameters,
                      const DistributedDataParallelOptions& o, const std::string& fault) {
    TUTTI_ASSERT(static_cast<bool>(group));
    const Description mine = describe(parameters, o, fault);
    constexpr std::uint64_t faulty = 0;
    const std::vector<std::uint64_t> word{fault.empty() ? digest(mine) : faulty};
    std::vector<std::uint64_t> words(static_cast<std::size_t>(group.size()));
    // As a Work, so that no scope of Coalescing collects it.
    const api::HostBytes own;
    async::all_gather_into_tensor(words, word, {.group = group}).wait();
    const bool equal = std::ranges::all_of(words, [&](std::uint64_t w) { return w == words[0] && w != faulty; });
    if (equal) return;
    const std::vector<Description> all = all_gather_object(mine, {.group = group});
    if (!fault.empty()) throw InvalidArgument(fault);
    const auto in_world = [&group](std::size_t rank) { return group.global_rank(static_cast<int>(rank)); };
    const auto context = [&](std::size_t rank) {
        return ErrorContext{.operation = "DistributedDataParallel",
                            .group = group.name(),
                            .rank = group.global_rank(group.rank()),
                            .peer = in_world(rank)};
    };
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].fault.empty()) continue;
        throw CollectiveMismatch(
            fmt::format("{}: rank {} cannot take part: {}", title(o), in_world(rank), all[rank].fault), context(rank));
    }
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const std::string text = difference(all[0], all[rank], {in_world(0), in_world(rank)});
        if (text.empty()) continue;
        throw CollectiveMismatch(
            fmt::format("{}: {}: expected the same model and options on all ranks", title(o), text), context(rank));
    }
}

void broadcast_from_first(const ProcessGroup& group, const std::vector<TensorView>& tensors) {
    TUTTI_ASSERT(static_cast<bool>(group));
    if (tensors.empty()) return;
    Coalescing scope({.group = group});
    for (const TensorView& tensor : tensors) broadcast(tensor, {.group = group, .group_src = 0});
    scope.end().wait();
}

}  // namespace tutti::ddp
