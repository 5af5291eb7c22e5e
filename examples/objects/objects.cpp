// Objects: values of one's own types, and of no type that was known before, between ranks. No code travels.
//
//   tutti run -n 4 build/examples/objects
#include <tutti/tutti.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

struct Shard {
    std::string path;
    std::int64_t rows = 0;
};
TUTTI_OBJECT(Shard, path, rows);

int main() {
    tutti::init_process_group();
    const int rank = tutti::get_rank(), size = tutti::get_world_size();

    // Everyone tells what it has read, and knows where its rows begin in the whole.
    const std::vector<Shard> all = tutti::all_gather_object(Shard{"part-" + std::to_string(rank), 100 + rank});
    std::int64_t before = 0;
    for (int r = 0; r < rank; ++r) before += all[static_cast<std::size_t>(r)].rows;
    bool good = all.size() == static_cast<std::size_t>(size) && all.back().path == "part-" + std::to_string(size - 1) &&
                before == 100 * rank + rank * (rank - 1) / 2;

    // Settings that rank 0 has read somewhere.
    tutti::Object settings;
    if (rank == 0) settings = tutti::Object{{"lr", 0.1}, {"layers", {64, 10}}};
    settings = tutti::broadcast_object(settings, {.src = 0});
    good &= settings.at("lr").as_double() == 0.1 && settings.at("layers").at(1).as_int64() == 10;

    // What does not fit says which field, and the world goes on.
    try {
        (void)tutti::Object{{"path", "part-9"}, {"rows", "many"}}.get<Shard>();
        good = false;
    } catch (const tutti::DistError& error) {
        if (rank == 0) std::printf("refused: %s\n", error.what());
    }

    std::printf("rank %d: rows %lld to %lld, learning rate %g\n", rank, static_cast<long long>(before),
                static_cast<long long>(before + all[static_cast<std::size_t>(rank)].rows - 1),
                settings.at("lr").as_double());
    tutti::destroy_process_group();
    return good ? 0 : 1;
}
