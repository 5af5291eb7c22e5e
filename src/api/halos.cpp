// Halos: which part of a tensor goes to which neighbour.
#include "api/halos.hpp"

#include "api/arguments.hpp"
#include "api/coalescing_internal.hpp"
#include "core/assert.hpp"
#include "operation/channel.hpp"
#include "operation/fingerprint.hpp"
#include "record/public_call.hpp"

#include <algorithm>

namespace tutti::api {
namespace {

constexpr const char* name = "exchange_halos";

// `count` cells along a dimension.
TensorView part_of(const TensorView& view, int dim, std::int64_t from, std::int64_t count) {
    std::vector<std::int64_t> shape(view.shape().begin(), view.shape().end()), strides(shape.size(), 1);
    const auto d = static_cast<std::size_t>(dim);
    TUTTI_ASSERT(d < shape.size() && from >= 0 && count >= 0 && from + count <= shape[d]);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    if (!view.contiguous()) strides.assign(view.strides().begin(), view.strides().end());
    auto* data = static_cast<std::byte*>(view.data());
    if (view.element_count() > 0) data += from * strides[d] * static_cast<std::int64_t>(size_of(view.dtype()));
    shape[d] = count;
    return TensorView(data, Extents(shape), view.dtype(), Extents(strides));
}

//  0      low     low+high        n-high-low   n-high      n
//  │ halo  │ first  │     inner      │  last    │  halo   │
struct Faces {
    Faces(const TensorView& view, const LineHalo& h)
        : low_halo(part_of(view, h.dim, 0, h.width.low)),
          first(part_of(view, h.dim, h.width.low, h.width.high)),
          last(part_of(view, h.dim, size(view, h) - h.width.high - h.width.low, h.width.low)),
          high_halo(part_of(view, h.dim, size(view, h) - h.width.high, h.width.high)) {}
    static std::int64_t size(const TensorView& view, const LineHalo& h) {
        return view.shape()[static_cast<std::size_t>(h.dim)];
    }
    TensorView low_halo, first, last, high_halo;
};

// Empty faces travel too: otherwise ranks that pass different widths could wait for each other.
void add_messages(Exchange& exchange, const TensorView& view, const LineHalo& halo, std::uint64_t earlier) {
    using detail::Channel;
    using detail::OwnMessage;
    const Group& group = *halo.line;
    const Faces faces(view, halo);
    exchange.add_phase(halo.line);
    const int rank = group.rank(), size = group.size();
    if (size == 1) {
        if (!halo.periodic) return;
        exchange.copy(faces.low_halo, faces.last);
        exchange.copy(faces.high_halo, faces.first);
        return;
    }
    const group::NeighborTerms terms{.function = group::NeighborTerms::Function::exchange_halos,
                                     .dim = static_cast<std::uint64_t>(halo.dim),
                                     .low = static_cast<std::uint64_t>(halo.width.low),
                                     .high = static_cast<std::uint64_t>(halo.width.high),
                                     .earlier = earlier,
                                     .periodic = halo.periodic};
    const auto match = [&](int peer, OwnMessage way, const TensorView& face) {
        return Exchange::Match{group.ranks().global(peer), Channel::of_message(group.index(), way),
                               group::Fingerprint::pack(terms, face.dtype(), count_of(face))};
    };
    const bool has_low = halo.periodic || rank > 0, has_high = halo.periodic || rank + 1 < size;
    const int low = (rank + size - 1) % size, high = (rank + 1) % size;
    if (has_low) exchange.send(faces.first, match(low, OwnMessage::halo_down, faces.first));
    if (has_high) exchange.send(faces.last, match(high, OwnMessage::halo_up, faces.last));
    // In the order in which neighbours send: a message that comes before its receive is copied once more.
    if (has_high) exchange.receive(faces.high_halo, match(high, OwnMessage::halo_down, faces.high_halo));
    if (has_low) exchange.receive(faces.low_halo, match(low, OwnMessage::halo_up, faces.low_halo));
}

// All but their groups.
void check_halos(const TensorView& view, const std::vector<LineHalo>& halos) {
    if (halos.empty()) refuse("{}: the list of halos is empty: expected at least one", name);
    if (view.device().type != Device::Type::cpu)
        refuse("{}: view is on {}: expected host memory", name, to_string(view.device()));
    const auto dims = static_cast<int>(view.shape().size());
    for (auto halo = halos.begin(); halo != halos.end(); ++halo) {
        const auto [low, high] = std::pair(halo->width.low, halo->width.high);
        if (halo->dim < 0 || halo->dim >= dims)
            refuse("{}: dim {}: expected 0 to {}, a dimension of {}", name, halo->dim, dims - 1, view.to_string());
        if (std::any_of(halos.begin(), halo, [&](const LineHalo& other) { return other.dim == halo->dim; }))
            refuse("{}: dim {} is listed twice: expected each dimension once", name, halo->dim);
        if (low < 0 || high < 0) refuse("{}: widths {} and {}: expected zero or more", name, low, high);
        const std::int64_t size = view.shape()[static_cast<std::size_t>(halo->dim)], most = std::max(low, high);
        if (low > size || high > size - low || size - low - high < most) {
            refuse(
                "{}: view {} has {} cells along dimension {}: expected at least {}, for halos of {} and {} cells and "
                "{} inner ones, as many as the wider halo takes",
                name, view.to_string(), size, halo->dim, low + high + most, low, high, most);
        }
    }
}

std::shared_ptr<Exchange> make_halo_exchange(const TensorView& view, const std::vector<LineHalo>& halos,
                                             milliseconds timeout) {
    refuse_if_recorded(name);
    check_timeout(name, timeout);
    auto exchange = std::make_shared<Exchange>(name, timeout, TensorList{view});
    std::uint64_t earlier = 0;
    for (const LineHalo& halo : halos) {
        TUTTI_ASSERT(halo.line != nullptr);
        check_neighbor_group(name, *halo.line);
        add_messages(*exchange, view, halo, earlier);
        if (halo.dim < 64) earlier |= std::uint64_t{1} << halo.dim;
    }
    return exchange;
}

}  // namespace

void exchange_halos(const TensorView& view, const std::vector<LineHalo>& halos, milliseconds timeout) {
    const record::PublicCall public_call(name);
    check_halos(view, halos);
    make_halo_exchange(view, halos, timeout)->run();
}
Work start_halos(const TensorView& view, const std::vector<LineHalo>& halos, milliseconds timeout) {
    const record::PublicCall public_call(name);
    check_halos(view, halos);
    return make_halo_exchange(view, halos, timeout)->start();
}

}  // namespace tutti::api

