// Ranks that call each kind of operation, and then make the mistake that the argument names: for what reads their
// records.
//
//   flight_program clean|sizes|types|splits|absent|message     with three ranks; a mistake ends in an error, which it
//   prints
#include <tutti/tutti.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

using tutti::Tensor;

Tensor some(std::int64_t count, tutti::DType dtype = tutti::float32) {
    return tutti::zeros(dtype, {count});
}
template <class List>
List views(const std::vector<Tensor>& tensors) {
    List list;
    for (const Tensor& tensor : tensors) list.push_back(tensor.view());
    return list;
}

void collectives(int rank, int size) {
    for (const std::int64_t count : {3, 100000}) tutti::all_reduce(some(count).view());
    tutti::broadcast(some(4, tutti::int64).view(), {.src = 1});
    tutti::reduce(some(4).view(), {.dst = size - 1});
    std::vector<Tensor> even, uneven, blocks;
    for (int r = 0; r < size; ++r) {
        even.push_back(some(2));
        uneven.push_back(some(r + 1));
        blocks.push_back(some(5));
    }
    tutti::all_gather(views<tutti::TensorList>(even), some(2).view());
    tutti::all_gather(views<tutti::TensorList>(uneven), some(rank + 1).view());
    tutti::reduce_scatter(some(5).view(), views<tutti::ConstTensorList>(blocks));
    tutti::gather(some(2).view(), rank == 0 ? views<tutti::TensorList>(even) : tutti::TensorList{}, {.dst = 0});
    tutti::scatter(some(2).view(), rank == 0 ? views<tutti::ConstTensorList>(even) : tutti::ConstTensorList{},
                   {.src = 0});
    const auto count = [](int from, int to) { return (from + 2 * to) % 5 + 1; };
    std::vector<std::int64_t> sent, received;
    std::int64_t all_sent = 0, all_received = 0;
    for (int r = 0; r < size; ++r) {
        all_sent += sent.emplace_back(count(rank, r));
        all_received += received.emplace_back(count(r, rank));
    }
    tutti::all_to_all_single(some(all_received).view(), some(all_sent).view(),
                             {.output_split_sizes = received, .input_split_sizes = sent});
    tutti::all_to_all_single(some(size).view(), some(size).view());
    tutti::barrier();
    (void)tutti::all_gather_object(std::string("an object"));
    const tutti::ProcessGroup pair = tutti::new_group({0, size - 1});
    if (rank == 0 || rank == size - 1) tutti::all_reduce(some(3).view(), {.group = pair});
}

void messages(int rank, int size) {
    for (const std::int64_t count : {1, 70000}) {
        const Tensor out = some(count);
        tutti::Work work = tutti::isend(out.view(), (rank + 1) % size);
        tutti::recv(some(count).view(), {.src = (rank + size - 1) % size});
        work.wait();
    }
    if (rank != 0) return tutti::send(some(3).view(), 0);
    for (int r = 1; r < size; ++r) tutti::recv(some(3).view());  // from any
}

void mistake(const std::string& name, int rank, int size) {
    const bool last = rank == size - 1;
    if (name == "clean") return;
    if (name == "sizes") return tutti::all_reduce(some(last ? 5 : 4).view());
    if (name == "splits") {  // rank 0 sends 3 elements to the last rank, which expects 1
        std::vector<std::int64_t> sent(static_cast<std::size_t>(size), 2), received = sent;
        if (rank == 0) sent.back() = 3;
        if (last) received.front() = 1;
        const std::int64_t more = rank == 0 ? 1 : 0, less = last ? 1 : 0;
        return tutti::all_to_all_single(some(2 * size - less).view(), some(2 * size + more).view(),
                                        {.output_split_sizes = received, .input_split_sizes = sent});
    }
    if (name == "types" && last) return tutti::broadcast(some(4).view(), {.src = 0});
    if (name == "types" || (name == "absent" && !last)) return tutti::all_reduce(some(4).view());
    if (name == "message" && rank == 0) {
        tutti::recv(some(3).view(), {.src = 1});
        return;
    }
    std::this_thread::sleep_for(std::chrono::seconds(4));
}

}  // namespace

int main(int argc, char** argv) {
    tutti::init_process_group();
    const int rank = tutti::get_rank(), size = tutti::get_world_size();
    try {
        collectives(rank, size);
        messages(rank, size);
        tutti::barrier();  // or rank 0 may hear of the mistake while it still receives
        mistake(argc > 1 ? argv[1] : "clean", rank, size);
    } catch (const tutti::DistError& error) {
        std::printf("%s\n", error.what());
    }
    tutti::destroy_process_group();
}
