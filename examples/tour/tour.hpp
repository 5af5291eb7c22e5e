// What the parts of the tour share: tensors as text, ranks that speak in turn, results that are checked.
#pragma once

#include <tutti/tutti.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace tour {

using Values = std::vector<std::int64_t>;

/// "tensor(3)" for a scalar, "tensor([3, 4])" otherwise, as PyTorch prints them.
inline std::string text_of(const tutti::Tensor& t) {
    std::string items;
    for (const std::int64_t value : t.span<std::int64_t>())
        items += (items.empty() ? "" : ", ") + std::to_string(value);
    return t.shape().size() == 0 ? "tensor(" + items + ")" : "tensor([" + items + "])";
}
inline std::string text_of(const std::vector<tutti::Tensor>& list) {
    std::string items;
    for (const tutti::Tensor& t : list) items += (items.empty() ? "" : ", ") + text_of(t);
    return "[" + items + "]";
}

inline tutti::Tensor scalar(std::int64_t value) {
    tutti::Tensor t = tutti::empty(tutti::int64, tutti::Extents{});
    t.data<std::int64_t>()[0] = value;
    return t;
}
inline tutti::Tensor vector(const Values& values) {
    tutti::Tensor t = tutti::empty(tutti::int64, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.data<std::int64_t>());
    return t;
}
inline std::vector<tutti::Tensor> zeros(int count, std::int64_t size = 1) {
    std::vector<tutti::Tensor> list;
    for (int i = 0; i < count; ++i) list.push_back(tutti::zeros(tutti::int64, {size}));
    return list;
}
template <class List>
List views(const std::vector<tutti::Tensor>& tensors) {
    List list;
    for (const tutti::Tensor& t : tensors) list.push_back(t.view());
    return list;
}

/// One station: rank 0 prints the title; what every rank says comes in the order of ranks.
class Station {
 public:
    explicit Station(std::string title) : title_(std::move(title)) {
        if (tutti::get_rank() == 0) std::printf("INFO:root:%s:\n", title_.c_str());
        std::fflush(stdout);
        tutti::barrier();
    }
    void say(const std::string& text) const {
        for (int rank = 0; rank < tutti::get_world_size(); ++rank) {
            if (rank == tutti::get_rank()) {
                std::printf("INFO:root:%s, rank: %d, %s\n", title_.c_str(), rank, text.c_str());
                std::fflush(stdout);
            }
            tutti::barrier();
        }
    }
    void check(const tutti::Tensor& got, const Values& expected) const {
        const auto values = got.span<std::int64_t>();
        if (Values(values.begin(), values.end()) == expected) return;
        ++mistakes;
        std::printf("WRONG: %s, rank %d: %s, expected %s\n", title_.c_str(), tutti::get_rank(), text_of(got).c_str(),
                    text_of(vector(expected)).c_str());
    }
    static inline int mistakes = 0;

 private:
    std::string title_;
};

void all_reduce();
void reduce_scatter();
void all_gather();
void broadcast();
// The other collectives and point to point.
void reduce();
void gather();
void scatter();
void all_to_all();
void into_tensors();
void barriers();
void point_to_point();

}  // namespace tour