namespace tutti {
namespace {

MeshDim dim_of(const DeviceMesh& mesh, const Halo& halo) {
    if (halo.mesh_dim.index() || halo.mesh_dim.name()) return halo.mesh_dim;
    return mesh.ndim() == 1 ? MeshDim() : MeshDim(halo.dim);
}

// Null: this rank is outside the mesh.
std::shared_ptr<api::Exchange> exchange_of(const TensorView& view, const DeviceMesh& mesh,
                                           const std::vector<Halo>& halos, const HaloOptions& options) {
    std::vector<api::LineHalo> lines;
    for (const Halo& halo : halos) lines.push_back({halo.dim, halo.width, halo.periodic, nullptr});
    api::check_halos(view, lines);
    for (const Halo& halo : halos) (void)mesh.size(dim_of(mesh, halo));  // there is such a dimension
    if (!mesh.get_coordinate()) return nullptr;
    for (std::size_t i = 0; i < halos.size(); ++i) {
        lines[i].line = mesh.get_group(dim_of(mesh, halos[i])).impl();
        TUTTI_ASSERT(lines[i].line->rank() == mesh.get_local_rank(dim_of(mesh, halos[i])));
    }
    return api::make_halo_exchange(view, lines, options.timeout);
}

}  // namespace

void exchange_halos(TensorView view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                    const HaloOptions& options) {
    const record::PublicCall public_call("exchange_halos");
    if (const auto exchange = exchange_of(view, mesh, halos, options)) return exchange->run();
    api::warn_of_outsider("exchange_halos");
}
Work async::exchange_halos(TensorView view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                           const HaloOptions& options) {
    const record::PublicCall public_call("exchange_halos");
    if (const auto exchange = exchange_of(view, mesh, halos, options)) return exchange->start();
    api::warn_of_outsider("exchange_halos");
    return {};
}
Plan plan::exchange_halos(TensorView view, const DeviceMesh& mesh, const std::vector<Halo>& halos,
                          const HaloOptions& options) {
    const record::PublicCall public_call("exchange_halos");
    if (auto exchange = exchange_of(view, mesh, halos, options)) return api::plan_of_exchange(std::move(exchange));
    api::refuse("exchange_halos: this rank is not in the mesh: expected a rank of the mesh, for a plan");
}

}  // namespace tutti
