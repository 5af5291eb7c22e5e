// The heat equation in three dimensions, on blocks whose halos ranks exchange while they compute the cells inside. The
// result is compared, bit for bit, with the same steps on the whole array.
//
//   tutti run -n 4 build/examples/heat
#include <tutti/tutti.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

using Index = std::array<std::int64_t, 3>;

constexpr Index whole{24, 20,
                      28};  // cells; hot before the first plane, cold behind the last one; a torus along 1 and 2
constexpr int steps = 20;

/// A part of the array, with a halo of one cell on each side.
struct Block {
    Index begin, size;
    std::vector<double> cells;

    Block(Index from, Index to) : begin(from), size{to[0] - from[0], to[1] - from[1], to[2] - from[2]} {
        cells.assign(static_cast<std::size_t>((size[0] + 2) * (size[1] + 2) * (size[2] + 2)), 0.0);
        if (begin[0] > 0) return;
        std::fill_n(cells.begin(), (size[1] + 2) * (size[2] + 2), 1.0);  // where it is hot
    }
    double& at(std::int64_t x, std::int64_t y, std::int64_t z) {
        return cells[static_cast<std::size_t>((x * (size[1] + 2) + y) * (size[2] + 2) + z)];
    }
    tutti::TensorView view() { return tutti::view(cells.data(), {size[0] + 2, size[1] + 2, size[2] + 2}); }
};

// One step of the cells in [from, to); inner cells begin at 1.
void step(Block& now, Block& next, const Index& from, const Index& to) {
    for (std::int64_t x = from[0]; x < to[0]; ++x) {
        for (std::int64_t y = from[1]; y < to[1]; ++y) {
            for (std::int64_t z = from[2]; z < to[2]; ++z) {
                const double around = now.at(x - 1, y, z) + now.at(x + 1, y, z) + now.at(x, y - 1, z) +
                                      now.at(x, y + 1, z) + now.at(x, y, z - 1) + now.at(x, y, z + 1);
                next.at(x, y, z) = now.at(x, y, z) + 0.125 * (around - 6 * now.at(x, y, z));
            }
        }
    }
}

// The inner cells that touch a halo.
void step_faces(Block& now, Block& next) {
    for (std::size_t d = 0; d < 3; ++d) {
        Index from{1, 1, 1}, to{now.size[0] + 1, now.size[1] + 1, now.size[2] + 1};
        to[d] = 2;
        step(now, next, from, to);
        from[d] = now.size[d];
        to[d] = now.size[d] + 1;
        step(now, next, from, to);
    }
}

// All of it on one rank, whose halos along the torus are copies.
Block serial() {
    Block now({0, 0, 0}, whole), next = now;
    for (int i = 0; i < steps; ++i, std::swap(now, next)) {
        for (std::int64_t x = 0; x < whole[0] + 2; ++x) {
            for (std::int64_t z = 0; z < whole[2] + 2; ++z) {
                now.at(x, 0, z) = now.at(x, whole[1], z);
                now.at(x, whole[1] + 1, z) = now.at(x, 1, z);
            }
            for (std::int64_t y = 0; y < whole[1] + 2; ++y) {
                now.at(x, y, 0) = now.at(x, y, whole[2]);
                now.at(x, y, whole[2] + 1) = now.at(x, y, 1);
            }
        }
        step(now, next, {1, 1, 1}, {whole[0] + 1, whole[1] + 1, whole[2] + 1});
    }
    return now;
}

}  // namespace

int main() {
    tutti::init_process_group();
    const std::vector<int> shape = tutti::balanced_mesh_shape(tutti::get_world_size(), {0, 0, 0});
    const auto mesh = tutti::init_device_mesh("cpu", shape);
    const std::vector<int> coordinate = mesh.get_coordinate().value();
    Index begin{}, end{};
    for (std::size_t d = 0; d < 3; ++d) {
        begin[d] = whole[d] * coordinate[d] / shape[d];
        end[d] = whole[d] * (coordinate[d] + 1) / shape[d];
    }

    // Two blocks take turns; each has a plan of its exchange.
    Block now(begin, end), next = now;
    const std::vector<tutti::Halo> halos{{.dim = 0}, {.dim = 1, .periodic = true}, {.dim = 2, .periodic = true}};
    tutti::Plan exchange = tutti::plan::exchange_halos(now.view(), mesh, halos);
    tutti::Plan other = tutti::plan::exchange_halos(next.view(), mesh, halos);
    for (int i = 0; i < steps; ++i) {
        tutti::Work work = exchange.start();
        step(now, next, {2, 2, 2}, now.size);  // needs no halo
        work.wait();
        step_faces(now, next);
        std::swap(now, next);
        std::swap(exchange, other);
    }

    Block expected = serial();
    int wrong = 0;
    for (std::int64_t x = 1; x <= now.size[0]; ++x) {
        for (std::int64_t y = 1; y <= now.size[1]; ++y) {
            for (std::int64_t z = 1; z <= now.size[2]; ++z)
                wrong += now.at(x, y, z) != expected.at(begin[0] + x, begin[1] + y, begin[2] + z) ? 1 : 0;
        }
    }
    std::printf("rank %d at (%d, %d, %d) of a %d x %d x %d mesh: its hottest cell has %.6f, %d cells differ\n",
                tutti::get_rank(), coordinate[0], coordinate[1], coordinate[2], shape[0], shape[1], shape[2],
                *std::max_element(now.cells.begin(), now.cells.end()), wrong);
    tutti::destroy_process_group();
    return wrong == 0 ? 0 : 1;
}
