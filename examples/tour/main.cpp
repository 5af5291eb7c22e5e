// A tour through every collective and point to point: each rank shows what it had and what it got, and checks it.
//
//   tutti run -n 4 build/examples/tour
#include "tour.hpp"

int main() {
    tutti::init_process_group();
    for (const auto station :
         {tour::all_reduce, tour::reduce_scatter, tour::all_gather, tour::broadcast, tour::reduce, tour::gather,
          tour::scatter, tour::all_to_all, tour::into_tensors, tour::barriers, tour::point_to_point}) {
        station();
    }
    const tutti::Tensor mistakes = tour::scalar(tour::Station::mistakes);
    tutti::all_reduce(mistakes.view());
    const std::int64_t all = mistakes.span<std::int64_t>()[0];
    if (tutti::get_rank() == 0) {
        std::printf(all == 0 ? "tour: every result is as expected\n" : "tour: %d results are wrong\n",
                    static_cast<int>(all));
    }
    tutti::destroy_process_group();
    // Its own mistakes count even if the sum of all, which the tour checks, should be wrong.
    return all == 0 && tour::Station::mistakes == 0 ? 0 : 1;
}
