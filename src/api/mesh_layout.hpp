// MeshLayout: the ranks along the dimensions of an array, from the point of view of one rank. Pure arithmetic.
#pragma once

#include <tutti/device_mesh.hpp>

#include <cstddef>
#include <vector>

namespace tutti::detail {

class MeshLayout {
 public:
    using Dims = std::vector<std::size_t>;  ///< numbers of dimensions; the last varies fastest as ranks are enumerated

    /// `mesh` has each rank at most once; `rank` is the point of view ("this rank").
    MeshLayout(RankArray mesh, int rank);

    const RankArray& mesh() const noexcept { return mesh_; }
    /// Whether this rank is in the mesh.
    bool inside() const noexcept { return inside_; }
    /// The number of ranks along the dimensions.
    int size_along(const Dims& dims) const;
    /// This rank's index among the ranks along the dimensions; 0 if it is not in the mesh.
    int index_along(const Dims& dims) const;
    /// The ranks along the dimensions, at this rank's coordinates in all other dimensions (0 if it is not in the mesh).
    std::vector<int> ranks_along(const Dims& dims) const { return ranks_along(dims, place_); }

    struct Lines {
        std::vector<std::vector<int>> ranks;
        std::size_t own = 0;  ///< the index of this rank's line
    };
    /// Divides the mesh into lines along the dimensions: one for each position in the other dimensions, in row-major
    /// order.
    Lines lines_along(const Dims& dims) const;

 private:
    std::vector<int> ranks_along(const Dims& dims, const std::vector<int>& place) const;

    RankArray mesh_;
    std::vector<std::size_t> strides_;  // in elements, by dimension
    bool inside_ = false;
    std::vector<int> place_;  // coordinates of this rank; 0 if it is not in the mesh
};

}  // namespace tutti::detail
