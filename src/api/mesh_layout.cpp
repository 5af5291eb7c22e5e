#include "api/mesh_layout.hpp"

#include "core/assert.hpp"

#include <algorithm>

namespace tutti::detail {
namespace {

bool has(const MeshLayout::Dims& dims, std::size_t dim) {
    return std::ranges::find(dims, dim) != dims.end();
}

}  // namespace

MeshLayout::MeshLayout(RankArray mesh, int rank) : mesh_(std::move(mesh)) {
    const std::vector<int>& shape = mesh_.shape();
    strides_.assign(shape.size(), 1);
    for (std::size_t d = shape.size(); d-- > 1;) strides_[d - 1] = strides_[d] * static_cast<std::size_t>(shape[d]);
    TUTTI_ASSERT(strides_.empty() || strides_.back() == 1);
    const auto found = std::ranges::find(mesh_.ranks(), rank);
    inside_ = found != mesh_.ranks().end();
    const auto at = inside_ ? static_cast<std::size_t>(found - mesh_.ranks().begin()) : 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
        place_.push_back(static_cast<int>(at / strides_[d] % static_cast<std::size_t>(shape[d])));
    TUTTI_ASSERT(place_.size() == shape.size());
}

int MeshLayout::size_along(const Dims& dims) const {
    TUTTI_ASSERT(dims.size() <= mesh_.shape().size());
    int size = 1;
    for (const std::size_t d : dims) size *= mesh_.shape()[d];
    return size;
}

int MeshLayout::index_along(const Dims& dims) const {
    int index = 0;
    for (const std::size_t d : dims) index = index * mesh_.shape()[d] + place_[d];
    TUTTI_ASSERT(index >= 0 && index < size_along(dims));
    return index;
}

std::vector<int> MeshLayout::ranks_along(const Dims& dims, const std::vector<int>& place) const {
    TUTTI_ASSERT(place.size() == strides_.size());
    std::size_t first = 0;
    for (std::size_t d = 0; d < place.size(); ++d) {
        if (!has(dims, d)) first += static_cast<std::size_t>(place[d]) * strides_[d];
    }
    std::vector<std::size_t> offsets{first};
    for (const std::size_t d : dims) {  // each dimension is inside of those before it
        const auto size = static_cast<std::size_t>(mesh_.shape()[d]);
        std::vector<std::size_t> next;
        next.reserve(offsets.size() * size);
        for (const std::size_t offset : offsets) {
            for (std::size_t i = 0; i < size; ++i) next.push_back(offset + i * strides_[d]);
        }
        offsets = std::move(next);
    }
    std::vector<int> ranks;
    ranks.reserve(offsets.size());
    for (const std::size_t offset : offsets) ranks.push_back(mesh_.ranks()[offset]);
    TUTTI_ASSERT(ranks.size() == static_cast<std::size_t>(size_along(dims)));
    return ranks;
}

MeshLayout::Lines MeshLayout::lines_along(const Dims& dims) const {
    Dims others;
    for (std::size_t d = 0; d < place_.size(); ++d) {
        if (!has(dims, d)) others.push_back(d);
    }
    Lines lines;
    std::vector<int> place(place_.size(), 0);
    for (bool more = true; more;) {
        if (std::ranges::all_of(others, [&](std::size_t d) { return place[d] == place_[d]; }))
            lines.own = lines.ranks.size();
        lines.ranks.push_back(ranks_along(dims, place));
        more = false;
        for (auto d = others.rbegin(); d != others.rend() && !more; ++d) {
            more = ++place[*d] < mesh_.shape()[*d];
            if (!more) place[*d] = 0;
        }
    }
    TUTTI_ASSERT(lines.own < lines.ranks.size() &&
                 lines.ranks.size() * static_cast<std::size_t>(size_along(dims)) == mesh_.ranks().size());
    return lines;
}

}  // namespace tutti::detail
