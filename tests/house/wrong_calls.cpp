// Calls that must not compile, each with the sentence that its user reads: wrong_calls_test.py compiles this file.
// Lines without `says` are right. Each argument is of a type of its own, as compilers refuse a type only once.
#include <tutti/tutti.hpp>

#include <deque>
#include <list>
#include <ranges>
#include <string>
#include <vector>

namespace {

struct Particle {
    float x, y;
};
enum class Color { red };

void call(std::vector<float>& x, const std::vector<double>& constants, const tutti::Tensor& const_tensor,
          tutti::ConstTensorView const_view, const short* pointer) {
    using namespace tutti;
    double number = 1;
    const int constant = 1;
    long double wide = 1;
    std::list<float> list(3);
    std::deque<float> deque(3);
    std::vector<bool> bits(3);
    std::vector<std::string> texts(3);
    std::vector<Particle> particles(3);
    std::vector<std::vector<float>> rows(3);
    TensorList tensors(3);
    Color color = Color::red;

    all_reduce(number);
    all_reduce(wide);                       // says: tensors have no elements of this type
    all_reduce(color);                      // says: tensors have no elements of this type
    all_reduce(texts);                      // says: tensors have no elements of this type
    broadcast(particles, {.src = 0});       // says: tensors have no elements of this type
    send(std::vector<Particle>(2), 1);      // says: tensors have no elements of this type
    all_reduce(constants);                  // says: these elements are const
    all_reduce(constant);                   // says: these elements are const
    all_reduce(const_tensor);               // says: these elements are const
    all_reduce(const_view);                 // says: these elements are const
    all_reduce(std::span<const float>(x));  // says: these elements are const
    send(constant, 1);
    send(constants, 1);
    all_reduce(list);                          // says: do not lie one after the other in memory
    all_gather_into_tensor(x, deque);          // says: do not lie one after the other in memory
    recv(bits, {.src = 0});                    // says: do not lie one after the other in memory
    isend(x | std::views::reverse, 1).wait();  // says: do not lie one after the other in memory
    all_reduce(rows);                          // says: this is a list of tensors
    all_gather_into_tensor(tensors, x);        // says: this is a list of tensors
    all_gather(tensors, x);
    all_reduce(x.data());  // says: a pointer does not say how many elements there are
    send(pointer, 1);      // says: a pointer does not say how many elements there are
    send(std::span(pointer, 3), 1);
    all_reduce(std::vector<int>{1, 2});  // says: this is a temporary
    all_reduce(zeros(float32, {2}));     // says: this is a temporary
    all_reduce(std::span(x));
    all_reduce(7L);                                         // says: this number is a temporary
    send(2.5F, 1);                                          // says: this number is a temporary
    default_group().all_reduce(std::list<int>{});           // says: do not lie one after the other in memory
    async::all_reduce(static_cast<char*>(nullptr)).wait();  // says: a pointer does not say how many elements there are
    plan::all_reduce(std::deque<int>{}).run();              // says: do not lie one after the other in memory
}

}  // namespace
